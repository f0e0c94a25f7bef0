"""One warm judge for all tests of the package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig

sys.path.insert(0, str(Path(__file__).parent))  # kernel_sources


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=2, compile="never", timeout_s=5.0)) as judge:
        yield judge
