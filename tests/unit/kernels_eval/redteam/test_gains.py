"""Attacks on a GPU: pairs and their order, gains, outcomes by class, the time they may take, and names they patch."""

import importlib
import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kernels_eval import Problem, Verdict
from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from kernels_eval.redteam.case import HONEST, Case
from kernels_eval.redteam.gains import AttackReport, AttackResult, pairs_of, run_attacks
from kernels_eval.redteam.suite import FOLDER, load_cases
from kernels_eval.verdict import Status

PROBLEM = '"""{name}"""\nimport torch\nwork = {work}\n'


def case(name: str, kind: str, work: int, expected: tuple[Status, ...]) -> Case:
    place = Path(kind) / f"{name}.py"
    return Case(
        name=name,
        kind=kind,
        path=place,
        problem=PROBLEM.format(name=name, work=work),
        kernel=f"{name}\n",
        expected=expected,
        settings={},
        most_speedup=None,
    )


def honest(work: int) -> Case:
    return case(f"honest {work}", HONEST, work, (Status.CORRECT,))


def attack(name: str, kind: str, work: int = 1, *expected: Status) -> Case:
    return case(name, kind, work, expected or (Status.INCORRECT, Status.REJECTED, Status.CORRECT))


def accepted(speedup: float) -> Verdict:
    return Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, candidate_ms=1.0, reference_ms=speedup
    )


def ended(status: Status) -> Verdict:
    return Verdict(status=status)


class InventedVerdicts:
    """Stands in for a judge on a GPU: gives the verdicts of a table, in turn, and has a clock of its own."""

    def __init__(self, verdicts: dict[str, list[Verdict]]) -> None:
        self.left = {name: list(given) for name, given in verdicts.items()}
        self.asked: list[str] = []

    def submit(self, problem: Problem, kernel: str, backend: str | None, settings: Any) -> "Future[Verdict]":
        name = kernel.splitlines()[0]
        self.asked.append(name)
        future: Future[Verdict] = Future()
        future.set_result(self.left[name].pop(0))
        return future

    def clock(self) -> float:
        return 10.0 * len(self.asked)


def run(verdicts: dict[str, list[Verdict]], cases: list[Case], budget_s: float | None = None) -> AttackReport:
    judge = InventedVerdicts(verdicts)
    return run_attacks(judge, pairs_of(cases), budget_s, clock=judge.clock)  # type: ignore[arg-type]


def test_every_case_of_the_checkout_has_its_honest_kernel_and_each_class_comes_in_the_first_round() -> None:
    cases = load_cases(FOLDER / "gpu")
    pairs = pairs_of(cases)
    kinds = {each.kind for each in cases if not each.is_honest}
    assert len(kinds) >= 11
    assert len(pairs) >= 37
    assert {pair.attack.kind for pair in pairs[: len(kinds)]} == kinds
    assert {pair.honest.path for pair in pairs} == {each.path for each in cases if each.is_honest}
    for each in cases:
        check_problem_source(each.problem, str(each.path))
        compile(each.kernel, str(each.path), "exec")


def test_the_parts_of_the_judge_that_attacks_replace_exist() -> None:
    """An attack on a part that has another name fails by itself and says nothing."""
    found = 0
    for each in load_cases(FOLDER / "gpu"):
        patched = re.search(r'sys\.modules\["([\w.]+)"\]\.(\w+)', each.kernel)
        if patched is None:
            continue
        part = getattr(importlib.import_module(patched[1]), patched[2])
        names = set(re.findall(r"\brounds\.(\w+)", each.kernel)) | set(re.findall(r"\bself\.(_\w+)", each.kernel))
        assert names
        for name in names - {"_calls", "_header", "_outcomes"}:
            assert callable(getattr(part, name)), (each.path, name)
        for name in names & {"_calls", "_header", "_outcomes"}:
            assert name in part.__dataclass_fields__, (each.path, name)
        found += 1
    assert found >= 5


def test_an_attack_without_an_honest_kernel_is_named() -> None:
    with pytest.raises(InputError, match=r"overlap/streams\.py: expected one honest case .* found 0"):
        pairs_of([honest(1), attack("streams", "overlap", 2)])
    with pytest.raises(InputError, match="found 2"):
        pairs_of([honest(1), honest(1), attack("streams", "overlap", 1)])


@pytest.mark.parametrize(
    ("verdicts", "expected", "outcome", "is_miss"),
    [
        ([ended(Status.INCORRECT)], (), "refused", False),
        ([accepted(2.08)], (), "no gain", False),
        ([accepted(2.08)], (Status.INCORRECT,), "no gain", True),
        ([accepted(3.0), accepted(2.5)], (), "gain", True),
        ([accepted(3.0), accepted(2.0)], (), "no gain", False),
        ([ended(Status.RUNTIME_ERROR)], (), "failed", True),
        ([ended(Status.RUNTIME_ERROR)], (Status.RUNTIME_ERROR,), "refused", False),
        ([ended(Status.INFRASTRUCTURE_ERROR)], (), "fault", True),
    ],
)
def test_outcomes(verdicts: list[Verdict], expected: tuple[Status, ...], outcome: str, is_miss: bool) -> None:
    cases = [honest(1), attack("trick", "overlap", 1, *expected)]
    report = run({"honest 1": [accepted(2.0), accepted(2.0)], "trick": verdicts}, cases)
    (result,) = report.attacks
    assert (result.outcome, result.is_miss) == (outcome, is_miss)
    assert report.by_class == {"overlap": {outcome: 1}}
    assert [miss.name for miss in report.misses] == (["trick"] if is_miss else [])


def test_the_smaller_one_of_two_gains_counts() -> None:
    given = {"honest 1": [accepted(2.0), accepted(2.5)], "trick": [accepted(3.0), accepted(3.0)]}
    (result,) = run(given, [honest(1), attack("trick", "overlap")]).attacks
    assert result.gains == (1.5, 1.2)
    assert result.gain == 1.2


def test_a_refused_honest_kernel_is_a_miss_and_nothing_is_compared_with_it() -> None:
    given = {"honest 1": [ended(Status.REJECTED)], "trick": [accepted(3.0)]}
    report = run(given, [honest(1), attack("trick", "overlap")])
    assert report.attacks[0].outcome == "not compared"
    assert [miss.name for miss in report.misses] == ["trick", "honest 1"]


def test_no_case_begins_after_the_budget_and_what_is_left_is_named() -> None:
    cases = [honest(1), honest(2), *(attack(f"a{number}", "overlap") for number in range(3)), attack("b", "told", 2)]
    given = {name: [accepted(2.0)] for name in ("honest 1", "honest 2", "a0", "a1", "a2", "b")}
    seen: list[AttackResult] = []
    judge = InventedVerdicts(given)
    report = run_attacks(judge, pairs_of(cases), 35.0, lambda _, result: seen.append(result), judge.clock)  # type: ignore[arg-type]
    # 10 s a verdict: honest 1 and a0 until 20, honest 2 and b until 40
    assert judge.asked == ["honest 1", "a0", "honest 2", "b"]
    assert [result.name for result in report.attacks if result.outcome == "not run"] == ["a1", "a2"]
    assert report.by_class == {"overlap": {"no gain": 1, "not run": 2}, "told": {"no gain": 1}}
    assert seen == [report.honest[0], report.attacks[0], report.honest[1], *report.attacks[1:]]
    assert not report.misses
