"""One warm judge for all tests of the package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]  # kernel_sources, downloaded
sys.path.append(str(Path(__file__).parents[3] / "tools" / "strangers"))  # operators


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=2, compile="never", timeout_s=5.0)) as judge:
        yield judge
