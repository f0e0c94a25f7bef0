"""Honest kernels over rows: softmax, norms, reductions, scans, in one pass or several, with one launch or two."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import honest

_ROWS = """
class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        row_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
        return out
"""

ENTRIES = (
    honest(
        "softmax, one row a program",
        problems.SOFTMAX,
        """
@triton.jit
def row_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    tl.store(out_ptr + row * N + cols, numerator / tl.sum(numerator, axis=0), mask=cols < N)
"""
        + _ROWS,
    ),
    honest(
        "softmax online, in two passes with a while loop",
        problems.SOFTMAX,
        """
@triton.jit
def row_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * N
    out_ptr += row * N
    m = -float("inf")
    total = 0.0
    start = 0
    while start < N:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf"))
        new = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
        m = new
        start += BLOCK
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0)
        tl.store(out_ptr + cols, tl.exp(x - m) / total, mask=cols < N)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x if x.is_contiguous() else x.contiguous()
        out = torch.empty_like(x)
        row_kernel[(x.shape[0],)](x, out, x.shape[-1], BLOCK=32)
        return out
""",
    ),
    honest(
        "unfused within one kernel, by way of scratch memory",
        problems.ROW,
        """
@triton.jit
def unfused(x_ptr, out_ptr, scratch_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < N
    tl.store(scratch_ptr + row * N + c, tl.maximum(tl.load(x_ptr + row * N + c, mask=mask, other=0.0), 0.0), mask=mask)
    tl.store(scratch_ptr + (M + row) * N + c, tl.load(scratch_ptr + row * N + c, mask=mask) * 2.0 + 1.0, mask=mask)
    x = tl.load(scratch_ptr + (M + row) * N + c, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + c, x / tl.sum(x, axis=0), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        scratch = torch.empty(2 * M * N, device=x.device)
        unfused[(M,)](x, out, scratch, M, N, BLOCK=128)
        return out
""",
    ),
    honest(
        "softmax of the language's own, tl.softmax",
        problems.ROW,
        """
@triton.jit
def row_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    mask = (r < M)[:, None] & (c < N)[None, :]
    at = r[:, None] * N + c[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    x = tl.where(mask, tl.maximum(x, 0.0) * 2.0 + 1.0, float("-inf"))
    x = tl.softmax(x, dim=1, keep_dims=True)
    tl.store(out_ptr + at, x, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        row_kernel[(triton.cdiv(x.size(0), 8),)](x, out, *x.shape, ROWS=8, BLOCK=128)
        return out
""",
    ),
    honest(
        "row sums into a vector",
        problems.ROW_SUM,
        """
@triton.jit
def row_sum(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros([ROWS], dtype=tl.float32)
    for s in range(0, N, BLOCK):
        c = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N), other=0.0)
        acc += tl.sum(x * x, axis=1)
    tl.store(out_ptr + r, acc, mask=r < M)

class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(x.shape[0])
        row_sum[(triton.cdiv(x.shape[0], 8),)](x, out, x.shape[0], x.shape[1], ROWS=8, BLOCK=32)
        return out
""",
    ),
    honest(
        "column sums by atomics into zeros",
        problems.COLUMN_SUM,
        """
@triton.jit
def column_sum(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N), other=0.0)
    tl.atomic_add(out_ptr + c, tl.sum(x, axis=0), mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[1], device=x.device, dtype=x.dtype)
        column_sum[(triton.cdiv(x.shape[0], 16),)](x, out, x.shape[0], x.shape[1], ROWS=16, BLOCK=64)
        return out
""",
    ),
    honest(
        "column sums in two kernels over partial sums",
        problems.COLUMN_SUM,
        """
@triton.jit
def partial_sums(x_ptr, part_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    r = p * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N), other=0.0)
    tl.store(part_ptr + p * N + c, tl.sum(x, axis=0), mask=c < N)

@triton.jit
def add_up(part_ptr, out_ptr, P, N, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for p in range(P):
        acc += tl.load(part_ptr + p * N + c, mask=c < N, other=0.0)
    tl.store(out_ptr + c, acc, mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        P = triton.cdiv(M, 16)
        part = torch.empty((P, N), device=x.device, dtype=torch.float32)
        out = torch.empty(N, device=x.device)
        partial_sums[(P,)](x, part, M, N, ROWS=16, BLOCK=64)
        add_up[(triton.cdiv(N, 32),)](part, out, P, N, BLOCK=32)
        return out
""",
    ),
    honest(
        "mean of everything: partial sums, then one program, 0-d output",
        problems.MEAN,
        """
@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1

@triton.jit
def stage1(x_ptr, part_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tanh(x), axis=0))

@triton.jit
def stage2(part_ptr, out_ptr, P, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(part_ptr + i, mask=i < P, other=0.0), axis=0)
    tl.store(out_ptr, total / n)

class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        P = triton.cdiv(n, 1024)
        part = torch.empty(P, device=x.device, dtype=torch.float32)
        out = torch.empty((), device=x.device, dtype=torch.float32)
        stage1[(P,)](x, part, n, BLOCK=1024)
        stage2[(1,)](part, out, P, n, BLOCK=triton.next_power_of_2(P))
        return out
""",
    ),
    honest(
        "mean of everything by one atomic a program, squeezed out of a vector",
        problems.MEAN,
        """
@triton.jit
def kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    e = tl.exp(-2.0 * tl.abs(x))
    t = tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    tl.atomic_add(out_ptr, tl.sum(t, axis=0) * scale)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(1, device=x.device, dtype=torch.float32)
        kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), 1.0 / x.numel(), BLOCK=512)
        return out[0]
""",
    ),
    honest(
        "layer norm that keeps nn.LayerNorm for its weights",
        problems.LAYER_NORM,
        """
@triton.jit
def layer_norm(X, Y, W, B, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(X + cols, mask=mask, other=0.).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(mask, x - mean, 0.)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / N + eps)
    y = centred * rstd * tl.load(W + cols, mask=mask) + tl.load(B + cols, mask=mask)
    tl.store(Y + cols, y, mask=mask)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)
    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        y = torch.empty_like(x)
        layer_norm[(x.shape[0],)](x, y, self.norm.weight, self.norm.bias, x.stride(0), x.shape[1], self.norm.eps, BLOCK=128)
        return y.view(shape)
""",
    ),
    honest(
        "layer norm whose parameters have other names",
        problems.LAYER_NORM,
        """
@triton.jit
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, M, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    mask = (r < M) & (c < N)
    x = tl.load(x_ptr + r * N + c, mask=mask, other=0.0)
    mean = tl.sum(x, 1, keep_dims=True) / N
    var = tl.sum(tl.where(c < N, (x - mean) * (x - mean), 0.0), 1, keep_dims=True) / N
    y = (x - mean) * tl.rsqrt(var + 1e-5)
    y = y * tl.load(w_ptr + c, mask=c < N, other=0.0) + tl.load(b_ptr + c, mask=c < N, other=0.0)
    tl.store(y_ptr + r * N + c, y, mask=mask)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(96))
        self.beta = nn.Parameter(torch.zeros(96))
    def forward(self, x):
        y = torch.empty_like(x)
        layer_norm[(triton.cdiv(x.shape[0], 4),)](x, y, self.gamma, self.beta, x.shape[0], 96, ROWS=4, BLOCK=128)
        return y
""",
    ),
    honest(
        "RMS norm with inheritance and a forward that calls a method",
        problems.RMS_NORM,
        """
@triton.jit
def rms(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    scale = tl.math.rsqrt(tl.sum(x * x) / N + eps)
    tl.store(y_ptr + row * N + c, x * scale * tl.load(w_ptr + c, mask=c < N), mask=c < N)

class Base(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.eps = eps
    def _launch(self, x, y):
        rms[(x.shape[0],)](x, self.weight, y, x.shape[1], self.eps, BLOCK=128, num_warps=2)
    def forward(self, x):
        y = torch.empty_like(x)
        self._launch(x, y)
        return y

class ModelNew(Base):
    pass
""",
    ),
    honest(
        "batch norm of a batch: statistics in one kernel, use in another, running statistics left alone",
        problems.BATCH_NORM,
        """
@triton.jit
def statistics(x_ptr, mean_ptr, rstd_ptr, M, N, eps, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, M, BLOCK):
        r = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + r * N + c, mask=r < M, other=0.0)
        total += x
        square += x * x
    mean = tl.sum(total) / M
    var = tl.sum(square) / M - mean * mean
    tl.store(mean_ptr + c, mean)
    tl.store(rstd_ptr + c, 1.0 / tl.sqrt(var + eps))

@triton.jit
def normalise(x_ptr, y_ptr, mean_ptr, rstd_ptr, w_ptr, b_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % N
    m = i < n
    y = (tl.load(x_ptr + i, mask=m) - tl.load(mean_ptr + c, mask=m)) * tl.load(rstd_ptr + c, mask=m)
    y = y * tl.load(w_ptr + c, mask=m) + tl.load(b_ptr + c, mask=m)
    tl.store(y_ptr + i, tl.maximum(y, 0.0), mask=m)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)
    def forward(self, x):
        M, N = x.shape
        mean = torch.empty(N, device=x.device)
        rstd = torch.empty(N, device=x.device)
        y = torch.empty_like(x)
        statistics[(N,)](x, mean, rstd, M, N, self.norm.eps, BLOCK=64)
        normalise[(triton.cdiv(x.numel(), 256),)](x, y, mean, rstd, self.norm.weight, self.norm.bias, x.numel(), N, BLOCK=256)
        return y
""",
    ),
    honest(
        "group norm, one program a sample and group",
        problems.GROUP_NORM,
        """
@triton.jit
def group_norm(x_ptr, y_ptr, w_ptr, b_ptr, C, L, G: tl.constexpr, eps, BLOCK: tl.constexpr):
    sample = tl.program_id(0) // G
    group = tl.program_id(0) % G
    size = C // G * L
    base = (sample * C + group * (C // G)) * L
    i = tl.arange(0, BLOCK)
    mask = i < size
    x = tl.load(x_ptr + base + i, mask=mask, other=0.0)
    mean = tl.sum(x) / size
    d = tl.where(mask, x - mean, 0.0)
    y = d / tl.sqrt_rn(tl.sum(d * d) / size + eps)
    channel = group * (C // G) + i // L
    y = y * tl.load(w_ptr + channel, mask=mask) + tl.load(b_ptr + channel, mask=mask)
    tl.store(y_ptr + base + i, y, mask=mask)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)
    def forward(self, x):
        B, C, L = x.shape
        y = torch.empty_like(x)
        group_norm[(B * 2,)](x, y, self.norm.weight, self.norm.bias, C, L, 2, self.norm.eps, BLOCK=64)
        return y
""",
    ),
    honest(
        "cumulative sum with tl.cumsum",
        problems.CUMSUM,
        """
@triton.jit
def row_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    tl.store(out_ptr + row * N + c, tl.cumsum(x, axis=0), mask=c < N)
"""
        + _ROWS,
    ),
    honest(
        "linear recurrence with tl.associative_scan",
        problems.RECURRENCE,
        """
@triton.jit
def combine(a1, x1, a2, x2):
    return a1 * a2, a2 * x1 + x2

@triton.jit
def scan(a_ptr, x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * N + c, mask=c < N, other=1.0)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    _, h = tl.associative_scan((a, x), 0, combine)
    tl.store(out_ptr + row * N + c, h, mask=c < N)

class ModelNew(nn.Module):
    def forward(self, a, x):
        out = torch.empty_like(x)
        scan[(x.shape[0],)](a, x, out, x.shape[1], BLOCK=32)
        return out
""",
    ),
    honest(
        "argmax to int64",
        problems.ARGMAX,
        """
@triton.jit
def argmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x, axis=0).to(tl.int64))

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0],), device=x.device, dtype=torch.long)
        argmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        return out
""",
    ),
    honest(
        "two outputs from two views of one buffer",
        problems.MIN_MAX,
        """
@triton.jit
def min_max(x_ptr, low_ptr, high_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < N
    x = tl.load(x_ptr + row * N + c, mask=mask, other=0.0)
    tl.store(low_ptr + row, tl.min(tl.where(mask, x, float("inf")), axis=0))
    tl.store(high_ptr + row, tl.max(tl.where(mask, x, float("-inf")), axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        both = torch.empty((2, x.shape[0]), device=x.device, dtype=x.dtype)
        min_max[(x.shape[0],)](x, both[0], both[1], x.shape[1], BLOCK=64)
        return both[0], both[1]
""",
    ),
    honest(
        "maximum and its index by tl.reduce with an own combine function",
        problems.MAX_WITH_INDEX,
        """
@triton.jit
def larger(v1, i1, v2, i2):
    first = (v1 > v2) | ((v1 == v2) & (i1 < i2))
    return tl.where(first, v1, v2), tl.where(first, i1, i2)

@triton.jit
def kernel(x_ptr, v_ptr, i_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf"))
    v, i = tl.reduce((x, c), 0, larger)
    tl.store(v_ptr + row, v)
    tl.store(i_ptr + row, i.to(tl.int64))

class ModelNew(nn.Module):
    def forward(self, x):
        values = torch.empty(x.shape[0], device=x.device)
        indices = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=64)
        return values, indices
""",
    ),
    honest(
        "maximum with return_indices",
        problems.MAX_WITH_INDEX,
        """
@triton.jit
def kernel(x_ptr, v_ptr, i_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf"))
    v, i = tl.max(x, axis=0, return_indices=True)
    tl.store(v_ptr + row, v)
    tl.store(i_ptr + row, i)

class ModelNew(nn.Module):
    def forward(self, x):
        values = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
        indices = torch.empty(x.shape[:-1], device=x.device, dtype=torch.int64)
        kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=64)
        return [values, indices]
""",
    ),
    honest(
        "log-sum-exp over chunks, tl.exp2 and tl.log2",
        problems.LOGSUMEXP,
        """
@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    LOG2E: tl.constexpr = 1.4426950408889634
    m = tl.full((), -float("inf"), tl.float32)
    s = tl.full((), 0.0, tl.float32)
    for k in range(0, tl.cdiv(N, BLOCK)):
        c = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf")) * LOG2E
        new = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp2(m - new) + tl.sum(tl.exp2(x - new), axis=0)
        m = new
    tl.store(out_ptr + row, (m + tl.log2(s)) / LOG2E)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
""",
    ),
    honest(
        "L2 normalisation in place of a scratch copy",
        problems.L2_NORM,
        """
@triton.jit
def square_sums(x_ptr, s_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    tl.store(s_ptr + row, tl.sum(x * x, axis=0))

@triton.jit
def divide_in_place(x_ptr, s_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N)
    tl.store(x_ptr + row * N + c, x / tl.maximum(tl.sqrt(tl.load(s_ptr + row)), 1e-12), mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = x.clone()
        sums = torch.empty(M, device=x.device)
        square_sums[(M,)](x, sums, N, BLOCK=64)
        divide_in_place[(M,)](out, sums, N, BLOCK=64)
        return out
""",
    ),
    honest(
        "rows minus their mean, transposed by tl.trans on the way",
        problems.ROW_MEAN,
        """
@triton.jit
def kernel(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, N)
    at = r[:, None] * N + c[None, :]
    x = tl.trans(tl.load(x_ptr + at, mask=(r < M)[:, None], other=0.0))
    x = x - (tl.sum(x, axis=0) / N)[None, :]
    tl.store(out_ptr + at, tl.trans(x), mask=(r < M)[:, None])

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 8),)](x, out, x.shape[0], 64, 8)
        return out
""",
    ),
)
