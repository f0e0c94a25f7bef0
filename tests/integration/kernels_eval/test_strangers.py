"""Kernels that strangers published, judged as they are: operator by operator, with a table of outcomes.

The table is printed (`pytest -s`). `tools/strangers/judge_strangers.py` judges more packages, and all of their operators.
"""

from itertools import islice
from pathlib import Path

import pytest
from downloaded import fetch
from judge_strangers import judged, table
from operators import operators
from packages import PACKAGES

from kernels_eval import Judge, JudgeConfig

FIRST = 24
"""Operators of each package that are judged."""
REFUSED = {
    ("liger_kernel", "ops.cross_entropy: cross_entropy_forward"): "library_compute",
    ("liger_kernel", "ops.sparsemax: LigerSparsemaxFunction"): "library_compute",
    ("flag_gems", "ops.argmin: argmin"): "out_of_bounds",
}
"""Operators (package, name) that have to be refused, and the category: their host code computes with PyTorch, and
argmin loads past the end of its input."""


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["liger_kernel", "flag_gems"])
def test_published_operators_are_correct(folder: str, tmp_path: Path) -> None:
    name = PACKAGES[folder].name
    version = fetch(name, tmp_path)
    if version is None:
        pytest.skip(f"no package index within reach has {name}")
    with Judge(JudgeConfig(device="cpu", workers=1, compile="never")) as judge:
        lines = [judged(operator, tmp_path, judge) for operator in islice(operators(folder, tmp_path), FIRST)]
    print("\n".join([f"\n{name} {version}", *table(lines)]))
    refused = {(line["package"], line["operator"]): line["category"] for line in lines if line["status"] != "correct"}
    assert refused == {key: category for key, category in REFUSED.items() if key[0] == folder}
