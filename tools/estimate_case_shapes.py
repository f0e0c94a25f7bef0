"""More sources of kernels that calibrate the estimate: matrix products, layouts, occupancy, launches."""

from estimate_case_sources import HEADER, TRITON_HEADER

TILES = (
    (16, 16, 16, 4, 2), (32, 32, 32, 4, 2), (64, 64, 32, 4, 3), (128, 64, 32, 4, 3), (128, 128, 32, 8, 3),
    (128, 256, 64, 8, 3), (64, 128, 64, 4, 4), (128, 128, 32, 2, 2), (256, 128, 32, 4, 3), (64, 16, 128, 4, 2),
)  # fmt: skip
"""Rows, columns and depth of the tile, warps, stages. Some spill, some leave threads without work."""


def product_problem(dtype: str, m: int, k: int, n: int) -> str:
    """Return a matrix product."""
    return f"""{HEADER}
M, K, N = {m}, {k}, {n}
class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)
def get_inputs():
    return [torch.randn(M, K, dtype=torch.{dtype}), torch.randn(K, N, dtype=torch.{dtype})]
def get_init_inputs():
    return []
"""


def product_kernel(precision: str, rows: int, columns: int, depth: int, warps: int, stages: int) -> str:
    """Return a tiled matrix product. `precision` of float32: `tf32`, Triton's default, or `ieee`."""
    asked = ', input_precision="ieee"' if precision == "ieee" else ""
    return f"""{TRITON_HEADER}@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        a_mask = (m[:, None] < M) & ((start + k)[None, :] < K)
        b_mask = ((start + k)[:, None] < K) & (n[None, :] < N)
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total{asked})
    c = total.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c, mask=(m[:, None] < M) & (n[None, :] < N))

class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, {rows}), triton.cdiv(N, {columns}))
        kernel[grid](a, b, c, M, N, K, BM={rows}, BN={columns}, BK={depth}, num_warps={warps}, num_stages={stages})
        return c
"""


def layout_problem(line: str, rows: int, columns: int, extra: str) -> str:
    """Return a problem of one line on `x`, and on `index` where `extra` makes it."""
    second = f", {extra}" if extra else ""
    return f"""{HEADER}
M, N = {rows}, {columns}
class Model(nn.Module):
    def forward(self, x{", index" if extra else ""}):
        return {line}
def get_inputs():
    return [torch.randn(M, N){second}]
def get_init_inputs():
    return []
"""


def _tile_model(made: str, arguments: str, extra: str = "", rows: int = 32, columns: int = 32) -> str:
    return f"""
class ModelNew(nn.Module):
    def forward(self, x{extra}):
        M, N = x.shape
        out = {made}
        grid = (triton.cdiv(M, {rows}), triton.cdiv(N, {columns}))
        kernel[grid]({arguments}, M, N, BM={rows}, BN={columns})
        return out
"""


_TILE = """@triton.jit
def kernel(x_ptr, {extra}out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    mask = (m < M) & (n < N)
"""


def _transpose(rows: int, columns: int) -> str:
    return (
        TRITON_HEADER
        + _TILE.format(extra="")
        + "    x = tl.load(x_ptr + m * N + n, mask=mask, other=0.0)\n    tl.store(out_ptr + n * M + m, x, mask=mask)\n"
        + _tile_model("torch.empty((N, M), device=x.device)", "x, out", rows=rows, columns=columns)
    )


def _gather(load: str) -> str:
    return (
        TRITON_HEADER
        + _TILE.format(extra="index_ptr, ")
        + f"    x = {load}\n    tl.store(out_ptr + m * N + n, x, mask=mask)\n"
        + _tile_model("torch.empty_like(x)", "x, index, out", ", index", rows=4, columns=256)
    )


def _column_sum(rows: int, columns: int) -> str:
    return (
        TRITON_HEADER
        + _TILE.format(extra="")
        + "    x = tl.load(x_ptr + m * N + n, mask=mask, other=0.0)\n"
        + "    columns = tl.program_id(1) * BN + tl.arange(0, BN)\n"
        + "    tl.atomic_add(out_ptr + columns, tl.sum(x, 0), mask=columns < N)\n"
        + _tile_model("torch.zeros(N, device=x.device)", "x, out", rows=rows, columns=columns)
    )


_STENCIL = (
    TRITON_HEADER
    + _TILE.format(extra="")
    + """    left = tl.load(x_ptr + m * N + n - 1, mask=mask & (n > 0), other=0.0)
    x = tl.load(x_ptr + m * N + n, mask=mask, other=0.0)
    right = tl.load(x_ptr + m * N + n + 1, mask=mask & (n < N - 1), other=0.0)
    tl.store(out_ptr + m * N + n, (left + x + right) / 3.0, mask=mask)
"""
    + _tile_model("torch.empty_like(x)", "x, out", rows=4, columns=256)
)
_STRIDED = """{header}@triton.jit
def kernel(x_ptr, out_ptr, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places * STRIDE, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x, mask=places < n)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty((M, N // {stride}), device=x.device)
        kernel[(triton.cdiv(out.numel(), 512),)](x, out, out.numel(), STRIDE={stride}, BLOCK=512)
        return out
"""
LAYOUTS: dict[str, tuple[str, str, str]] = {
    **{
        f"transpose {m}x{n}": (_transpose(m, n), "x.t().contiguous()", "")
        for m, n in ((1, 256), (16, 16), (32, 32), (64, 64), (8, 128))
    },
    **{
        f"stride {s}": (_STRIDED.format(header=TRITON_HEADER, stride=s), f"x[:, ::{s}].contiguous()", "")
        for s in (2, 4, 8, 32)
    },
    "gather rows": (
        _gather("tl.load(x_ptr + tl.load(index_ptr + m, mask=m < M, other=0) * N + n, mask=mask, other=0.0)"),
        "x[index.long() % x.shape[0]]", "torch.arange(M, dtype=torch.int32).flip(0)",
    ),
    "gather columns": (
        _gather("tl.load(x_ptr + m * N + tl.load(index_ptr + n, mask=n < N, other=0), mask=mask, other=0.0)"),
        "x[:, index.long()]", "(torch.arange(N, dtype=torch.int32) * 97) % N",
    ),
    "reversed columns": (
        _gather("tl.load(x_ptr + m * N + (N - 1 - n), mask=mask, other=0.0)"),
        "x.flip(1)", "torch.zeros(1, dtype=torch.int32)",
    ),
    "column sums by atomics, tall": (_column_sum(64, 32), "x.sum(0)", ""),
    "column sums by atomics, wide": (_column_sum(16, 256), "x.sum(0)", ""),
    "stencil": (_STENCIL, "F.pad(x, (1, 1)).unfold(1, 3, 1).mean(2)", ""),
}  # fmt: skip
HEAVY_TRITON = "for _ in range(32):\n            x = tl.exp(0.0 - x * x) * 0.5 + x * 0.25"
_HEAVY = """
def heavy(x):
    for _ in range(32):
        x = torch.exp(-x * x) * 0.5 + x * 0.25
    return x
"""


def persistent_kernel(body: str, programs: int) -> str:
    """Return a kernel in which a fixed number of programs share the rows."""
    return f"""{TRITON_HEADER}@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
        {body}
        tl.store(out_ptr + row * N + columns, x, mask=columns < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        kernel[({programs},)](x, out, M, N, BLOCK=triton.next_power_of_2(N))
        return out
"""


def heavy_problem(rows: int, columns: int) -> str:
    """Return the problem that `HEAVY_TRITON` solves."""
    return f"""{HEADER}{_HEAVY}
M, N = {rows}, {columns}
class Model(nn.Module):
    def forward(self, x):
        return heavy(x)
def get_inputs():
    return [torch.randn(M, N)]
def get_init_inputs():
    return []
"""


def launch_kernels(count: int) -> dict[str, tuple[str, str]]:
    """Return kernels that take `count` launches, and the line that they compute."""
    kernel = """@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x + 1.0, mask=places < n)
"""
    model = """
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        {launches}
        return out
"""
    launch = "kernel[(triton.cdiv(n, 1024),)]({given}, out, n, BLOCK=1024)"
    own = "\n        ".join(launch.format(given="x" if number == 0 else "out") for number in range(count))
    return {"in place": (TRITON_HEADER + kernel + model.format(launches=own), f"x + {count}.0")}


COMPOSITIONS = (
    ("relu", 0), ("gelu>double>sigmoid>increment", 0), ("softmax", 0), ("relu>double>softmax", 0),
    ("layer_norm>gelu>halve", 0), ("rms_norm>silu", 0), ("square>tanh>sum", 0), ("abs>log1p_abs>mean", 0),
    ("sigmoid>transpose", 0), ("add_tensor>relu>third", 0), ("scale_columns>shift_columns>gelu", 0),
    ("subtract_max>gaussian>divide_by_l1", 0), ("elu>hardswish>increment>double>halve>negate", 0),
    ("silu>log_softmax", 0), ("linear>relu>softmax", 96), ("matmul>gelu>double", 64), ("cosine>amax", 0),
)  # fmt: skip
"""Compositions of the bundled suite, and the depth of their matrix products."""
