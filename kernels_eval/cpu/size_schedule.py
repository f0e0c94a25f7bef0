"""At which leading sizes a candidate is run: two small ones where the problem allows, larger ones where those said too little."""

import math
from collections.abc import Sequence

from kernels_eval.cost.launch import Launch
from kernels_eval.reference.reference import MIN_REDUCED, MIN_REDUCED_LONG, Reference

Sizes = tuple[int, int] | tuple[()]
"""Two reduced leading sizes, or none: the true size."""
LIBRARY_PREFIX = "aten."
_SIZES = (
    (MIN_REDUCED_LONG, 2 * MIN_REDUCED_LONG),
    (MIN_REDUCED // 4, MIN_REDUCED // 2),
    (MIN_REDUCED, 2 * MIN_REDUCED),
    (8 * MIN_REDUCED, 16 * MIN_REDUCED),
)
"""Pairs of leading sizes. The first is for long rows, the second for references without a matrix product (interpreting takes time in
proportion to the programs); a later one for kernels whose tiles are taller than the earlier ones have rows."""
_TOO_SMALL = frozenset({"out_of_bounds", "empty_grid"})
"""Failures at the first pair that a kernel may owe to tiles taller than it."""
_NOT_SQUARE = _TOO_SMALL | {"wrong_values", "wrong_shape", "exception"}
"""Failures that a kernel may owe to a matrix that is square in the problem, and was cut."""


def first_sizes(reference: Reference) -> Sizes:
    """Return the sizes to begin with."""
    if not reference.can_be_reduced:
        return ()
    sizes = _SIZES[0] if reference.has_long_rows else _SIZES[2] if reference.has_products else _SIZES[1]
    return sizes if sizes[1] < (reference.full_size or 0) else ()


def larger_sizes(
    reference: Reference, sizes: Sizes, error_category: str | None, follow_up: Sizes | None
) -> Sizes | None:
    """Return the sizes to judge again at, or None: the verdict stands.

    A kernel may have failed for want of rows; one that was found right comes with its `follow_up`.
    """
    if not sizes:
        return None
    if reference.has_square_input and error_category in _NOT_SQUARE:
        return ()
    if error_category not in _TOO_SMALL:
        return follow_up
    larger = [pair for pair in _SIZES if sizes[1] < pair[1] < (reference.full_size or 0)]
    return larger[0] if larger else None


def size_of(sizes: Sizes, trial: int) -> int | None:
    """Reduced leading sizes alternate between trials; None: the true size."""
    return sizes[trial % 2] if sizes else None


def follow_up(
    large: Sequence[Launch],
    estimated: Sequence[Launch],
    true: Sequence[Launch],
    sizes: Sizes,
    full_size: int,
    products: bool,
) -> tuple[Sizes | None, bool]:
    """Return larger sizes to judge at where the programs at the true size are not those that the small sizes suggest.

    Also, whether that is needed to trust the verdict; else it only makes the estimated times better.

    Too few at the true size: the tile is taller than the small sizes (then a size of several tiles tells more), or the grid
    does not grow with the rows, and only the true size can tell a persistent kernel from one that leaves rows out. With
    matrix products, what each program reads again is only seen to grow where programs do.
    """
    seen = sizes[1] if sizes else full_size
    tallest, needed = 0.0, False
    for small, guess, exact in zip(large, estimated, true, strict=False):
        if is_library(exact) or exact.programs <= 0:
            continue
        if (
            exact.programs == small.programs > 1
        ):  # as many programs for all the rows as for a few: only all of them will tell
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
    """True for an operator of PyTorch, false for a kernel of the candidate."""
    return launch.kernel.startswith(LIBRARY_PREFIX)
