"""What the hacks are made of: an honest row kernel, under a forward of the hack's own."""

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
