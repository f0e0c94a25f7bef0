"""Kernels for the calibration of the estimate: one property varied at a time. Imports neither torch nor triton.

A case is a problem in KernelBench's format and a kernel for it, as for the judge. A kernel occurs at several sizes. The
families cover arithmetic intensity, single functions, reductions, normalisations, matrix products by type and tile,
layouts, register pressure, occupancy and the number of launches (`tools/estimate_case_sources.py` has their
sources).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import estimate_case_shapes as shapes
import estimate_case_sources as sources

from kernels_eval.redteam.suite import load_cases
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import Shape, Style, kernel_source, problem_source

Rows = tuple[tuple[int, int], ...]
_LARGE: Rows = ((2048, 1024), (16384, 1024))
_ALL: Rows = ((512, 1024), *_LARGE)


@dataclass(frozen=True)
class Case:
    """A kernel at one size."""

    family: str
    kernel_name: str
    """The same for all sizes of a kernel."""
    size: str
    problem: str
    kernel: str

    @property
    def name(self) -> str:
        """Name of the kernel and its size."""
        return f"{self.family}/{self.kernel_name}/{self.size}"


def all_cases() -> list[Case]:
    """Return every case, the families in turn: a run that is cut short has some of each."""
    families = [
        list(cases)
        for cases in (
            _functions(), _intensities(), _integers(), _blocks(), _row_kernels(), _products(), _layouts(),
            _occupancies(), _launches(), _suite(), _honest(),
        )
    ]  # fmt: skip
    longest = max(map(len, families))
    placed = [(place * longest // len(cases), case) for cases in families for place, case in enumerate(cases)]
    return [case for _, case in sorted(placed, key=lambda item: item[0])]


def _functions() -> Iterator[Case]:
    """Chains of one function of the language."""
    for name, (triton_line, torch_line) in sources.FUNCTIONS.items():
        for repeats in (1, 8, 64):
            kernel = sources.elementwise_kernel(triton_line, repeats)
            for rows, columns in _LARGE if repeats < 64 else _LARGE[:1]:
                problem = sources.elementwise_problem(torch_line, repeats, rows, columns)
                yield Case("function", f"{name} x {repeats}", f"{rows}x{columns}", problem, kernel)


def _intensities() -> Iterator[Case]:
    """Chains of fused multiply-adds, by type and length."""
    for dtype in ("float32", "float16", "bfloat16"):
        for repeats in (1, 4, 32, 256):
            kernel = sources.elementwise_kernel("x * 0.5 + y", repeats)
            for rows, columns in _ALL:
                problem = sources.elementwise_problem("x * 0.5 + y", repeats, rows, columns, dtype)
                yield Case("intensity", f"fma x {repeats} {dtype}", f"{rows}x{columns}", problem, kernel)


def _integers() -> Iterator[Case]:
    for name, (triton_line, torch_line) in sources.INTEGER_FUNCTIONS.items():
        for repeats in (1, 16, 128):
            kernel = sources.elementwise_kernel(triton_line, repeats)
            problem = sources.elementwise_problem(torch_line, repeats, 4096, 1024, "int32")
            yield Case("integer", f"{name} x {repeats}", "4096x1024", problem, kernel)


def _blocks() -> Iterator[Case]:
    """Block sizes and numbers of warps of one kernel: programs without work enough, and threads without."""
    for block, warps in ((32, 1), (64, 4), (128, 4), (256, 4), (512, 4), (2048, 4), (4096, 4), (8192, 4), (8192, 16),
                         (16384, 4), (16384, 16), (32768, 8), (32768, 32)):  # fmt: skip
        kernel = sources.elementwise_kernel("tl.sigmoid(x) * y", 1, block, warps)
        for rows, columns in _ALL:
            problem = sources.elementwise_problem("torch.sigmoid(x) * y", 1, rows, columns)
            yield Case("block", f"block {block} warps {warps}", f"{rows}x{columns}", problem, kernel)


def _row_kernels() -> Iterator[Case]:
    """Reductions and normalisations: a row a program, several rows, columns in steps; several numbers of warps."""
    for name, (triton_body, torch_line, output) in sources.ROW_BODIES.items():
        for warps in (1, 4, 16):
            kernel = sources.row_kernel(triton_body, output, warps)
            for rows, columns in ((8192, 256), (4096, 4096), (512, 16384)):
                if columns // warps <= 4096:
                    problem = sources.row_problem(torch_line, rows, columns)
                    yield Case("row", f"{name} warps {warps}", f"{rows}x{columns}", problem, kernel)
        if output != "same":
            continue
        kernel = sources.tile_kernel(triton_body, 8, 4)
        for rows, columns in ((16384, 64), (16384, 512)):
            problem = sources.row_problem(torch_line, rows, columns)
            yield Case("row", f"{name} tile", f"{rows}x{columns}", problem, kernel)
    for name, (triton_source, torch_line) in sources.LOOP_KERNELS.items():
        for block in (256, 1024, 4096):
            for rows, columns in ((1024, 8192), (128, 65536)):
                problem = sources.row_problem(torch_line, rows, columns)
                kernel = triton_source.replace("@BLOCK@", str(block))
                yield Case("row", f"{name} block {block}", f"{rows}x{columns}", problem, kernel)


def _products() -> Iterator[Case]:
    """Matrix products by type, tile, number of warps and stages."""
    for dtype, precision in (("float16", "tf32"), ("bfloat16", "tf32"), ("float32", "tf32"), ("float32", "ieee")):
        for tile in shapes.TILES if dtype != "bfloat16" else shapes.TILES[3:5]:
            kernel = shapes.product_kernel(precision, *tile)
            for m, k, n in ((1024, 512, 768), (4096, 1024, 2048)):
                problem = shapes.product_problem(dtype, m, k, n)
                name = f"{dtype} {precision} {'x'.join(map(str, tile))}"
                yield Case("product", name, f"{m}x{k}x{n}", problem, kernel)


def _layouts() -> Iterator[Case]:
    """Transposes, strided and gathered access, sums over the other dimension, stencils, atomic additions."""
    for name, (kernel, torch_line, extra) in shapes.LAYOUTS.items():
        for rows, columns in ((2048, 512), (8192, 2048)):
            problem = shapes.layout_problem(torch_line, rows, columns, extra)
            yield Case("layout", name, f"{rows}x{columns}", problem, kernel)


def _occupancies() -> Iterator[Case]:
    """A fixed number of programs that share the rows."""
    for programs in (1, 8, 32, 66, 132, 264, 528, 2112):
        for rows in (128, 2112):
            size, problem = f"{rows}x4096", sources.row_problem("x + 1.0", rows, 4096)
            kernel = shapes.persistent_kernel("x = x + 1.0", programs)
            yield Case("occupancy", f"light by {programs} programs", size, problem, kernel)
            kernel = shapes.persistent_kernel(shapes.HEAVY_TRITON, programs)
            yield Case("occupancy", f"heavy by {programs} programs", size, shapes.heavy_problem(rows, 4096), kernel)


def _launches() -> Iterator[Case]:
    """The same work in a number of launches."""
    for count in (2, 4, 8, 16, 32):
        for name, (kernel, line) in shapes.launch_kernels(count).items():
            for rows, columns in ((256, 256), (2048, 1024), (16384, 1024)):
                problem = sources.row_problem(line, rows, columns)
                yield Case("launches", f"{name} x {count}", f"{rows}x{columns}", problem, kernel)


def _suite() -> Iterator[Case]:
    for key, inner in shapes.COMPOSITIONS:
        for style in ("fused", "stepwise", "small_blocks", "extra_passes"):
            if style == "stepwise" and ">" not in key:
                continue
            composition = parse_composition(key)
            kernel = kernel_source(composition, Style(style))
            for rows, columns in ((4096, 96), (16384, 48)) if inner else ((8192, 128), (16384, 1024)):
                problem = problem_source(composition, Shape(rows=rows, columns=columns, inner=inner))
                yield Case("suite", f"{key} {style}", f"{rows}x{columns}", problem, kernel)


def _honest() -> Iterator[Case]:
    """Honest kernels of the red team that need no other settings."""
    for case in load_cases():
        if case.is_honest and not case.settings:
            yield Case("honest", case.path.stem, "own", case.problem, case.kernel)
