"""One row of a problem set: a problem, its split, and what decides the split."""

from enum import StrEnum

from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem


class Split(StrEnum):
    """Which problems may be learnt from."""

    TRAIN = "train"
    """SFT and RL use these."""
    HELDOUT = "heldout"
    """Measured, never trained on."""


class ProblemRow(FrozenModel):
    """A problem in its set."""

    problem: Problem
    split: Split
    composition: str = ""
    """What decides the split: the operator sequence of a generated problem, e.g. `linear>relu>softmax`; for a loaded one
    what its source says, or the digest of its shape (tasks.problems.fingerprint)."""
    reference_kernel: str | None = None
    """A kernel that is known to solve it, where there is one."""
