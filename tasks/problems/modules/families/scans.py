"""Cumulative sums and products: forward, reverse, exclusive, masked.

fast: the dimension is one tile where it fits; longer rows are scanned block by block with a carry. Slower: short rows
so too, with small blocks; narrow tiles; or far too many warps for a row.
"""

import math
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw, Shape
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.slow_forms import with_warps
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text
from tasks.problems.modules.tiles import LARGEST_GRID_Y, Dimension, written_dim

_LONGEST_ROW = 8192
_LONGEST_TILE = 512
_SMALL_BLOCK = 128
_NARROW = 4
"""Columns of a narrow tile."""


@dataclass(frozen=True)
class Scan:
    """A scan. In a form `{d}` stands for the dimension."""

    name: str
    title: str
    forms: tuple[str, ...]
    value: str = "v"
    """The scanned value."""
    result: str = "tl.cumsum({v}, 0)"
    made: str = "torch.randn({})"
    masked: bool = False
    carries: bool = True
    """A row may be scanned block by block from its beginning, with a sum as carry."""


SCANS = (
    Scan("cumsum", "a cumulative sum", ("torch.cumsum(x, dim={d})", "x.cumsum(dim={d})")),
    Scan("scaled_cumsum", "a scaled cumulative sum", ("torch.cumsum(x * 0.5, dim={d})",), "v * 0.5"),
    Scan("cumsum_of_squares", "a cumulative sum of squares", ("torch.cumsum(x * x, dim={d})",), "v * v"),
    Scan(
        "reverse_cumsum",
        "a reverse cumulative sum",
        ("torch.cumsum(x.flip({d}), dim={d}).flip({d})", "torch.flip(torch.cumsum(torch.flip(x, [{d}]), {d}), [{d}])"),
        result="tl.sum({v}, 0) - tl.cumsum({v}, 0) + {v}",
        carries=False,
    ),
    Scan(
        "exclusive_cumsum",
        "an exclusive cumulative sum",
        ("torch.cumsum(x, dim={d}) - x",),
        result="tl.cumsum({v}, 0) - {v}",
    ),
    Scan(
        "masked_cumsum",
        "a masked cumulative sum",
        ("torch.cumsum(x * mask, dim={d})", "(x * mask).cumsum(dim={d})"),
        masked=True,
    ),
    Scan(
        "cumprod",
        "a cumulative product",
        ("torch.cumprod(x, dim={d})", "x.cumprod(dim={d})"),
        result="tl.cumprod({v}, 0)",
        made="torch.rand({}) + 0.5",
        carries=False,
    ),
)


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a scan along a dimension."""
    scan = rng.choice(rng.unless(SCANS, unseen, lambda item: item.name))
    dimension = _dimension(rng, scan)
    given = rng.chance(0.65)
    dim = written_dim(rng, dimension)
    value = "self.dim" if given else dim
    shape = dimension.shape
    inputs = [Input("x", scan.made.format(", ".join(shape.names)))]
    if scan.masked:
        made = rng.pick("torch.randint(0, 2, ({})).bool()", "torch.rand({}) > 0.5").format(", ".join(shape.names))
        inputs.append(Input("mask", made, meaning="Boolean mask of the same shape."))
    module = Module(
        title=f"{scan.title} along a given dimension" if given else f"{scan.title} along dimension {dim}",
        inputs=tuple(inputs),
        forward=(f"return {rng.choice(scan.forms).format(d=value)}",),
        arguments=(Argument("dim", dim, "int", "The dimension to scan along."),) if given else (),
        init=("self.dim = dim",) if given else (),
        constants=shape.constants,
    )
    return ModulePair(
        family=FAMILY.name,
        operator=scan.name,
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=_kernel_source(module, scan, dimension, value),
        style="fast",
        slower=_slower(module, scan, dimension, value),
    )


def _dimension(rng: Draw, scan: Scan) -> Dimension:
    """Return rows, or tiles that fit; a long row only where a carry is possible."""
    while True:
        if scan.carries and rng.chance(0.2):
            rows, length = rng.pick(1, 4, 16, 64, 128), rng.pick(16384, 30000, 65536)
            shape = Shape(("batch_size", "length"), (rows, length))
            return Dimension(shape, 1)
        shape = rng.shape(rng.pick(2, 2, 2, 3, 3, 4), most=2**23)
        dimension = Dimension(shape, rng.pick(1, 1, shape.rank - 1, 0))
        longest = _LONGEST_ROW if dimension.is_last else _LONGEST_TILE
        if scan.name == "cumprod":
            longest = min(longest, 300)
        short = dimension.is_last and shape.elements // dimension.size > 2**14
        if dimension.size <= longest and not short:
            return dimension


def _kernel_source(module: Module, scan: Scan, dimension: Dimension, dim: str) -> str:
    if not dimension.is_last:
        return _tile(module, scan, dimension, dim)
    return _row(module, scan) if dimension.size <= _LONGEST_ROW else _carry(module, scan)


def _slower(module: Module, scan: Scan, dimension: Dimension, dim: str) -> tuple[str, ...]:
    """Return slower kernels of rows or tiles that fit; a long row's have smaller blocks (slow_forms)."""
    if not dimension.is_last:
        inner = math.prod(dimension.shape.sizes[dimension.dim + 1 :])
        return (_tile(module, scan, dimension, dim, _NARROW),) if inner <= _NARROW * LARGEST_GRID_Y else ()
    if dimension.size > _LONGEST_ROW:
        return ()
    if scan.carries and dimension.size >= 4 * _SMALL_BLOCK:
        return (_carry(module, scan, f"BLOCK={_SMALL_BLOCK}"),)
    return (with_warps(_row(module, scan), 32),)


def _pointers(scan: Scan) -> tuple[str, str]:
    return ("x_ptr, mask_ptr, out_ptr", "x, mask, out") if scan.masked else ("x_ptr, out_ptr", "x, out")


def _values(scan: Scan) -> str:
    """Return the lines that load and prepare the values `v`; 4 spaces before each."""
    text = "    v = tl.load(x_ptr + offsets, mask=valid, other=0.0)\n"
    if scan.masked:
        text += "    keep = tl.load(mask_ptr + offsets, mask=valid, other=0)\n    v = tl.where(keep != 0, v, 0.0)\n"
    return text + (f"    v = {scan.value}\n" if scan.value != "v" else "")


def _contiguous(scan: Scan) -> list[str]:
    return ["x, mask = x.contiguous(), mask.contiguous()" if scan.masked else "x = x.contiguous()"]


def _row(module: Module, scan: Scan) -> str:
    pointers, given = _pointers(scan)
    kernel = (
        f"def scan_kernel({pointers}, R, BLOCK: tl.constexpr):\n"
        "    cols = tl.arange(0, BLOCK)\n    valid = cols < R\n    offsets = tl.program_id(0) * R + cols\n"
        f"{_values(scan)}    tl.store(out_ptr + offsets, {scan.result.format(v='v')}, mask=valid)"
    )
    host = [*_contiguous(scan), "R = x.shape[-1]", "out = torch.empty_like(x)"]
    host += [f"scan_kernel[(x.numel() // R,)]({given}, R, BLOCK=triton.next_power_of_2(R))", "return out"]
    return kernel_text([kernel], module, host)


def _carry(module: Module, scan: Scan, sizes: str = "BLOCK=4096, num_warps=8") -> str:
    pointers, given = _pointers(scan)
    body = (
        "    cols = start + tl.arange(0, BLOCK)\n    valid = cols < R\n    offsets = tl.program_id(0) * R + cols\n"
        f"{_values(scan)}    tl.store(out_ptr + offsets, carry + {scan.result.format(v='v')}, mask=valid)\n"
        "    carry += tl.sum(v, 0)"
    )
    kernel = (
        f"def scan_kernel({pointers}, R, BLOCK: tl.constexpr):\n"
        "    carry = 0.0\n    for start in range(0, R, BLOCK):\n    " + body.replace("\n", "\n    ")
    )
    host = [*_contiguous(scan), "R = x.shape[-1]", "out = torch.empty_like(x)"]
    host += [f"scan_kernel[(x.numel() // R,)]({given}, R, {sizes})", "return out"]
    return kernel_text([kernel], module, host)


def _tile(module: Module, scan: Scan, dimension: Dimension, dim: str, columns: int = 0) -> str:
    pointers, given = _pointers(scan)
    columns = columns or min(64, max(16, 8192 // (1 << (dimension.size - 1).bit_length())))
    kernel = (
        f"def scan_kernel({pointers}, R, inner, ROWS: tl.constexpr, COLS: tl.constexpr):\n"
        "    rows = tl.arange(0, ROWS)[:, None]\n    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)\n"
        "    valid = (rows < R) & (cols < inner)\n    offsets = (tl.program_id(0) * R + rows) * inner + cols\n"
        f"{_values(scan)}    tl.store(out_ptr + offsets, {scan.result.format(v='v')}, mask=valid)"
    )
    grid = f"(x.numel() // (R * inner), triton.cdiv(inner, {columns}))"
    host = [*_contiguous(scan), f"R, inner = x.shape[{dim}], x.stride({dim})", "out = torch.empty_like(x)"]
    host += [f"scan_kernel[{grid}]({given}, R, inner, ROWS=triton.next_power_of_2(R), COLS={columns})", "return out"]
    return kernel_text([kernel], module, host)


FAMILY = Family("scans", tuple(scan.name for scan in SCANS), draw)
