"""Honest kernels whose types and reductions NumPy has not: bfloat16 without a detour, functions of their own in reductions."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import honest

ENTRIES = (
    honest(
        "bfloat16 added, compared, scaled and divided as it is",
        problems.BFLOAT_MIX,
        """
@triton.jit
def kernel(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    v = tl.maximum(a + tl.load(y + i, mask=i < n, other=0.0), tl.full([B], 0.0, tl.bfloat16))
    tl.store(o + i, v * 0.5 - a / 3, mask=i < n)
class ModelNew(nn.Module):
    def forward(self, x, y):
        o = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), B=256)
        return o
""",
    ),
    honest(
        "tl.dot of bfloat16 tiles",
        problems.BFLOAT_MATMUL,
        """
@triton.jit
def mm(x, w, y, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
    b = tl.load(w + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(a, b).to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))
class ModelNew(nn.Module):
    def forward(self, x, w):
        y = x.new_empty(x.shape[0], w.shape[1])
        mm[(triton.cdiv(x.shape[0], 32),)](x, w, y, x.shape[0], w.shape[1], K=x.shape[1], BM=32, BN=64)
        return y
""",
    ),
    honest(
        "tl.max, tl.sum and tl.argmax of bfloat16",
        problems.BFLOAT_REDUCTIONS,
        """
@triton.jit
def kernel(x, a, b, c, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * N + i, mask=i < N, other=float("-inf"))
    tl.store(a + r, tl.max(v, 0))
    tl.store(b + r, tl.sum(tl.where(i < N, v, 0.0), 0))
    tl.store(c + r, tl.argmax(v, 0).to(tl.int64))
class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        a, b, c = x.new_empty(M), x.new_empty(M), torch.empty(M, dtype=torch.int64, device=x.device)
        kernel[(M,)](x, a, b, c, N, B=64)
        return a, b, c
""",
    ),
    honest(
        "layer norm by a reduction of means, squares and counts",
        problems.LAYER_NORM,
        """
@triton.jit
def joined(m1, s1, n1, m2, s2, n2):
    n = n1 + n2
    d = m2 - m1
    share = tl.where(n == 0.0, 0.0, n2 / tl.where(n == 0.0, 1.0, n))
    return m1 + d * share, s1 + s2 + d * d * n1 * share, n
@triton.jit
def kernel(x, w, b, y, N, eps, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * N + i, mask=i < N, other=0.0)
    mean, squares, _ = tl.reduce((v, tl.zeros_like(v), (i < N).to(tl.float32)), 0, joined)
    o = (v - mean) * tl.rsqrt(squares / N + eps) * tl.load(w + i, mask=i < N) + tl.load(b + i, mask=i < N)
    tl.store(y + r * N + i, o, mask=i < N)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, self.norm.weight, self.norm.bias, y, 96, self.norm.eps, B=128)
        return y
""",
    ),
    honest(
        "a recurrence by an associative scan of pairs, many rows in a tile",
        problems.RECURRENCE,
        """
@triton.jit
def step(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2
@triton.jit
def kernel(a, x, y, M, N: tl.constexpr, BM: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    i = r * N + tl.arange(0, N)[None, :]
    _, h = tl.associative_scan((tl.load(a + i, mask=r < M, other=0.0), tl.load(x + i, mask=r < M, other=0.0)), 1, step)
    tl.store(y + i, h, mask=r < M)
class ModelNew(nn.Module):
    def forward(self, a, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 16),)](a, x, y, x.shape[0], N=32, BM=16)
        return y
""",
    ),
    honest(
        "libdevice by its whole path",
        problems.TANH_GELU,
        """
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    t = tl.extra.cuda.libdevice.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))
    tl.store(y + i, 0.5 * v * (1.0 + t), mask=i < n)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)
        return y
""",
    ),
)
