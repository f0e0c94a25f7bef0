"""Judges cases: the share of the hacks that is caught, and the share of the honest kernels that is wrongly refused."""

from collections import Counter
from collections.abc import Sequence

from kernels_eval.frozen import FrozenModel
from kernels_eval.judge import Judge
from kernels_eval.problem import Problem
from kernels_eval.redteam.case import HONEST, Case
from kernels_eval.verdict import Verdict


class Outcome(FrozenModel):
    """The verdict on one case."""

    name: str
    kind: str
    group: str
    """Class of the hack, or the folder of the honest kernel."""
    is_miss: bool
    """A hack that passed, an honest kernel that was refused, or a kernel that the machine failed on."""
    status: str
    category: str | None
    message: str | None
    speedup: float | None


class Rate(FrozenModel):
    """Cases of one class of hacks, or of one group of honest kernels, and how many were judged wrongly."""

    group: str
    cases: int
    misses: int


class Score(FrozenModel):
    """The judge's score."""

    hacks: int
    hacks_caught: int
    honest: int
    honest_passed: int
    sandbox: str
    """Sandbox that the candidates ran in."""
    outcomes: tuple[Outcome, ...]

    @property
    def misses(self) -> list[Outcome]:
        """Cases with another verdict than expected."""
        return [outcome for outcome in self.outcomes if outcome.is_miss]

    @property
    def caught_share(self) -> float:
        """Share of the hacks that was caught, 1 without hacks."""
        return self.hacks_caught / self.hacks if self.hacks else 1.0

    @property
    def wrongly_refused_share(self) -> float:
        """Share of the honest kernels that was refused, 0 without honest kernels."""
        return 1.0 - self.honest_passed / self.honest if self.honest else 0.0

    @property
    def hack_rates(self) -> list[Rate]:
        """Hacks and those that passed, by class."""
        return _rates([outcome for outcome in self.outcomes if outcome.kind != HONEST])

    @property
    def honest_rates(self) -> list[Rate]:
        """Honest kernels and those that were refused, by group."""
        return _rates([outcome for outcome in self.outcomes if outcome.kind == HONEST])


def run_cases(judge: Judge, cases: Sequence[Case]) -> Score:
    """Judge every case, by the policy `strict` unless its settings name another, and count."""
    futures = [judge.submit(_problem(case), case.kernel, None, {"policy": "strict", **case.settings}) for case in cases]
    verdicts = [future.result() for future in futures]
    outcomes = [_outcome(case, verdict) for case, verdict in zip(cases, verdicts, strict=True)]
    return Score(
        hacks=sum(not case.is_honest for case in cases),
        hacks_caught=sum(not outcome.is_miss for outcome in outcomes if outcome.kind != HONEST),
        honest=sum(case.is_honest for case in cases),
        honest_passed=sum(not outcome.is_miss for outcome in outcomes if outcome.kind == HONEST),
        sandbox=next((verdict.sandbox for verdict in verdicts if verdict.sandbox), ""),
        outcomes=tuple(outcomes),
    )


def _rates(outcomes: Sequence[Outcome]) -> list[Rate]:
    cases = Counter(outcome.group for outcome in outcomes)
    misses = Counter(outcome.group for outcome in outcomes if outcome.is_miss)
    return [Rate(group=group, cases=number, misses=misses[group]) for group, number in sorted(cases.items())]


def _problem(case: Case) -> Problem:
    return Problem(problem_id=case.path.stem, source=case.problem)


def _outcome(case: Case, verdict: Verdict) -> Outcome:
    too_fast = case.most_speedup is not None and (verdict.speedup or 0.0) > case.most_speedup
    return Outcome(
        name=case.name,
        kind=case.kind,
        group=case.group,
        is_miss=verdict.status not in case.expected or too_fast,
        status=verdict.status,
        category=verdict.error_category,
        message=verdict.error_message,
        speedup=verdict.speedup,
    )
