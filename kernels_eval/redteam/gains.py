"""Attacks on a judge on a GPU, each beside the honest kernel of the same problem, with what it gains over that one.

The gain is the attack's speed-up divided by the honest kernel's, both of one run. A gain above `GAIN_LIMIT` is measured
a second time, since both speed-ups scatter; the smaller one counts.
"""

import ast
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.judge import Judge
from kernels_eval.problem import Problem
from kernels_eval.redteam.case import Case
from kernels_eval.verdict import JUDGE_VERSION, Verdict

GAIN_LIMIT = 1.05


class AttackOutcome(StrEnum):
    """The end of an attack."""

    REFUSED = "refused"
    NO_GAIN = "no gain"
    """Accepted, at most `GAIN_LIMIT` times as fast as the honest kernel."""
    GAIN = "gain"
    """Accepted, and faster than that."""
    NOT_COMPARED = "not compared"
    """Accepted, while the honest kernel was not."""
    FAILED = "failed"
    """Ended by an error of its own, which says nothing of the judge: its case expects another status."""
    FAULT = "fault"
    """No verdict: the machine failed, or seems to have."""
    NOT_RUN = "not run"
    """Left out for lack of time."""


class AttackResult(FrozenModel):
    """The verdict on one attack, or on an honest kernel."""

    name: str
    group: str
    """Class of the attack, or the folder of the honest kernel."""
    outcome: AttackOutcome
    is_miss: bool
    """The judge or the case is to be looked at: a gain, a status that the case does not expect, a fault."""
    gains: tuple[float, ...] = ()
    """Speed-up over the honest kernel's; two if the first one was above `GAIN_LIMIT`."""
    status: str = ""
    category: str | None = None
    message: str | None = None
    speedup: float | None = None
    candidate_ms: float | None = None
    reference_ms: float | None = None
    seconds: float = 0.0
    """Wall time of its verdicts, without the honest kernel's."""

    @property
    def gain(self) -> float | None:
        """The gain that counts, or None if both were not accepted."""
        return min(self.gains, default=None)


class AttackReport(FrozenModel):
    """Results so far, in the order in which the cases were judged."""

    judge_version: str = JUDGE_VERSION
    hardware: str = ""
    sandbox: str = ""
    budget_s: float | None = None
    seconds: float = 0.0
    attacks: tuple[AttackResult, ...] = ()
    honest: tuple[AttackResult, ...] = ()

    @property
    def by_class(self) -> dict[str, dict[str, int]]:
        """Number of attacks by class and outcome."""
        counts = {group: Counter[str]() for group in sorted({attack.group for attack in self.attacks})}
        for attack in self.attacks:
            counts[attack.group][attack.outcome] += 1
        return {group: dict(counted) for group, counted in counts.items()}

    @property
    def misses(self) -> list[AttackResult]:
        """Attacks and honest kernels with another end than they should have."""
        return [result for result in (*self.attacks, *self.honest) if result.is_miss]


class Pair(NamedTuple):
    """An attack, and the honest kernel of the same problem."""

    attack: Case
    honest: Case


def pairs_of(cases: Sequence[Case]) -> list[Pair]:
    """Pair each attack with the honest kernel of its problem, in turn one of each class: all are touched early.

    Raises InputError for an attack without such a kernel, or with several.
    """
    honest: dict[str, list[Case]] = {}
    for case in cases:
        if case.is_honest:
            honest.setdefault(_definition(case), []).append(case)
    ranks: Counter[str] = Counter()
    ranked: list[tuple[int, Pair]] = []
    for attack in cases:
        if attack.is_honest:
            continue
        found = honest.get(_definition(attack), [])
        if len(found) != 1:
            raise InputError(f"{attack.path}: expected one honest case of the same problem, found {len(found)}")
        ranked.append((ranks[attack.kind], Pair(attack, found[0])))
        ranks[attack.kind] += 1
    return [pair for _, pair in sorted(ranked, key=lambda each: each[0])]


def run_attacks(
    judge: Judge,
    pairs: Sequence[Pair],
    budget_s: float | None = None,
    report: Callable[[AttackReport, AttackResult], None] = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> AttackReport:
    """Judge each attack after the honest kernel of its problem, one at a time; report each result with all so far.

    After `budget_s` no further case begins.
    """
    started = clock()
    so_far = AttackReport(budget_s=budget_s)
    honest: dict[Path, Verdict] = {}
    for attack, beside in pairs:
        if budget_s is not None and clock() - started >= budget_s:
            result = _result(attack, AttackOutcome.NOT_RUN)
            so_far = so_far.model_copy(update={"attacks": (*so_far.attacks, result)})
            report(so_far, result)
            continue
        if beside.path not in honest:
            began = clock()
            verdict = honest[beside.path] = _judged(judge, beside)
            outcome = AttackOutcome.FAULT if verdict.is_fault else AttackOutcome.REFUSED
            outcome = AttackOutcome.NO_GAIN if verdict.correct else outcome
            result = _result(beside, outcome, verdict, seconds=clock() - began)
            told = {"hardware": verdict.hardware or so_far.hardware, "sandbox": verdict.sandbox or so_far.sandbox}
            so_far = so_far.model_copy(update={**told, "honest": (*so_far.honest, result)})
            report(so_far, result)
        began = clock()
        verdict, gains = _attacked(judge, attack, beside, honest[beside.path])
        result = _result(attack, _outcome(attack, verdict, gains), verdict, gains, clock() - began)
        attacks = (*so_far.attacks, result)
        so_far = so_far.model_copy(update={"attacks": attacks, "seconds": clock() - started})
        report(so_far, result)
    return so_far


def _attacked(judge: Judge, attack: Case, beside: Case, honest: Verdict) -> tuple[Verdict, tuple[float, ...]]:
    """Return the verdict on an attack and its gains over the honest kernel."""
    verdict = _judged(judge, attack)
    gains = _gain(verdict, honest)
    if not gains or gains[0] <= GAIN_LIMIT:
        return verdict, gains
    again = _judged(judge, beside, mark="# again\n"), _judged(judge, attack, mark="# again\n")
    return verdict, (*gains, *_gain(again[1], again[0]))


def _gain(verdict: Verdict, honest: Verdict) -> tuple[float, ...]:
    if not (verdict.correct and honest.correct and verdict.speedup and honest.speedup):
        return ()
    return (verdict.speedup / honest.speedup,)


def _judged(judge: Judge, case: Case, mark: str = "") -> Verdict:
    """Return the verdict on a case; a `mark` makes it another text, of which no verdict is kept."""
    problem = Problem(problem_id=case.path.stem, source=case.problem)
    return judge.submit(problem, case.kernel + mark, None, case.settings).result()


def _outcome(attack: Case, verdict: Verdict, gains: tuple[float, ...]) -> AttackOutcome:
    if verdict.is_fault:
        return AttackOutcome.FAULT
    if not verdict.correct:
        return AttackOutcome.REFUSED if verdict.status in attack.expected else AttackOutcome.FAILED
    if not gains:
        return AttackOutcome.NOT_COMPARED
    return AttackOutcome.GAIN if min(gains) > GAIN_LIMIT else AttackOutcome.NO_GAIN


def _result(
    case: Case,
    outcome: AttackOutcome,
    verdict: Verdict | None = None,
    gains: tuple[float, ...] = (),
    seconds: float = 0.0,
) -> AttackResult:
    if verdict is None:
        return AttackResult(name=case.name, group=case.group, outcome=outcome, is_miss=False)
    wanted = AttackOutcome.REFUSED, AttackOutcome.NO_GAIN
    return AttackResult(
        name=case.name,
        group=case.group,
        outcome=outcome,
        is_miss=outcome not in wanted or verdict.status not in case.expected,
        gains=gains,
        status=verdict.status,
        category=verdict.error_category,
        message=verdict.error_message,
        speedup=verdict.speedup,
        candidate_ms=verdict.candidate_ms,
        reference_ms=verdict.reference_ms,
        seconds=seconds,
    )


def _definition(case: Case) -> str:
    """Return the problem without the case's name and fields."""
    return ast.unparse(ast.Module(ast.parse(case.problem).body[1:], type_ignores=[]))
