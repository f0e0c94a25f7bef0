"""Failures explained: line, symbol and cause in one sentence, from the message of a verdict that is not correct."""

import re
from typing import NamedTuple

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.frozen import FrozenModel
from kernels_eval.verdict import Verdict


class Failure(FrozenModel):
    """Reason why a kernel is not correct."""

    category: str
    """The verdict's category or broken rule."""
    line: int | None = None
    """Of the kernel's source, or of the CUDA source that it hands to the compiler; None: not known."""
    symbol: str | None = None
    """Name that the message is about."""
    cause: str
    """One sentence."""
    remedy: str | None = None


class _Known(NamedTuple):
    pattern: str
    """Of the message; its group, if any, is the symbol."""
    cause: str
    remedy: str | None = None


_LINE = re.compile(r"\(line (\d+)(?: of the kernel)?:|\.(?:cu|cpp|cuh|h) line (\d+):")
_TAIL = re.compile(r" \(line \d+(?: of the kernel)?: .*\)$", re.DOTALL)
_KNOWN = (
    _Known(r"name '(\w+)' is not defined", "`{}` is used before it is given a value, or was never imported"),
    _Known(r'identifier "(\w+)" is undefined', "`{}` is not declared in the CUDA source"),
    _Known(
        r"cannot use (?:a |the )?((?:tl|torch|triton)\.[\w.]+|\w+)",
        "a Triton kernel cannot use `{}`",
        "use the functions of triton.language; what the host computes is passed as an argument",
    ),
    _Known(
        r"(arange)'s range must be a power of 2",
        "tl.arange covers a power of two of values, and its bounds are known when the kernel is compiled",
        "round the block up with triton.next_power_of_2 and mask the rest",
    ),
    _Known(
        r"(?:Cannot make_shape_compatible|incompatible dimensions)",
        "two blocks of different sizes meet in one operation",
        "add a dimension with [:, None] or [None, :], or make the blocks equal",
    ),
    _Known(
        r"must have equal reduction dimensions",
        "the inner dimensions of the operands of tl.dot differ",
        "load the right operand as [K, N]: the left one is [M, K]",
    ),
    _Known(
        r"Input shapes should have M >=",
        "an operand of tl.dot is smaller than a tensor core takes",
        "use tiles of at least 16 in each dimension, masked where the data are smaller",
    ),
    _Known(
        r"outside its tensors.* of `(\w+)`",
        "the kernel accesses memory outside of `{}`",
        "mask the load or store with the tensor's true size",
    ),
    _Known(
        r"no kernel argument '?(\w+)|got an unexpected keyword argument '(\w+)'",
        "the launch passes `{}`, which the kernel does not take",
    ),
    _Known(
        r"missing (?:a |\d+ )?required (?:positional )?arguments?:? '?(\w+)",
        "the launch does not pass `{}`",
    ),
    _Known(
        r"bytes of shared memory a program",
        "a program needs more shared memory than the device has",
        "smaller tiles, or fewer stages (num_stages)",
    ),
)
_CATEGORIES: dict[str, tuple[str, str | None]] = {
    ErrorCategory.WRONG_VALUES: ("the kernel runs and its values are wrong", None),
    ErrorCategory.WRONG_SHAPE: ("the kernel returns another shape than the reference", None),
    ErrorCategory.WRONG_DTYPE: ("the kernel returns another data type than the reference", None),
    ErrorCategory.WRONG_TYPE: ("the kernel returns something else than the reference", None),
    ErrorCategory.DATA_RACE: (
        "programs or lanes access one address without an order between them",
        "use atomics, or one program for each output, or a second launch",
    ),
    ErrorCategory.MISSING_MODEL: ("the source defines no class ModelNew, which the judge calls", None),
    ErrorCategory.SYNTAX_ERROR: ("the source is not Python", None),
    ErrorCategory.TIMEOUT: ("the kernel runs longer than allowed", None),
    ErrorCategory.COMPILE_TIMEOUT: ("the compiler runs longer than allowed", "smaller blocks, or fewer unrolled loops"),
    ErrorCategory.LIBRARY_COMPUTE: (
        "PyTorch or the host computes what the kernel is to compute",
        "allocate, reshape and launch on the host; compute in kernels",
    ),
}
"""Cause and remedy of categories whose messages say what was found."""


def explain(verdict: Verdict) -> Failure:
    """Return the reason of a verdict that is not correct."""
    message = verdict.error_message or ""
    category = verdict.rejection_reason or verdict.error_category or verdict.status.value
    located = _LINE.search(message)
    line = next((int(number) for number in located.groups() if number), None) if located else None
    for known in _KNOWN:
        found = re.search(known.pattern, message)
        if found is None:
            continue
        symbol = next((group for group in found.groups() if group), None)
        cause = known.cause.format(symbol or "a name")
        return Failure(category=category, line=line, symbol=symbol, cause=cause, remedy=known.remedy)
    said = _TAIL.sub("", message).strip()
    cause, remedy = _CATEGORIES.get(category, (None, None))
    whole = ": ".join(part for part in (cause, said) if part) or category.replace("_", " ")
    return Failure(category=category, line=line, cause=whole, remedy=remedy)
