"""Sources of the kernels that calibrate the estimate, and of their problems."""

HEADER = """import torch
import torch.nn as nn
import torch.nn.functional as F
"""
TRITON_HEADER = f"""{HEADER}import triton
import triton.language as tl
from triton.language.extra import libdevice

"""
FUNCTIONS = {
    "exp": ("tl.exp(0.0 - x * x)", "torch.exp(-x * x)"),
    "exp2": ("tl.exp2(0.0 - x * x)", "torch.exp2(-x * x)"),
    "log": ("tl.log(x * x + 1.5)", "torch.log(x * x + 1.5)"),
    "log2": ("tl.log2(x * x * 0.25 + 1.5)", "torch.log2(x * x * 0.25 + 1.5)"),
    "sin": ("tl.sin(x)", "torch.sin(x)"),
    "cos": ("tl.cos(x)", "torch.cos(x)"),
    "sqrt": ("tl.sqrt(x * x * 0.5 + 1.0)", "torch.sqrt(x * x * 0.5 + 1.0)"),
    "sqrt_rn": ("tl.sqrt_rn(x * x * 0.5 + 1.0)", "torch.sqrt(x * x * 0.5 + 1.0)"),
    "rsqrt": ("tl.rsqrt(x * x + 1.0)", "torch.rsqrt(x * x + 1.0)"),
    "div": ("1.0 / (x * x + 1.5)", "1.0 / (x * x + 1.5)"),
    "div_rn": ("tl.div_rn(y, x * x + 1.5)", "y / (x * x + 1.5)"),
    "erf": ("tl.erf(x * 0.5)", "torch.erf(x * 0.5)"),
    "sigmoid": ("tl.sigmoid(x)", "torch.sigmoid(x)"),
    "tanh": ("libdevice.tanh(x)", "torch.tanh(x)"),
    "atan": ("libdevice.atan(x)", "torch.atan(x)"),
    "log1p": ("libdevice.log1p(x * x)", "torch.log1p(x * x)"),
    "expm1": ("libdevice.expm1(0.0 - x * x)", "torch.expm1(-x * x)"),
    "pow": ("libdevice.pow(x * x * 0.25 + 1.0, y * 0.0 + 0.7)", "torch.pow(x * x * 0.25 + 1.0, 0.7)"),
    "asinh": ("libdevice.asinh(x)", "torch.asinh(x)"),
    "minmax": ("tl.maximum(tl.minimum(x * 0.9, 3.0), y)", "torch.maximum((x * 0.9).clamp(max=3.0), y)"),
    "where": ("tl.where(x > 0.0, x * 0.5, x * 0.125)", "torch.where(x > 0.0, x * 0.5, x * 0.125)"),
    "abs": ("tl.abs(x - 1.0) * 0.5", "(x - 1.0).abs() * 0.5"),
    "floor": ("x * 0.5 + tl.floor(y)", "x * 0.5 + torch.floor(y)"),
    "half": ("(x * 0.5).to(tl.float16).to(tl.float32) + y", "(x * 0.5).half().float() + y"),
}
"""Contractions in Triton and PyTorch: applied many times they stay finite, and rounding errors do not grow."""
INTEGER_FUNCTIONS = {
    "multiply": ("x * 1664525 + y", "x * 1664525 + y"),
    "shift": ("x ^ (x << 5) ^ y", "x ^ (x << 5) ^ y"),
    "compare": ("tl.maximum(tl.minimum(x, y), 3)", "torch.maximum(torch.minimum(x, y), torch.full_like(x, 3))"),
    "divide": ("x // 7 + y", "x // 7 + y"),
    "remainder": ("(x * 3 + y) % 1021", "(x * 3 + y) % 1021"),
    "divide_by_value": ("(x + 12345) // (y + 1)", "(x + 12345) // (y + 1)"),
}


def elementwise_problem(line: str, repeats: int, rows: int, columns: int, dtype: str = "float32") -> str:
    """Return a problem that applies one line to two tensors a number of times."""
    is_integer = dtype == "int32"
    make = (
        "torch.randint(0, 1000, (M, N), dtype=torch.int32)" if is_integer else f"torch.randn(M, N, dtype=torch.{dtype})"
    )
    return f"""{HEADER}
M, N = {rows}, {columns}
class Model(nn.Module):
    def forward(self, x, y):
        for _ in range({repeats}):
            x = {line}
        return x
def get_inputs():
    return [{make}, {make}]
def get_init_inputs():
    return []
"""


def elementwise_kernel(line: str, repeats: int, block: int = 1024, warps: int = 4) -> str:
    """Return the kernel for `elementwise_problem`."""
    loop = "tl.static_range" if repeats <= 8 else "range"
    return f"""{TRITON_HEADER}@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, REPEATS: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask, other=1)
    y = tl.load(y_ptr + places, mask=mask, other=1)
    for _ in {loop}(REPEATS):
        x = ({line}).to(x.dtype)
    tl.store(out_ptr + places, x, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, {block}),)](x, y, out, n, REPEATS={repeats}, BLOCK={block}, num_warps={warps})
        return out
"""


ROW_BODIES = {
    "sum": ("tl.sum(x, 0)", "x.sum(1)", "row"),
    "max": ("tl.max(tl.where(mask, x, float('-inf')), 0)", "x.max(1)[0]", "row"),
    "argmax": ("tl.argmax(tl.where(mask, x, float('-inf')), 0).to(tl.int64)", "x.argmax(1)", "index"),
    "norm": ("tl.sqrt(tl.sum(x * x, 0))", "x.norm(dim=1)", "row"),
    "logsumexp": (
        "tl.log(tl.sum(tl.where(mask, tl.exp(x), 0.0), 0))", "torch.logsumexp(x, 1)", "row",
    ),
    "softmax": (
        "tl.exp(x - tl.max(tl.where(mask, x, float('-inf')), AXIS)@R) / "
        "tl.sum(tl.where(mask, tl.exp(x - tl.max(tl.where(mask, x, float('-inf')), AXIS)@R), 0.0), AXIS)@R",
        "torch.softmax(x, 1)", "same",
    ),
    "rms_norm": (
        "x * tl.rsqrt(tl.sum(x * x, AXIS)@R / N + 1e-5)", "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)",
        "same",
    ),
    "layer_norm": (
        "(x - tl.sum(x, AXIS)@R / N) * tl.rsqrt("
        "tl.sum(x * x, AXIS)@R / N - (tl.sum(x, AXIS)@R / N) * (tl.sum(x, AXIS)@R / N) + 1e-5)",
        "F.layer_norm(x, (x.shape[1],))", "same",
    ),
    "cumsum": ("tl.cumsum(x, AXIS)", "x.cumsum(1)", "same"),
}  # fmt: skip
"""Expression of a row `x` with lanes `mask`, the same in PyTorch, and its output: a row, a number, or an index."""
_OUTPUTS = {
    "row": ("torch.empty(M, device=x.device)", "tl.store(out_ptr + row, result)"),
    "index": ("torch.empty(M, device=x.device, dtype=torch.int64)", "tl.store(out_ptr + row, result)"),
    "same": ("torch.empty_like(x)", "tl.store(out_ptr + row * N + columns, result, mask=mask)"),
}


def row_problem(line: str, rows: int, columns: int) -> str:
    """Return a problem of one line on one matrix."""
    return f"""{HEADER}
M, N = {rows}, {columns}
class Model(nn.Module):
    def forward(self, x):
        return {line}
def get_inputs():
    return [torch.randn(M, N)]
def get_init_inputs():
    return []
"""


def row_kernel(body: str, output: str, warps: int) -> str:
    """Return a kernel with a program for each row."""
    made, store = _OUTPUTS[output]
    return f"""{TRITON_HEADER}@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0)
    result = {body.replace("AXIS", "0").replace("@R", "")}
    {store}

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = {made}
        kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N), num_warps={warps})
        return out
"""


def tile_kernel(body: str, rows: int, warps: int) -> str:
    """Return a kernel with a program for several rows."""
    return f"""{TRITON_HEADER}@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    mask = (row < M) & (columns < N)
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0)
    result = {body.replace("AXIS", "1").replace("@R", "[:, None]")}
    tl.store(out_ptr + row * N + columns, result, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        kernel[(triton.cdiv(M, {rows}),)](x, out, M, N, ROWS={rows}, BLOCK=triton.next_power_of_2(N), num_warps={warps})
        return out
"""


_LOOP_HEADER = f"""{TRITON_HEADER}@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
"""
_LOOP_LOAD = """        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=mask, other={other})
"""
_LOOP_MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = {made}
        kernel[(M,)](x, out, N, BLOCK=@BLOCK@)
        return out
"""
_STORE_ROW = "        tl.store(out_ptr + row * N + columns, {value}, mask=mask)\n"
LOOP_KERNELS = {
    "sum in steps": (
        _LOOP_HEADER
        + "    total = tl.zeros((BLOCK,), tl.float32)\n    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="0.0")
        + "        total += x\n    tl.store(out_ptr + row, tl.sum(total, 0))\n"
        + _LOOP_MODEL.format(made="torch.empty(M, device=x.device)"),
        "x.sum(1)",
    ),
    "sum of sums": (
        _LOOP_HEADER
        + "    total = 0.0\n    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="0.0")
        + "        total += tl.sum(x, 0)\n    tl.store(out_ptr + row, total)\n"
        + _LOOP_MODEL.format(made="torch.empty(M, device=x.device)"),
        "x.sum(1)",
    ),
    "softmax in three passes": (
        _LOOP_HEADER
        + "    largest = float('-inf')\n    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="float('-inf')")
        + "        largest = tl.maximum(largest, tl.max(x, 0))\n    total = 0.0\n"
        + "    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="float('-inf')")
        + "        total += tl.sum(tl.exp(x - largest), 0)\n    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="float('-inf')")
        + _STORE_ROW.format(value="tl.exp(x - largest) / total")
        + _LOOP_MODEL.format(made="torch.empty_like(x)"),
        "torch.softmax(x, 1)",
    ),
    "rms_norm in two passes": (
        _LOOP_HEADER
        + "    total = tl.zeros((BLOCK,), tl.float32)\n    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="0.0")
        + "        total += x * x\n    scale = tl.rsqrt(tl.sum(total, 0) / N + 1e-5)\n"
        + "    for start in range(0, N, BLOCK):\n"
        + _LOOP_LOAD.format(other="0.0")
        + _STORE_ROW.format(value="x * scale")
        + _LOOP_MODEL.format(made="torch.empty_like(x)"),
        "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)",
    ),
}
