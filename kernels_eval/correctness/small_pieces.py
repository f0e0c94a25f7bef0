"""Worker process: finds the pieces of an output that are far below the rest, each of which is held to its own size.

Where results of unlike sizes lie side by side, any value would be close to the small ones. A piece is a sixteenth of
the elements in their order, or one index of a small dimension: `stack(..., dim=-1)` lays results between each other.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from kernels_eval.correctness.magnitudes import NARROW_BLOCK, SMALLEST_SCALE, own_error, scale_of

SMALL = 1 / 32
"""Share of an output's scale below which a piece is held to its own."""
_PIECES = 16
"""Pieces in the order of the elements, and the largest size of a small dimension."""
_LEAST = 16
"""Elements of a piece."""

Piece = Callable[[torch.Tensor], torch.Tensor]
"""Takes a flat tensor, returns a view of the piece."""


def has_small_piece(rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return for each row, (rows, elements), whether a piece of it may be far below its mean magnitude.

    `shape`: of an output, whose elements a row has.
    """
    found = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    length = rows.shape[1] // _PIECES
    if length >= _LEAST:
        found |= _has_small(rows[:, : length * _PIECES].reshape(len(rows), 1, _PIECES, length))
    for before, size, after in _small_dimensions(shape):
        found |= _has_small(rows.reshape(len(rows), before, size, after))
    return found


def small_pieces(flat: tuple[torch.Tensor, ...], shape: Sequence[int], scale: float) -> list[tuple[Piece, float]]:
    """Return the pieces of an output that are far below its scale, each with a scale of its own.

    `flat`: flat answers, oracle's results and native ones. A piece that is lost in the reference's own rounding is
    none.
    """
    if not bool(has_small_piece(flat[1][None], shape)):
        return []
    least = torch.finfo(flat[0].dtype).smallest_normal
    found: list[tuple[Piece, float]] = []
    for piece in _pieces(flat[1].numel(), shape):
        exact, near = piece(flat[1]).reshape(-1), piece(flat[2]).reshape(-1)
        own = scale_of(exact)[0]
        if SMALLEST_SCALE < own < SMALL * scale and own_error(exact, near) <= own:
            found.append((piece, max(own / SMALL, least)))
    return found


def _small_dimensions(shape: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the elements before, the size, and the elements after each small dimension that is no run of sixteenths."""
    for place, size in enumerate(shape):
        before, after = math.prod(shape[:place]), math.prod(shape[place + 1 :])
        is_small = 1 < size <= _PIECES and before * after >= _LEAST
        if is_small and (before > 1 or _PIECES % size):
            yield before, size, after


def _has_small(pieces: torch.Tensor) -> torch.Tensor:
    """Return for each row, (rows, before, pieces, after), whether a piece is far below the mean of all."""
    rows, _, count, after = pieces.shape
    sizes = torch.zeros(rows, count, dtype=torch.float64, device=pieces.device)
    for part in pieces.split(max(1, NARROW_BLOCK // (rows * count * after)), dim=1):
        for block in part.split(max(1, NARROW_BLOCK // (rows * count * part.shape[1])), dim=3):
            sizes += torch.linalg.vector_norm(block, 1, dim=(1, 3), dtype=torch.float64)
    return ((sizes > 0) & (sizes < SMALL * sizes.mean(dim=1, keepdim=True))).any(dim=1)


def _pieces(count: int, shape: Sequence[int]) -> Iterator[Piece]:
    length = -(-count // _PIECES)
    for start in range(0, count, length):
        yield lambda values, start=start: values[start : start + length]
    for before, size, after in _small_dimensions(shape):
        form = before, size, after
        for index in range(size):
            yield lambda values, form=form, index=index: values.reshape(form)[:, index]
