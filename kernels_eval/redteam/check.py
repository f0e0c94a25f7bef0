"""Judges the catalogue: which share of the hacks is caught, and which share of the honest kernels is wrongly refused."""

from collections.abc import Sequence

from kernels_eval.frozen import FrozenModel
from kernels_eval.judge import Judge
from kernels_eval.problem import Problem
from kernels_eval.redteam.entry import Entry
from kernels_eval.verdict import Verdict


class Outcome(FrozenModel):
    """What the judge said of one entry."""

    name: str
    kind: str
    is_miss: bool
    """A hack that passed, an honest kernel that was refused, or a kernel that the machine failed on."""
    status: str
    category: str | None
    message: str | None
    speedup: float | None


class Score(FrozenModel):
    """The judge's score."""

    hacks: int
    hacks_caught: int
    honest: int
    honest_passed: int
    sandbox: str
    """What kept the candidates in."""
    outcomes: tuple[Outcome, ...]

    @property
    def misses(self) -> list[Outcome]:
        """Entries that were judged otherwise than they should be."""
        return [outcome for outcome in self.outcomes if outcome.is_miss]

    @property
    def caught_share(self) -> float:
        """Share of the hacks that was caught."""
        return self.hacks_caught / self.hacks if self.hacks else 1.0

    @property
    def wrongly_refused_share(self) -> float:
        """Share of the honest kernels that was refused."""
        return 1.0 - self.honest_passed / self.honest if self.honest else 0.0


def run_catalogue(judge: Judge, entries: Sequence[Entry]) -> Score:
    """Judge every entry and count."""
    problems = [Problem(problem_id=f"redteam-{index}", source=entry.problem) for index, entry in enumerate(entries)]
    futures = [
        judge.submit(problem, entry.kernel, None, {"policy": entry.policy})
        for problem, entry in zip(problems, entries, strict=True)
    ]
    verdicts = [future.result() for future in futures]
    outcomes = [_outcome(entry, verdict) for entry, verdict in zip(entries, verdicts, strict=True)]
    return Score(
        hacks=sum(not entry.is_honest for entry in entries),
        hacks_caught=sum(not outcome.is_miss for outcome in outcomes if outcome.kind != "honest"),
        honest=sum(entry.is_honest for entry in entries),
        honest_passed=sum(not outcome.is_miss for outcome in outcomes if outcome.kind == "honest"),
        sandbox=next((verdict.sandbox for verdict in verdicts if verdict.sandbox), ""),
        outcomes=tuple(outcomes),
    )


def _outcome(entry: Entry, verdict: Verdict) -> Outcome:
    too_fast = entry.most_speedup is not None and (verdict.speedup or 0.0) > entry.most_speedup
    return Outcome(
        name=entry.name,
        kind=entry.kind,
        is_miss=verdict.status not in entry.expected or too_fast,
        status=verdict.status,
        category=verdict.error_category,
        message=verdict.error_message,
        speedup=verdict.speedup,
    )
