"""CPU worker: one more trial for kernels of which a single program ran, at a size at which it has neighbours.

At reduced sizes a tile may cover all rows: programs that all do the work of the first, or that read and write the same
cell in turn, are right then. The trial is made where a direction of the grid has one program at the sizes that were
run, and more at the full size.
"""

from kernels_eval.cpu.full_size import FullSize
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.trials import Errors, finish, start
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference

_TRIAL = 2002
"""Trial number of the run."""
_LONGEST_S = 1.0
"""Estimated CPU time beyond which the run is left to the ones at the full size."""


def run_with_neighbours(
    session: Session, reference: Reference, true: FullSize, seed: SecretSeed, errors: Errors, seconds: float
) -> None:
    """Make the trial if it is needed. Raises CandidateFailedError if anything is wrong.

    `seconds`: CPU time of the trial at the largest size so far, for kernels and reference.
    """
    size = true.size_with_neighbours()
    if size is None or seconds * size / true.seen_size > _LONGEST_S:
        return
    at = None if size >= (reference.full_size or 0) else size
    inputs, expected = reference.with_expected(reference.draw(at, _TRIAL, seed, own=False), at, _TRIAL, seed)
    session.ask(inputs, has_values=True)
    finish(session, start(session, inputs).trace, expected, session.strict, errors)
