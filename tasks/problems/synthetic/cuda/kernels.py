"""CUDA C++ of one kernel: a program in a style, with its launch. Lines without indentation at module level.

`threads` is the number of threads of a block. Kernels that take four elements at a time need columns (of a product: the
inner size) that are a multiple of four, as those of the suite are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.problems.synthetic.cuda.program import Kind, Loop, Program, keeps_elements
from tasks.problems.synthetic.cuda.styles import CudaStyle

WARPS = 4
"""Warps of a block where each has a row: four rows of up to 3072 floats fit into 48 KB of shared memory."""
TILE = 16
"""Rows and columns of a product's tile."""
BLOCKS = 1056
"""Blocks of a grid-stride kernel: eight for each of an H100's 132 multiprocessors."""
_START = {"sum": "0.0f", "max": "-INFINITY"}
_ELEMENT = "blockIdx.x * blockDim.x + threadIdx.x"


@dataclass(frozen=True)
class Kernel:
    """One kernel in CUDA C++, and how it is launched."""

    body: list[str]
    grid: str
    block: str
    shared: str = ""
    """Bytes of dynamic shared memory."""
    values: bool = False
    """Takes `values_ptr`, a tensor of the input's shape to keep elements in."""
    helpers: tuple[str, ...] = ()
    """Functions that it calls: `block_sum`, `warp_max` …"""


def write_kernel(found: Program, style: CudaStyle, threads: int) -> Kernel:
    """Return the program's kernel in a style that suits it (`styles_of`); STEPWISE is not a kernel's but a module's."""
    if found.kind is Kind.PRODUCT:
        return _product(found, style, threads)
    if style is CudaStyle.NAIVE:
        return _row_by_thread(found, threads)
    return _flat(found, style, threads) if found.kind is Kind.FLAT else _row(found, style, threads)


def _flat(found: Program, style: CudaStyle, threads: int) -> Kernel:
    if style is CudaStyle.SHARED and found.transposes:
        return _transpose(found)
    count = "M * N"
    body = [*_position("i / N", "i % N", found), "float x = x_ptr[i];", *found.maps, _at(found, "i")]
    if style is CudaStyle.FLOAT4:
        count = "M * N / 4"
        each = [*_position("(4 * i + j) / N", "(4 * i + j) % N", found), "float x = v[j];", *found.maps]
        each.append("v[j] = x;" if _is_plain(found) else found.store)
        body = ["float4 packed = reinterpret_cast<const float4*>(x_ptr)[i];", *_unpacked(each)]
        if _is_plain(found):
            body.append(f"reinterpret_cast<float4*>(out_ptr)[i] = {_PACKED};")
    if style is CudaStyle.GRID_STRIDE:
        loop = f"for (int i = {_ELEMENT}; i < {count}; i += gridDim.x * blockDim.x) {{"
        return Kernel(_block(loop, body), str(BLOCKS), str(threads))
    return Kernel(
        [f"int i = {_ELEMENT};", f"if (i >= {count}) return;", *body],
        _blocks(count, threads),
        str(threads),
    )


def _transpose(found: Program) -> Kernel:
    """A tile of shared memory with a column to spare, so that neither side conflicts in its banks."""
    tile = "tile[threadIdx.y][threadIdx.x]"
    read = _block("if (row < M && col < N) {", ["float x = x_ptr[row * N + col];", *found.maps, f"{tile} = x;"])
    write = _block("if (row < M && col < N) {", ["float x = tile[threadIdx.x][threadIdx.y];", found.store])
    body = [
        "__shared__ float tile[32][33];",
        "int row = blockIdx.x * 32 + threadIdx.y, col = blockIdx.y * 32 + threadIdx.x;",
        *read,
        "__syncthreads();",
        "row = blockIdx.x * 32 + threadIdx.x;",
        "col = blockIdx.y * 32 + threadIdx.y;",
        *write,
    ]
    return Kernel(body, "dim3((M + 31) / 32, (N + 31) / 32)", "dim3(32, 32)")


def _row_by_thread(found: Program, threads: int) -> Kernel:
    loops = _loops(found, "for (int col = 0; col < N; col++) {", "values_ptr[row * N + col]", None, "")
    body = [f"int row = {_ELEMENT};", "if (row >= M) return;", *loops]
    return Kernel(body, _blocks("M", threads), str(threads), values=found.keeps_values)


def _row(found: Program, style: CudaStyle, threads: int) -> Kernel:
    if style is CudaStyle.WARP:
        loops = _loops(
            found, "for (int col = threadIdx.x; col < N; col += 32) {", "values[threadIdx.y * N + col]", "warp"
        )
        start = [f"int row = blockIdx.x * {WARPS} + threadIdx.y;", "if (row >= M) return;"]
        kept = ["extern __shared__ float values[];"] if found.keeps_values else []
        shared = f"{WARPS} * N * sizeof(float)" if found.keeps_values else ""
        grid, block = f"(M + {WARPS - 1}) / {WARPS}", f"dim3(32, {WARPS})"
        return Kernel([*kept, *start, *loops], grid, block, shared, helpers=_helpers(found, "warp"))
    loop = "for (int col = threadIdx.x; col < N; col += blockDim.x) {"
    helpers, kept, shared = _helpers(found, "block"), list[str](), ""
    if style is CudaStyle.COALESCED:
        loops = _loops(found, loop, "values_ptr[row * N + col]", "block")
    elif style is CudaStyle.FLOAT4:
        loops = _vector_loops(found)
        kept = ["extern __shared__ float4 values[];"]
    else:
        loops = _loops(found, loop, "values[col]", "block")
        kept = ["extern __shared__ float values[];"]
    if style is not CudaStyle.COALESCED and found.keeps_values:
        shared = "N * sizeof(float)"
    kept = kept if found.keeps_values else []
    values = style is CudaStyle.COALESCED and found.keeps_values
    if style is CudaStyle.GRID_STRIDE:
        rows = _block("for (int row = blockIdx.x; row < M; row += gridDim.x) {", loops)
        return Kernel([*kept, *rows], str(BLOCKS), str(threads), shared, values, helpers)
    return Kernel([*kept, "int row = blockIdx.x;", *loops], "M", str(threads), shared, values, helpers)


def _loops(
    found: Program, loop: str, value: str, reducer: str | None, only: str = "if (threadIdx.x == 0) "
) -> list[str]:
    """All loops of a row. `value`: where an element is kept; `reducer`: who adds up what the threads found."""
    lines: list[str] = []
    for place, part in enumerate(found.loops):
        lines += _started(part)
        body = [f"float x = {value if place else 'x_ptr[row * N + col]'};", *part.maps]
        if keeps_elements(found.loops, place):
            body.append(f"{value} = x;")
        body.append(_accumulated(part) if part.reduce else found.store)
        lines += [*_block(loop, body), *_finished(part, reducer)]
    return [*lines, *_written(found, only)]


def _vector_loops(found: Program) -> list[str]:
    """All loops of a row, four elements at a time; the row is kept as float4."""
    lines: list[str] = []
    for place, part in enumerate(found.loops):
        lines += _started(part)
        source = "values[i]" if place else "reinterpret_cast<const float4*>(x_ptr + row * N)[i]"
        position = ["int col = 4 * i + j;"] if _needs_column(part, found) else []
        keeps, is_plain = keeps_elements(found.loops, place), part.reduce is None and _is_plain(found)
        each = [*position, "float x = v[j];", *part.maps]
        if keeps or is_plain:
            each.append("v[j] = x;")
        if part.reduce:
            each.append(_accumulated(part))
        elif not is_plain:
            each.append(found.store)
        body = [f"float4 packed = {source};", *_unpacked(each)]
        if keeps:
            body.append(f"values[i] = {_PACKED};")
        if is_plain:
            body.append(f"reinterpret_cast<float4*>(out_ptr + row * N)[i] = {_PACKED};")
        lines += _block("for (int i = threadIdx.x; i < N / 4; i += blockDim.x) {", body)
        lines += _finished(part, "block")
    return [*lines, *_written(found, "if (threadIdx.x == 0) ")]


def _product(found: Program, style: CudaStyle, threads: int) -> Kernel:
    end = [*found.maps, found.store]
    if style is CudaStyle.SHARED:
        return _tiled_product(found, end)
    k = "for (int k = 0; k < K; k++) {"
    step = [f"x += x_ptr[row * K + k] * weight_ptr[{found.weight.format(k='k')}];"]
    if style is CudaStyle.FLOAT4:
        k = "for (int k = 0; k < K; k += 4) {"
        places = ["k", *(f"(k + {j})" for j in (1, 2, 3))]
        step = ["float4 a = *reinterpret_cast<const float4*>(x_ptr + row * K + k);"]
        step += [f"x += a.{c} * weight_ptr[{found.weight.format(k=p)}];" for c, p in zip("xyzw", places, strict=True)]
    if style is CudaStyle.WARP:
        k = "for (int k = threadIdx.x; k < K; k += 32) {"
    sums = ["float x = 0.0f;", *_block(k, step)]
    where = ["int row = i / N, col = i % N;"]
    if style is CudaStyle.NAIVE:
        body = [f"int row = {_ELEMENT}, col = blockIdx.y;", "if (row >= M) return;", *sums, *end]
        return Kernel(body, f"dim3({_blocks('M', threads)}, N)", str(threads))
    if style is CudaStyle.WARP:
        start = [f"int i = blockIdx.x * {WARPS} + threadIdx.y;", "if (i >= M * N) return;"]
        body = [*start, *where, *sums, "x = warp_sum(x);", "if (threadIdx.x != 0) return;", *end]
        return Kernel(body, f"(M * N + {WARPS - 1}) / {WARPS}", f"dim3(32, {WARPS})", helpers=("warp_sum",))
    if style is CudaStyle.GRID_STRIDE:
        loop = f"for (int i = {_ELEMENT}; i < M * N; i += gridDim.x * blockDim.x) {{"
        return Kernel(_block(loop, [*where, *sums, *end]), str(BLOCKS), str(threads))
    body = [f"int i = {_ELEMENT};", "if (i >= M * N) return;", *where, *sums, *end]
    return Kernel(body, _blocks("M * N", threads), str(threads))


def _tiled_product(found: Program, end: Sequence[str]) -> Kernel:
    inner = [
        "a[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < K ? x_ptr[row * K + k + threadIdx.x] : 0.0f;",
        "b[threadIdx.y][threadIdx.x] = col < N && k + threadIdx.y < K ? "
        f"weight_ptr[{found.weight.format(k='(k + threadIdx.y)')}] : 0.0f;",
        "__syncthreads();",
        f"for (int j = 0; j < {TILE}; j++) x += a[threadIdx.y][j] * b[j][threadIdx.x];",
        "__syncthreads();",
    ]
    body = [
        f"__shared__ float a[{TILE}][{TILE}], b[{TILE}][{TILE}];",
        f"int row = blockIdx.x * {TILE} + threadIdx.y, col = blockIdx.y * {TILE} + threadIdx.x;",
        "float x = 0.0f;",
        *_block(f"for (int k = 0; k < K; k += {TILE}) {{", inner),
        "if (row >= M || col >= N) return;",
        *end,
    ]
    tiles = ", ".join(f"({size} + {TILE - 1}) / {TILE}" for size in "MN")
    return Kernel(body, f"dim3({tiles})", f"dim3({TILE}, {TILE})")


_PACKED = "make_float4(v[0], v[1], v[2], v[3])"


def _unpacked(each: Sequence[str]) -> list[str]:
    """Statements on each of four packed elements, `v[j]`."""
    loop = _block("for (int j = 0; j < 4; j++) {", each)
    return ["float v[4] = {packed.x, packed.y, packed.z, packed.w};", "#pragma unroll", *loop]


def _block(head: str, body: Sequence[str]) -> list[str]:
    return [head, *(line if line.startswith("#") else f"    {line}" for line in body), "}"]


def _blocks(count: str, threads: int) -> str:
    return f"({count} + {threads - 1}) / {threads}"


def _position(row: str, col: str, found: Program) -> list[str]:
    return [f"int row = {row}, col = {col};"] if found.needs_position else []


def _is_plain(found: Program) -> bool:
    return found.store.startswith("out_ptr[row * N + col]")


def _at(found: Program, index: str) -> str:
    return f"out_ptr[{index}] = x;" if _is_plain(found) else found.store


def _needs_column(part: Loop, found: Program) -> bool:
    return any("col" in line for line in part.maps) or (part.reduce is None and not _is_plain(found))


def _started(part: Loop) -> list[str]:
    return [f"float {part.name} = {_START[part.reduce.kind]};"] if part.reduce else []


def _accumulated(part: Loop) -> str:
    assert part.reduce is not None
    if part.reduce.kind == "sum":
        return f"{part.name} += {part.reduce.expression};"
    return f"{part.name} = fmaxf({part.name}, {part.reduce.expression});"


def _finished(part: Loop, reducer: str | None) -> list[str]:
    if part.reduce is None or reducer is None:
        return []
    return [f"{part.name} = {reducer}_{part.reduce.kind}({part.name});"]


def _written(found: Program, only: str) -> list[str]:
    return [] if found.result is None else [f"{only}out_ptr[row] = {found.result};"]


def _helpers(found: Program, reducer: str) -> tuple[str, ...]:
    return tuple(sorted({f"{reducer}_{part.reduce.kind}" for part in found.loops if part.reduce}))
