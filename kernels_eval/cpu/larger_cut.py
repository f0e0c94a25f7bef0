"""CPU worker: the run of a kernel at more than a cut problem's sizes, where a larger leading size would not do.

Kernels over square matrices may rely on it (`N = A.shape[0]`), and host code may compare sizes of two inputs. With a
reduced leading size alone they would be refused, and are right. So all constants that were cut are enlarged.
"""

import copy

from kernels_eval.config import JudgeConfig
from kernels_eval.reference.cutting import cut_problem, enlarged
from kernels_eval.reference.reference import Reference


def relies_on_equal_sizes(whole: Reference) -> bool:
    """True if sizes that are equal in a problem are no longer so at a reduced leading size."""
    return whole.has_square_input or whole.loses_equal_sizes


def is_beyond(whole: Reference, config: JudgeConfig) -> bool:
    """True if a kernel that relies on equal sizes would have to be run at a full size that cannot be interpreted."""
    return (
        whole.cut is None
        and relies_on_equal_sizes(whole)
        and whole.largest_size(config.timeout_s, config.memory_mb) != whole.full_size
    )


def with_a_cut(whole: Reference) -> Reference | None:
    """Return a problem of matrices that is cut, where it was not because a reduced leading size would do; else None.

    A kernel that relies on square matrices can be run at the full size alone, and takes too long there.
    """
    cut = cut_problem(whole.source, None)
    if cut is None:
        return None
    other = copy.copy(whole)
    other.cut, other.cut_sizes = Reference(cut.source, whole.weight_seed), cut.sizes
    return other


def larger_cut(whole: Reference, seconds: float, memory_mb: int) -> Reference | None:
    """Return a problem with its cut constants enlarged as far as kernels can be interpreted in so many seconds.

    None: not even twice as large, or inputs, weights and outputs take more than an eighth of the memory.
    """
    cut = enlarged(whole.source, whole.cut_sizes, seconds)
    if cut is None:
        return None
    larger = Reference(cut.source, whole.weight_seed)
    larger.cut_sizes = cut.sizes
    return larger if larger.needed_bytes * 8 <= memory_mb * 2**20 else None


def is_larger_cut(reference: Reference) -> bool:
    """True for a result of `larger_cut`: counts of a run there say nothing of the problem's own sizes."""
    return bool(reference.cut_sizes) and reference.cut is None
