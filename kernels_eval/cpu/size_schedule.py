"""CPU worker: leading sizes to run a candidate at: two small ones if possible, larger ones if needed.

Kernels may branch on a size, as in `if M > 1000`. `size_needed` finds the plain forms of such size branches. These
compare a constant (a literal, a compile-time argument, a global) with an argument that grows with the size, or with
the number or index of a program. Correct kernels have size branches too (a path for whole tiles). The candidate is
then judged at a size at which each branch goes the same way as at the full size.
"""

import ast
import math
import re
from collections.abc import Iterable, Sequence

from kernels_eval.correctness.tolerance import UNWRITTEN
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.row_loops import (
    calls_program,
    growing_counters,
    growing_numbers,
    kernel_tree,
    names_of_programs,
    whole_number,
)
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.reduction import MIN_REDUCED, MIN_REDUCED_LONG, MIN_REDUCED_SIMPLE
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.trace.schema import KernelSource, LaunchKernel, TraceAnswer
from kernels_eval.verdict import Verdict

Sizes = tuple[int, int] | tuple[()]
"""Two reduced leading sizes, or () for the full size."""
LIBRARY_PREFIX = "aten."
_SIZES = (
    (MIN_REDUCED_LONG, 2 * MIN_REDUCED_LONG),
    (MIN_REDUCED_SIMPLE, 2 * MIN_REDUCED_SIMPLE),
    (MIN_REDUCED, 2 * MIN_REDUCED),
    (8 * MIN_REDUCED, 16 * MIN_REDUCED),
)
"""Pairs of leading sizes.

The first is for long rows, the second for references without a matrix product. (Interpreting takes time in proportion
to the number of programs.) Later ones are for kernels whose tiles have more rows than the smaller sizes."""
_TOO_SMALL = frozenset({ErrorCategory.OUT_OF_BOUNDS, ErrorCategory.EMPTY_GRID})
"""Failures at the first pair that tiles with more rows than the inputs may cause."""
_NOT_SQUARE = _TOO_SMALL | {ErrorCategory.WRONG_VALUES, ErrorCategory.WRONG_SHAPE, ErrorCategory.EXCEPTION}
"""Failures that a reduced matrix may cause if it is square in the problem."""
_COMPARED = frozenset({ErrorCategory.EXCEPTION, ErrorCategory.LIBRARY_COMPUTE, ErrorCategory.WRONG_SHAPE})
"""Failures of host code that compares sizes of two inputs, of which one is reduced."""
_TILE = 1024
"""Elements of the largest usual tile of an elementwise kernel."""
_TILE_ROWS = 64
"""Rows of the largest usual tile of a kernel over matrices."""
_REFUSES = re.compile(r"\(line \d+: (assert|raise)\b")
"""In a message: host code itself refused the inputs."""


def first_sizes(reference: Reference) -> Sizes:
    """Return the sizes of the first attempt."""
    if not reference.can_be_reduced:
        return ()
    sizes = _SIZES[0] if reference.has_long_rows else _SIZES[2] if reference.has_products else _SIZES[1]
    sizes = _as_odd_as(reference, sizes)
    return sizes if sizes[1] < (reference.full_size or 0) else ()


def _as_odd_as(reference: Reference, sizes: tuple[int, int]) -> tuple[int, int]:
    """Return sizes that powers of two divide no further than they divide the full size.

    A grid that is rounded down (`numel // 512`) leaves nothing out, and a tile needs no mask, where tiles divide
    evenly.
    """
    full_size = reference.full_size or 0
    even = full_size & -full_size  # the largest power of two that divides it
    first, second = (size if size <= even else size + even for size in sizes)
    return first, second


def larger_sizes(reference: Reference, sizes: Sizes, verdict: Verdict, follow_up: Sizes | None) -> Sizes | None:
    """Return the sizes to judge again at, or None if the verdict stands.

    A kernel may have failed because there were too few rows, or because its tiles divide the full size alone. A kernel
    that passed comes with its `follow_up`.
    """
    error_category = verdict.error_category
    if not sizes:
        return None
    if reference.has_square_input and error_category in _NOT_SQUARE:
        return ()
    if reference.loses_equal_sizes and error_category in _COMPARED:
        return ()
    if _may_need_whole_tiles(verdict):
        is_refused = error_category == ErrorCategory.EXCEPTION
        larger = _in_whole_tiles(reference, sizes, _TILE_ROWS if is_refused else 1)
        # Whatever host code asks of the sizes of its inputs: the problem's own have it, or it is wrong.
        return () if larger is None and is_refused else larger
    if error_category not in _TOO_SMALL:
        return follow_up
    pairs = [_as_odd_as(reference, pair) for pair in _SIZES]
    larger = [pair for pair in pairs if sizes[1] < pair[1] < (reference.full_size or 0)]
    return larger[0] if larger else None


def _may_need_whole_tiles(verdict: Verdict) -> bool:
    """True for what `assert n % BLOCK == 0` and `grid = n // BLOCK` lead to where a tile does not divide the size."""
    message = verdict.error_message or ""
    if verdict.error_category == ErrorCategory.EXCEPTION:
        return _REFUSES.search(message) is not None
    return verdict.error_category == ErrorCategory.WRONG_VALUES and UNWRITTEN in message


def _in_whole_tiles(reference: Reference, sizes: tuple[int, int], rows: int) -> Sizes | None:
    """Return sizes that tiles divide if they divide the full size; None: those were run.

    Tiles of up to `_TILE` elements, and of up to so many `rows`.
    """
    full_size = reference.full_size or 0
    longest = max((math.prod(form.shape) for form in reference.full_forms if isinstance(form, TensorForm)), default=0)
    row, size = max(1, longest // max(1, full_size)), sizes[0] & -sizes[0]
    while (size * row % _TILE or size < rows) and size < (full_size & -full_size):
        size *= 2
    if size <= sizes[0]:
        return None
    return (size, 2 * size) if 2 * size < full_size else ()


def size_of(sizes: Sizes, trial: int) -> int | None:
    """Return the leading size of a trial (reduced sizes alternate), or None for the full size."""
    return sizes[trial % 2] if sizes else None


def follow_up(
    large: Sequence[Launch],
    estimated: Sequence[Launch],
    true: Sequence[Launch],
    sizes: Sizes,
    full_size: int,
    products: bool,
) -> tuple[Sizes | None, bool]:
    """Return larger sizes to judge at, and True if the verdict cannot be trusted without them.

    The sizes are None if the number of programs at the full size is the one that the small sizes suggest. If the second
    result is False, larger sizes only improve the estimated times.

    Too few programs at the full size have two causes. Either a tile has more rows than the small sizes: a size of
    several tiles then shows more. Or the grid does not grow with the rows: only the full size can then distinguish a
    persistent kernel from one that skips rows. With matrix products, the growth of repeated reads is only visible if
    the number of programs grows.
    """
    seen = sizes[1] if sizes else full_size
    tallest, needed = 0.0, False
    for small, guess, exact in zip(large, estimated, true, strict=False):
        if is_library(exact) or exact.programs <= 0:
            continue
        # As many programs for all rows as for a few: only the full size is conclusive.
        if exact.programs == small.programs > 1:
            return (), True
        too_few = exact.programs < 0.75 * small.programs * full_size / seen
        unlike = not 0.75 * exact.programs <= guess.programs <= 1.33 * exact.programs
        if too_few or (products and unlike):
            tallest, needed = max(tallest, full_size * small.programs / exact.programs), needed or too_few
    if tallest == 0:
        return None, False
    height = 1 << max(0, math.ceil(math.log2(tallest)))
    larger = (2 * height, 4 * height)
    return (larger if seen < larger[1] < full_size else ()), needed


def is_library(launch: Launch) -> bool:
    """True for an operator of PyTorch, False for a kernel of the candidate."""
    return launch.kernel.startswith(LIBRARY_PREFIX)


def size_needed(seen: TraceAnswer, true: TraceAnswer, kernels: Iterable[KernelSource], size: int) -> int | None:
    """Return a leading size at which every size branch goes as at the full size, or None if `size` is sufficient.

    `seen` and `true` are the same program, at `size` and at the full size.
    """
    sources = {kernel.number: kernel for kernel in kernels}
    pairs = zip(seen.launches, true.launches, strict=True)
    factors = [factor for small, large in pairs for factor in _factors(small, large, sources[small.kernel])]
    return int(size * max(factors)) + 1 if factors else None


def _factors(small: LaunchKernel, large: LaunchKernel, kernel: KernelSource) -> list[float]:
    """Return, for each comparison that would change its result, the factor by which the size must grow."""
    tree = kernel_tree(kernel.source)
    growing = growing_numbers(small, large)
    growing |= growing_counters(tree, growing)
    programs = (max(small.grid), max(large.grid))
    constants = {name: whole_number(value) for name, value in {**kernel.globals, **large.arguments}.items()}
    indices = names_of_programs(tree)
    found: list[float] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        ranges = [growing[name] for name in names & growing.keys()]
        if names & indices or calls_program(node):
            ranges.append(programs)
        bounds = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and type(part.value) is int]
        bounds += [bound for name in names - growing.keys() if (bound := constants.get(name)) is not None]
        found += [
            bound / before
            for before, after in ranges
            for bound in bounds
            if before <= bound <= after and before < after
        ]
    return found
