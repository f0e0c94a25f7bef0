"""Kernels along one dimension of a tensor: of size R, with `inner` elements between two of its neighbours.

Along the last dimension a program has one row, else a tile of ROWS x COLS. In both, `v` holds values, `mask` marks the
valid ones, and reductions are over axis 0, so that the lines of an operator are the same. `fits`: `v` holds the whole
dimension and is read once; otherwise a loop has accumulators, and a second loop writes the results.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw, Shape

_LARGEST_ROW = 16384
_LARGEST_TILE = 512
_MOST_ROWS = 2**14
_LONG_ROWS = 0.12
"""Share of the last dimensions that are rows far too long for one tile."""
LARGEST_GRID_Y = 65535
"""Programs that a launch may have in its second axis, by CUDA's table of compute capabilities."""


@dataclass(frozen=True)
class Along:
    """An operator along a dimension, as lines of a kernel."""

    pad: str
    """Value of `v` where it is not valid."""
    once: tuple[str, ...]
    """Lines of a kernel that has the whole dimension in `v`."""
    start: tuple[tuple[str, str], ...]
    """Accumulators of the loop and their first values."""
    step: tuple[str, ...]
    join: tuple[str, ...]
    """Lines after the loop."""
    result: str
    """Expression of the result, of what `once` or `join` give; of `v` too unless reduced."""
    reduced: bool = True
    """One result for the dimension; otherwise one for each element."""
    helper: str = ""
    """A function that the kernel calls."""


@dataclass(frozen=True)
class Tiles:
    """The way in which programs share a tensor."""

    last: bool
    fits: bool
    block: int
    """Elements of a row, or of a tile's rows, at a time; 0: all."""
    columns: int
    """Columns of a tile."""
    warps: int = 4

    @property
    def sizes(self) -> str:
        """Return the launch's keyword arguments."""
        block = str(self.block) if self.block else "triton.next_power_of_2(R)"
        sizes = f"BLOCK={block}" if self.last else f"ROWS={block}, COLS={self.columns}"
        return sizes if self.warps == 4 else f"{sizes}, num_warps={self.warps}"

    def kernel(self, name: str, along: Along, pointers: str = "x_ptr, out_ptr", scalars: str = "") -> str:
        """Return the kernel of an operator; it reads `x_ptr` and writes `out_ptr`. `scalars` begin with a comma."""
        sizes = "R, BLOCK: tl.constexpr" if self.last else "R, inner, ROWS: tl.constexpr, COLS: tl.constexpr"
        head = f"def {name}({pointers}{scalars}, {sizes}):\n"
        body = self._once(along) if self.fits else self._loop(along)
        return head + "\n".join(f"    {line}" for line in body)

    def launch(self, name: str, arguments: str, scalars: str = "") -> str:
        """Return the statement that launches the kernel for a contiguous `x`, whose `R` and `inner` are known."""
        if self.last:
            return f"{name}[(x.numel() // R,)]({arguments}{scalars}, R, {self.sizes})"
        grid = f"(x.numel() // (R * inner), triton.cdiv(inner, {self.columns}))"
        return f"{name}[{grid}]({arguments}{scalars}, R, inner, {self.sizes})"

    def host(self, dim: str) -> list[str]:
        """Return the statements that make `x` contiguous and define `R` and `inner`."""
        if self.last:
            return ["x = x.contiguous()", "R = x.shape[-1]"]
        return ["x = x.contiguous()", f"R, inner = x.shape[{dim}], x.stride({dim})"]

    def _once(self, along: Along) -> list[str]:
        lines = ["row = tl.program_id(0)", "cols = tl.arange(0, BLOCK)", "mask = cols < R"]
        place, out = "row * R + cols", "row"
        if not self.last:
            lines = ["o = tl.program_id(0)", "cols = tl.program_id(1) * COLS + tl.arange(0, COLS)"]
            lines += ["rows = tl.arange(0, ROWS)[:, None]", "mask = (rows < R) & (cols < inner)"]
            place, out = "(o * R + rows) * inner + cols", "o * inner + cols"
        lines += [f"v = tl.load(x_ptr + {place}, mask=mask, other={along.pad})", *along.once]
        if not along.reduced:
            return [*lines, f"tl.store(out_ptr + {place}, {along.result}, mask=mask)"]
        return [*lines, f"tl.store(out_ptr + {out}, {along.result}{'' if self.last else ', mask=cols < inner'})"]

    def _loop(self, along: Along) -> list[str]:
        shape = "(BLOCK,)" if self.last else "(ROWS, COLS)"
        lines = ["row = tl.program_id(0)"]
        if not self.last:
            lines = ["o = tl.program_id(0)", "cols = tl.program_id(1) * COLS + tl.arange(0, COLS)"]
        for name, value in along.start:
            kind = "tl.int32" if name == "index" else "tl.float32"
            lines.append(f"{name} = tl.full({shape}, {value}, {kind})")
        block, place = ("BLOCK", "row * R + cols") if self.last else ("ROWS", "(o * R + rows) * inner + cols")
        inside = ["cols = start + tl.arange(0, BLOCK)", "mask = cols < R"]
        if not self.last:
            inside = ["rows = start + tl.arange(0, ROWS)[:, None]", "mask = (rows < R) & (cols < inner)"]
        inside.append(f"v = tl.load(x_ptr + {place}, mask=mask, other={along.pad})")
        loop = f"for start in range(0, R, {block}):"
        lines += [loop, *(f"    {line}" for line in [*inside, *along.step]), *along.join]
        if along.reduced:
            out, mask = ("row", "") if self.last else ("o * inner + cols", ", mask=cols < inner")
            return [*lines, f"tl.store(out_ptr + {out}, {along.result}{mask})"]
        store = f"tl.store(out_ptr + {place}, {along.result}, mask=mask)"
        return [*lines, loop, *(f"    {line}" for line in [*inside, store])]


@dataclass(frozen=True)
class Dimension:
    """A tensor and one of its dimensions."""

    shape: Shape
    dim: int
    """From 0."""

    @property
    def is_last(self) -> bool:
        """True if neighbours along it are neighbours in memory."""
        return self.dim == self.shape.rank - 1

    @property
    def size(self) -> int:
        """Size of the dimension."""
        return self.shape.sizes[self.dim]

    def fast(self) -> Tiles:
        """Return the fast way: the whole dimension at once where it fits."""
        power = 1 << (self.size - 1).bit_length()
        if self.is_last:
            fits = self.size <= _LARGEST_ROW
            warps = 16 if power >= _LARGEST_ROW else 8 if power >= 4096 else 4
            return Tiles(True, fits, 0 if fits else 4096, 0, warps if fits else 8)
        fits = self.size <= _LARGEST_TILE
        columns = self._wide_enough(min(64, max(16, 8192 // power)) if fits else 32)
        return Tiles(False, fits, 0 if fits else 128, columns, 8 if fits and power * columns >= 8192 else 4)

    def slow(self, rng: Draw) -> Tiles:
        """Return a slow way: small blocks, read twice, and a tile's columns apart in memory."""
        if self.is_last:
            return Tiles(True, False, rng.pick(64, 128), 0)
        rows, columns = rng.pick(1, 8), rng.pick(1, 4, 8) if rng.chance(0.7) else 64
        return Tiles(False, False, rows, self._wide_enough(columns))

    def _wide_enough(self, columns: int) -> int:
        """Return the columns of a tile, doubled until the programs beside each other are a grid's second axis."""
        inner = math.prod(self.shape.sizes[self.dim + 1 :])
        while inner > columns * LARGEST_GRID_Y:
            columns *= 2
        return columns


def draw_dimension(rng: Draw, largest: int | None = None) -> Dimension:
    """Return a tensor of 2 to 5 dimensions and one of them, of at most `largest` elements."""
    while True:
        shape = rng.shape(rng.pick(2, 2, 2, 3, 3, 4, 4, 5))
        dimension = Dimension(shape, rng.pick(1, 1, 1, shape.rank - 1, shape.rank - 1, 0))
        # Many short rows: a program each would do too little.
        short = dimension.is_last and shape.elements // dimension.size > _MOST_ROWS
        if dimension.is_last and not short and rng.chance(_LONG_ROWS):
            dimension = Dimension(rng.long_rows(), 1)
        if not short and (largest is None or dimension.size <= largest):
            return dimension


def written_dim(rng: Draw, dimension: Dimension) -> str:
    """Return the dimension as a problem writes it: from 0, or the last as -1."""
    return "-1" if dimension.is_last and rng.chance(0.35) else str(dimension.dim)


def result_shape(dim: str, keep: bool) -> Sequence[str]:
    """Return the statements that define `shape`, that of a reduction's result."""
    return ["shape = list(x.shape)", f"shape[{dim}] = 1" if keep else f"del shape[{dim}]"]
