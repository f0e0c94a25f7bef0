"""Pairs as loaded, and why a row gives none."""

from enum import StrEnum

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.problems.row import Row, text


class Pair(FrozenModel):
    """A problem and a kernel for it, not judged yet."""

    pair_id: str = ""
    """Unique in its corpus; derived from the content if the source gives none."""
    problem_source: str
    """In KernelBench's format."""
    kernel_source: str
    """Defines `ModelNew`."""
    earlier_source: str | None = None
    """The kernel that this one is an answer to: one to mend or to make faster. None: the answer is to the problem."""
    before: tuple[str, ...] = ()
    """Kernels that came before the earlier one, oldest first."""
    runtime_ms: float | None = None
    """Time of the kernel as its source gives it; it only orders the kernels of one problem."""
    reasoning: str = ""
    """Thoughts of its author before the kernel, without tags; empty: not known."""
    composition: str = ""
    style: str = ""


class Reason(StrEnum):
    """Reason for dropping a row of a format that has rows without a pair."""

    NOT_DIRECT = "not_direct"
    """Ours: the row is of another kind than `direct`."""
    NOT_CORRECT = "not_correct"
    """The archive: `Correct` is false or null."""
    NOT_A_PROBLEM = "not_a_problem"
    """The PyTorch side does not parse, or lacks the class, `get_inputs` or `get_init_inputs`."""
    NOT_A_KERNEL = "not_a_kernel"
    """KernelBook: the Triton side does not parse, or lacks the class `<entry_point>New`. The archive: the functional
    side does not parse, or lacks a class `Model` whose `forward` calls its last parameter `fn`."""
    NO_BINDING = "no_binding"
    """The archive: the CUDA side is empty, or binds no function `forward` in a `PYBIND11_MODULE`."""
    NAME_TAKEN = "name_taken"
    """The source already uses a name, such as `ModelNew`, that conversion gives to something else."""
    CONSTRUCTOR = "constructor"
    """KernelBook: the constructor's arguments cannot be given by position."""


class UnconvertibleError(ValueError):
    """The row gives no pair, for a reason that the loader counts by."""

    def __init__(self, reason: Reason) -> None:
        """Keep the reason."""
        super().__init__(reason.value)
        self.reason = reason


def needed(row: Row, column: str) -> str:
    """Return the text in a column. Raises InputError if there is none."""
    value = text(row, column)
    if value is None:
        raise InputError(f"{row.where}: column `{column}`: expected text, found null")
    return value
