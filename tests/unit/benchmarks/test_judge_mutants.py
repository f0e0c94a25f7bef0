"""The mutation score: a mutant that ends its process is wrong, and the ones after it are still decided."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernels_eval.redteam.mutation import Mutant
from kernels_eval.redteam.suite import load_cases

PATH = Path(__file__).parents[3] / "benchmarks" / "judge_mutants.py"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("judge_mutants", PATH)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "judge_mutants", found)
    spec.loader.exec_module(found)
    return found


def entries(module: ModuleType, truths: list[str], statuses: list[str] | None = None):
    case = next(case for case in load_cases() if case.is_honest)
    mutant = Mutant(operator="drop mask", line=3, source=case.kernel)
    return [
        module.Entry(case, mutant, truth, status)
        for truth, status in zip(truths, statuses or [""] * len(truths), strict=True)
    ]


def test_a_process_that_ends_in_a_mutant_is_started_again_after_it(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []

    def conversation(_: object, numbers: list[int], __: str) -> Iterator[tuple[int, str]]:
        asked.append(list(numbers))
        yield -1, "ready"
        for number in numbers:
            yield number, "started"
            if number == 1:
                return  # a crash
            yield number, "equal" if number == 0 else "wrong"

    monkeypatch.setattr(module, "conversation", conversation)
    some = entries(module, ["unknown"] * 4)
    module.decide_case(some, "cuda")
    assert [entry.truth for entry in some] == ["equal", "fails", "wrong", "wrong"]
    assert asked == [[0, 1, 2, 3], [2, 3]]


@pytest.mark.parametrize("said", [[(-1, "unfit")], []])
def test_nothing_is_known_of_mutants_of_a_kernel_that_cannot_run_here(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]
) -> None:
    monkeypatch.setattr(module, "conversation", lambda *_: iter(said))
    some = entries(module, ["unknown"] * 2)
    module.decide_case(some, "cpu")
    assert [entry.truth for entry in some] == ["unknown", "unknown"]


def test_the_score_counts_wrong_mutants_alone_and_lists_those_that_passed(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    truths = ["wrong", "wrong", "fails", "equal", "equal", "unknown"]
    statuses = ["incorrect", "correct", "runtime_error", "correct", "incorrect", ""]
    some = entries(module, truths, statuses)
    module.report(some, truth_only=False)
    said = capsys.readouterr().out
    assert "mutation score: 2 of 3 killed (66.67%)" in said
    assert "of those that run to the end: 1 of 2 killed (50.00%)" in said
    assert "equal on this machine's runs, and refused: 1" in said
    assert said.count("SURVIVED") == 1
    assert some[1].name in said


def test_each_case_gets_its_share_and_the_seed_decides(module: ModuleType) -> None:
    drawn = module.draw(12, 0, "unusual_shapes")
    assert len(drawn) == 12
    assert len({entry.case.path for entry in drawn}) == 8
    assert [entry.mutant for entry in drawn] == [entry.mutant for entry in module.draw(12, 0, "unusual_shapes")]
    assert [entry.mutant for entry in drawn] != [entry.mutant for entry in module.draw(12, 1, "unusual_shapes")]
