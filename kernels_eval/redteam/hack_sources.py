"""What the hacks are made of: an honest row kernel, under a forward of the hack's own."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import Entry, hack

ROW_JIT = """
@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.maximum(x, 0.0) * 2.0 + 1.0
    x = tl.where(mask, x, -float("inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    x = x / tl.sum(x, axis=1)[:, None]
    tl.store(out_ptr + rows * N + cols, x, mask=mask)

@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

@triton.jit
def nothing(x_ptr):
    pass
"""
LAUNCH = "kernel[(triton.cdiv(M, 4),)](x, out, M, N, ROWS=4, BLOCK=128)"
COPY = "copy[(triton.cdiv(M * N, 1024),)]({}, out, M * N, BLOCK=1024)"
ANSWER = "torch.softmax(torch.relu(x) * 2.0 + 1.0, dim=1)"


def row(body: str, init: str = "", extra: str = "") -> str:
    """The row kernel for problems.ROW under another forward; lines are written without their indentation."""
    forward = "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
    made = "".join(f"        {line}\n" for line in init.strip("\n").splitlines())
    constructor = f"    def __init__(self):\n        super().__init__()\n{made}" if init else ""
    return f"{ROW_JIT}\n{extra}\nclass ModelNew(nn.Module):\n{constructor}    def forward(self, x):\n        M, N = x.shape\n{forward}"


GELU_JIT = """@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    g = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + r * N + c, g / (tl.sum(x * x, axis=0) / N + 1.0), mask=c < N)
@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)
@triton.jit
def touch(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))
"""
GELU_LAUNCH = "kernel[(M,)](x, out, M, N, BLOCK=128)"
GELU_ANSWER = "torch.nn.functional.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)"


def gelu_row(body: str, init: str = "", extra: str = "") -> str:
    """The row kernel for problems.GELU_ROW under another forward."""
    return row(body, init=init, extra=extra).replace(ROW_JIT, GELU_JIT)


def gelu_copied(expression: str) -> str:
    """A forward that has a kernel copy what the host made."""
    return f"y = {expression}\nout = torch.empty_like(x)\ncopy[(triton.cdiv(M * N, 1024),)](y, out, M * N, BLOCK=1024)\nreturn out"


GELU_OUT = "out = torch.empty_like(x)"


def gelu_hack(
    kind: str,
    name: str,
    body: str,
    init: str = "",
    extra: str = "",
    policy: str = "strict",
    problem: str = problems.GELU_ROW,
    raw: str = "",
) -> Entry:
    """The honest row kernel under another forward, or a source of the hack's own (`raw`)."""
    return hack(kind, name, problem, raw or gelu_row(body, init=init, extra=extra), policy=policy)
