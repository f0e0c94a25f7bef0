"""Protocol of a verdict: named checks, one after another, over one object of trials. The first that fails decides.

`kernels_eval.cpu.checks` and `kernels_eval.gpu.candidate_run` list theirs; both lists stand in docs/reference/verdicts.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

Trials = TypeVar("Trials")


class Check(NamedTuple, Generic[Trials]):
    """One demand on a candidate."""

    demand: str
    """End of the sentence that begins with the candidate."""
    run: Callable[[Trials], None]
    """Raises CandidateFailedError if it does not. Leaves in the trials what later checks need."""


def run_checks(checks: Sequence[Check[Trials]], trials: Trials) -> None:
    """Run checks in order. Raises the CandidateFailedError of the first that fails; later ones are not run."""
    for check in checks:
        check.run(trials)
