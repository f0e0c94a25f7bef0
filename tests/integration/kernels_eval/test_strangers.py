"""Kernels that strangers published, judged as they are: operator by operator, with a table of outcomes.

The table is printed (`pytest -s`) and kept in docs/hacks.md with date and versions.
"""

from pathlib import Path

import pytest
import strangers
from downloaded import fetch

from kernels_eval import Judge, JudgeConfig, Problem

REFUSED = {("liger-kernel", "ops/sparsemax.py"): "library_compute"}
"""Operators (package, module) that have to be refused, and the category: their host code sorts with PyTorch."""


@pytest.mark.slow
@pytest.mark.parametrize("package", strangers.PACKAGES)
def test_published_operators_are_correct(package: str, tmp_path: Path) -> None:
    version = fetch(package, tmp_path)
    if version is None:
        pytest.skip(f"no package index within reach has {package}")
    operators = [operator for operator in strangers.OPERATORS if operator.package == package]
    items = [
        (Problem(problem_id=operator.module, source=operator.problem), operator.candidate(tmp_path))
        for operator in operators
    ]
    with Judge(JudgeConfig(device="cpu", workers=1, compile="never")) as judge:
        verdicts = judge.evaluate_many(items)
    print(f"\n| {package} {version} | verdict | |\n|---|---|---|")
    for operator, verdict in zip(operators, verdicts, strict=True):
        reason = f"{verdict.error_category or ''} {(verdict.error_message or '').splitlines()[:1]}"
        print(f"| {operator.module} | {verdict.status} | {reason if verdict.status != 'correct' else ''} |")
    refused = {
        (package, operator.module): verdict.error_category
        for operator, verdict in zip(operators, verdicts, strict=True)
        if verdict.status != "correct"
    }
    assert refused == {key: category for key, category in REFUSED.items() if key[0] == package}


def test_imports_of_a_library_are_cut_out_and_nothing_else() -> None:
    source = "from __future__ import annotations\nimport torch\nfrom lib.ops import (\n    a,\n    b,\n)\nif a:\n    import lib.c\n"
    cut = strangers.without_imports_of(source, "lib")
    assert cut.splitlines() == ["pass", "import torch", "pass", "", "", "", "if a:", "    pass"]
    compile(cut, "lib", "exec")
