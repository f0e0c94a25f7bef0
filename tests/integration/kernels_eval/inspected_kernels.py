"""Kernels with one planted defect each, and honest fast ones, for tests of the inspector."""

_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"


def problem(forward: str, *shapes: str, dtype: str = "torch.float32") -> str:
    """Return a problem whose inputs have these shapes."""
    names = ", ".join("xyz"[: len(shapes)])
    inputs = ", ".join(f"torch.randn({shape}, dtype={dtype})" for shape in shapes)
    return (
        f"import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, {names}):\n"
        f"        return {forward}\n\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )


def candidate(kernels: str, forward: str, arguments: str = "x") -> str:
    """Return a candidate: kernels, and the body of ModelNew.forward."""
    body = "\n".join(f"        {line}" for line in forward.strip().splitlines())
    return f"{_HEAD}\n{kernels.strip()}\n\nclass ModelNew(nn.Module):\n    def forward(self, {arguments}):\n{body}\n"


_RELU = problem("torch.relu(x) * 2.0", "16384, 4096")
_FLAT = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=offsets < n)
"""


def _flat(block: int, warps: int = 4) -> str:
    return candidate(
        _FLAT,
        "out = torch.empty_like(x)\n"
        f"kernel[(triton.cdiv(x.numel(), {block}),)](x, out, x.numel(), BLOCK={block}, num_warps={warps})\n"
        "return out",
    )


_SOFTMAX = problem("torch.softmax(x, dim=1)", "16384, 2048")
_ROW_SOFTMAX = """
@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * N + columns
    x = tl.load(x_ptr + offsets, mask=columns < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + offsets, e / tl.sum(e, axis=0), mask=columns < N)
"""


def _softmax(warps: int = 8) -> str:
    return candidate(
        _ROW_SOFTMAX,
        "out = torch.empty_like(x)\n"
        "block = triton.next_power_of_2(x.shape[1])\n"
        f"kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block, num_warps={warps})\n"
        "return out",
    )


_STRIDED = """
@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    for column in range(0, N):
        x = tl.load(x_ptr + rows * N + column, mask=rows < M)
        tl.store(out_ptr + rows * N + column, tl.maximum(x, 0.0) * 2.0, mask=rows < M)
"""
_TWO_PASSES = """
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=offsets < n)

@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2.0, mask=offsets < n)
"""
_PASSES = (
    "a = torch.empty_like(x)\nout = torch.empty_like(x)\ngrid = (triton.cdiv(x.numel(), 1024),)\n"
    "relu[grid](x, a, x.numel(), BLOCK=1024)\ndouble[grid](a, out, x.numel(), BLOCK=1024)\nreturn out"
)
_PRODUCT = problem("torch.matmul(x, y)", "4096, 512", "512, 512", dtype="torch.float16")
_BY_HAND = """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, M, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, K, STEP):
        steps = first + tl.arange(0, STEP)
        left = tl.load(x_ptr + rows[:, None] * K + steps[None, :], mask=rows[:, None] < M, other=0.0)
        right = tl.load(y_ptr + steps[:, None] * N + columns[None, :])
        PRODUCT
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=rows[:, None] < M)
"""


def _product(step: str, rows: int = 64, columns: int = 64, width: int = 32) -> str:
    return candidate(
        _BY_HAND.replace("PRODUCT", step),
        "M, K = x.shape\nN = y.shape[1]\nout = torch.empty((M, N), dtype=x.dtype, device=x.device)\n"
        f"kernel[(triton.cdiv(M, {rows}), N // {columns})]"
        f"(x, y, out, M, N, K, ROWS={rows}, COLUMNS={columns}, STEP={width})\nreturn out",
        "x, y",
    )


_SUM = problem("x.sum(dim=1)", "16384, 520")
_ROW_SUM = """
@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + columns, mask=columns < N, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, axis=0))
"""
_LONG_SUM = problem("x.sum(dim=1)", "16, 2097152")
_LOOPED_SUM = """
@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + tl.program_id(0).to(tl.int64) * N + columns, mask=columns < N, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))
"""


def _row_sum(kernels: str, block: int) -> str:
    return candidate(
        kernels,
        "out = torch.empty(x.shape[0], device=x.device)\n"
        f"kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK={block})\nreturn out",
    )


_SMALL = problem("torch.relu(x) * 2.0", "512, 512")

PLANTED: dict[str, tuple[str, str]] = {
    "strided_access": (
        _RELU.replace("4096", "512"),
        candidate(
            _STRIDED,
            "out = torch.empty_like(x)\n"
            "kernel[(triton.cdiv(x.shape[0], 128),)](x, out, x.shape[0], x.shape[1], ROWS=128)\nreturn out",
        ),
    ),
    "redundant_traffic": (_RELU, candidate(_TWO_PASSES, _PASSES)),
    "many_launches": (_SMALL, candidate(_TWO_PASSES, _PASSES)),
    "tiny_blocks": (_RELU, _flat(32)),
    "oversized_blocks": (_RELU, _flat(32768)),
    "spills": (problem("torch.softmax(x, dim=1)", "4096, 32768"), _softmax(warps=4)),
    "low_occupancy": (problem("torch.softmax(x, dim=1)", "4096, 32768"), _softmax(warps=8)),
    "tail_effect": (
        _LONG_SUM,
        _row_sum(_LOOPED_SUM, 4096),
    ),
    "no_tensor_cores": (
        _PRODUCT,
        _product(
            "total += tl.sum(left[:, :, None].to(tl.float32) * right[None, :, :].to(tl.float32), axis=1)", 16, 16, 16
        ),
    ),
    "masked_lanes": (
        _SUM,
        _row_sum(_ROW_SUM, 1024),
    ),
}
"""A problem and a kernel by the class of the issue that is planted."""
HONEST: dict[str, tuple[str, str]] = {
    "flat": (_RELU, _flat(1024)),
    "flat, partly filled last block": (_RELU.replace("4096", "4000"), _flat(2048, 8)),
    "row softmax": (_SOFTMAX, _softmax()),
    "row sum": (
        _SUM.replace("520", "1000"),
        _row_sum(_ROW_SUM, 1024),
    ),
    "product": (_PRODUCT, _product("total = tl.dot(left, right, total)")),
}
