"""Honest kernels with matrix products: linear layers, batches, attention, convolutions."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import honest

_MATMUL_CALL = """
class ModelNew(nn.Module):
    def forward(self, x, w):
        M, K = x.shape
        N = w.shape[1]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda META: (triton.cdiv(M, META["BM"]) * triton.cdiv(N, META["BN"]),)
        matmul_kernel[grid](x, w, out, M, N, K, x.stride(0), x.stride(1), w.stride(0), w.stride(1), out.stride(0), out.stride(1), BM=16, BN=16, BK=32, GROUP=4)
        return out
"""

ENTRIES = (
    honest(
        "linear with epilogue, weights of nn.Linear",
        problems.LINEAR,
        """
@triton.jit
def linear_relu(x_ptr, w_ptr, b_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(x_ptr + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0.0)
        b = tl.load(w_ptr + rn[None, :] * K + (k + rk)[:, None], mask=(rn[None, :] < N) & ((k + rk)[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, allow_tf32=False)
    acc += tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(o_ptr + rm[:, None] * N + rn[None, :], tl.where(acc > 0, acc, 0.0), mask=(rm[:, None] < M) & (rn[None, :] < N))

class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        M, K = x.shape
        N = self.linear.out_features
        out = torch.empty(M, N, device=x.device, dtype=x.dtype)
        linear_relu[(triton.cdiv(M, 32), triton.cdiv(N, 16))](x, self.linear.weight, self.linear.bias, out, M, N, K, 32, 16, 32)
        return out
""",
    ),
    honest(
        "linear whose parameters are named otherwise, drawn in the same order",
        problems.LINEAR,
        """
import math
@triton.jit
def linear_relu(x_ptr, w_ptr, b_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    rn = (tl.program_id(1) * BN + tl.arange(0, BN))[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x_ptr + rm * K + rk[None, :], mask=rm < M, other=0.0)
        b = tl.load(w_ptr + rn * K + rk[:, None], mask=rn < N, other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(o_ptr + rm * N + rn, tl.maximum(acc + tl.load(b_ptr + rn, mask=rn < N, other=0.0), 0.0), mask=(rm < M) & (rn < N))

class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        source = nn.Linear(inner, outer)
        self.w = nn.Parameter(source.weight.detach().clone())
        self.b = nn.Parameter(source.bias.detach().clone())
    def forward(self, x):
        out = torch.empty((x.shape[0], self.w.shape[0]), device=x.device, dtype=x.dtype)
        linear_relu[(triton.cdiv(x.shape[0], 16), 3)](x, self.w, self.b, out, x.shape[0], self.w.shape[0], x.shape[1], BM=16, BN=16, BK=64)
        return out
""",
    ),
    honest(
        "linear that transposes its weight once and keeps it",
        problems.LINEAR,
        """
@triton.jit
def linear_relu(x_ptr, wt_ptr, b_ptr, o_ptr, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, K)
    a = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
    b = tl.load(wt_ptr + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
    acc = tl.dot(a, b, input_precision="tf32x3") + tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(o_ptr + rm[:, None] * N + rn[None, :], tl.maximum(acc, 0.0), mask=(rm[:, None] < M) & (rn[None, :] < N))

class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self._wt = None
    def forward(self, x):
        if self._wt is None:
            self._wt = self.linear.weight.t().contiguous()
        out = torch.empty((x.shape[0], self._wt.shape[1]), device=x.device, dtype=x.dtype)
        linear_relu[(triton.cdiv(x.shape[0], 16), triton.cdiv(out.shape[1], 16))](x, self._wt, self.linear.bias, out, *out.shape, K=x.shape[1], BM=16, BN=16)
        return out
""",
    ),
    honest(
        "matrix product with grouped programs (the tutorial's)",
        problems.MATMUL,
        """
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    num_pid_in_group = GROUP * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP
    group_size_m = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        accumulator += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))
"""
        + _MATMUL_CALL,
    ),
    honest(
        "matrix product with block pointers and tl.advance",
        problems.MATMUL,
        """
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    grid_n = tl.cdiv(N, BN)
    m, n = pid // grid_n, pid % grid_n
    a = tl.make_block_ptr(base=a_ptr, shape=(M, K), strides=(sam, sak), offsets=(m * BM, 0), block_shape=(BM, BK), order=(1, 0))
    b = tl.make_block_ptr(base=b_ptr, shape=(K, N), strides=(sbk, sbn), offsets=(0, n * BN), block_shape=(BK, BN), order=(1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1)), input_precision="ieee")
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(base=c_ptr, shape=(M, N), strides=(scm, scn), offsets=(m * BM, n * BN), block_shape=(BM, BN), order=(1, 0))
    tl.store(c, acc, boundary_check=(0, 1))
"""
        + _MATMUL_CALL,
    ),
    honest(
        "split-K with atomics",
        problems.MATMUL,
        """
@triton.jit
def split_k(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rm = m * BM + tl.arange(0, BM)
    rn = n * BN + tl.arange(0, BN)
    rk = z * BK + tl.arange(0, BK)
    a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
    b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0.0)
    tl.atomic_add(c_ptr + rm[:, None] * N + rn[None, :], tl.dot(a, b, input_precision="ieee"), mask=(rm < M)[:, None] & (rn < N)[None, :])

class ModelNew(nn.Module):
    def forward(self, x, w):
        M, K, N = *x.shape, w.shape[-1]
        c = torch.zeros((M, N), device=x.device, dtype=torch.float32)
        split_k[(triton.cdiv(M, 16), triton.cdiv(N, 16), 2)](x, w, c, M, N, K, BM=16, BN=16, BK=32)
        return c
""",
    ),
    honest(
        "matrix product by broadcasting and a sum, without tl.dot",
        problems.MATMUL,
        """
@triton.jit
def rows_times(a_ptr, b_ptr, c_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    a = tl.load(a_ptr + row * K + k, mask=k < K, other=0.0)
    b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
    tl.store(c_ptr + row * N + n, tl.sum(a[:, None] * b, axis=0), mask=n < N)

class ModelNew(nn.Module):
    def forward(self, x, w):
        out = torch.empty((x.shape[0], w.shape[1]), device=x.device, dtype=x.dtype)
        rows_times[(x.shape[0],)](x, w, out, w.shape[1], x.shape[1], BN=64, BK=64)
        return out
""",
    ),
    honest(
        "batched product with a grid of three",
        problems.BMM,
        """
@triton.jit
def bmm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2)
    a_ptr += batch * M * K
    b_ptr += batch * K * N
    c_ptr += batch * M * N
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in tl.range(0, K, BK, num_stages=2):
        rk = s + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))

class ModelNew(nn.Module):
    def forward(self, x, y):
        B, M, K = x.shape
        N = y.shape[2]
        out = torch.empty((B, M, N), device=x.device, dtype=x.dtype)
        bmm[(triton.cdiv(M, 16), triton.cdiv(N, 16), B)](x, y, out, M, N, K, BM=16, BN=16, BK=32)
        return out
""",
    ),
    honest(
        "attention, whole rows of scores at a time",
        problems.ATTENTION,
        """
@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, L, scale, BQ: tl.constexpr, BL: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1)
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    rl = tl.arange(0, BL)
    d = tl.arange(0, D)
    base = head * L * D
    q = tl.load(q_ptr + base + rq[:, None] * D + d[None, :], mask=rq[:, None] < L, other=0.0)
    k = tl.load(k_ptr + base + rl[:, None] * D + d[None, :], mask=rl[:, None] < L, other=0.0)
    v = tl.load(v_ptr + base + rl[:, None] * D + d[None, :], mask=rl[:, None] < L, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    s = tl.where(rl[None, :] < L, s, -float("inf"))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    tl.store(o_ptr + base + rq[:, None] * D + d[None, :], tl.dot(p, v, input_precision="ieee"), mask=rq[:, None] < L)

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, H, L, D = q.shape
        o = torch.empty_like(q)
        attention[(triton.cdiv(L, 16), B * H)](q, k, v, o, L, D ** -0.5, BQ=16, BL=64, D=D)
        return o
""",
    ),
    honest(
        "flash attention, causal, online softmax",
        problems.CAUSAL,
        """
@triton.jit
def inner(acc, m_i, l_i, q, k_base, v_base, rq, start, L, D: tl.constexpr, BL: tl.constexpr, scale):
    rl = start + tl.arange(0, BL)
    d = tl.arange(0, D)
    k = tl.load(k_base + rl[None, :] * D + d[:, None], mask=rl[None, :] < L, other=0.0)
    s = tl.dot(q, k, input_precision="ieee") * scale
    s = tl.where((rq[:, None] >= rl[None, :]) & (rl[None, :] < L), s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    alpha = tl.exp(m_i - m_new)
    p = tl.exp(s - m_new[:, None])
    v = tl.load(v_base + rl[:, None] * D + d[None, :], mask=rl[:, None] < L, other=0.0)
    acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
    return acc, m_new, l_i * alpha + tl.sum(p, 1)

@triton.jit
def flash(Q, K, V, O, L, scale, BQ: tl.constexpr, BL: tl.constexpr, D: tl.constexpr):
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    base = tl.program_id(1).to(tl.int64) * L * D
    q = tl.load(Q + base + rq[:, None] * D + d[None, :], mask=rq[:, None] < L, other=0.0)
    acc = tl.zeros([BQ, D], dtype=tl.float32)
    m_i = tl.full([BQ], value=float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BQ], dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BQ, BL):
        acc, m_i, l_i = inner(acc, m_i, l_i, q, K + base, V + base, rq, start, L, D, BL, scale)
    tl.store(O + base + rq[:, None] * D + d[None, :], acc / l_i[:, None], mask=rq[:, None] < L)

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, dim = q.shape
        q, k, v = (t.contiguous() for t in (q, k, v))
        o = torch.empty_like(q)
        flash[(triton.cdiv(length, 16), batch * heads)](q, k, v, o, length, 1.0 / (dim ** 0.5), 16, 16, dim, num_warps=4, num_stages=2)
        return o
""",
    ),
    honest(
        "depthwise convolution in one dimension",
        problems.DEPTHWISE,
        """
@triton.jit
def depthwise(x_ptr, w_ptr, b_ptr, y_ptr, C, L, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) % C
    base = tl.program_id(0) * L
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for t in tl.static_range(0, TAPS):
        at = i + t - TAPS // 2
        acc += tl.load(x_ptr + base + at, mask=(at >= 0) & (at < L), other=0.0) * tl.load(w_ptr + c * TAPS + t)
    tl.store(y_ptr + base + i, acc + tl.load(b_ptr + c), mask=i < L)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1, groups=8)
    def forward(self, x):
        B, C, L = x.shape
        y = torch.empty_like(x)
        depthwise[(B * C,)](x, self.conv.weight, self.conv.bias, y, C, L, TAPS=self.conv.kernel_size[0], BLOCK=64)
        return y
""",
    ),
    honest(
        "convolution in two dimensions with nested loops over channels and taps",
        problems.CONV2D,
        """
@triton.jit
def conv2d(x_ptr, w_ptr, b_ptr, y_ptr, H, W, CI: tl.constexpr, CO, R: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    co = tl.program_id(1)
    i = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // W, i % W
    acc = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(b_ptr + co)
    for ci in range(CI):
        for r in range(R):
            for s in range(R):
                h, w = row + r - 1, col + s - 1
                inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                x = tl.load(x_ptr + ((b * CI + ci) * H + h) * W + w, mask=inside, other=0.0)
                acc += x * tl.load(w_ptr + ((co * CI + ci) * R + r) * R + s)
    tl.store(y_ptr + (b * CO + co) * H * W + i, tl.maximum(acc, 0.0), mask=i < H * W)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, kernel_size=3, padding=1)
    def forward(self, x):
        B, CI, H, W = x.shape
        CO = self.conv.out_channels
        y = torch.empty((B, CO, H, W), device=x.device, dtype=x.dtype)
        conv2d[(B, CO, triton.cdiv(H * W, 128))](x, self.conv.weight, self.conv.bias, y, H, W, CI, CO, 3, BLOCK=128)
        return y
""",
    ),
    honest(
        "two layers in two launches over scratch, biases as a second argument",
        problems.MLP,
        """
@triton.jit
def linear(x_ptr, w_ptr, b_ptr, o_ptr, M, N, K: tl.constexpr, RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, K)
    a = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
    b = tl.load(w_ptr + rn[:, None] * K + rk[None, :], mask=rn[:, None] < N, other=0.0)
    acc = tl.dot(a, b.T, input_precision="ieee") + tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0)
    tl.store(o_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))

def apply(x, layer, relu):
    M, N = x.shape[0], layer.out_features
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    linear[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, layer.weight, layer.bias, out, M, N, K=layer.in_features, RELU=relu, BM=16, BN=16)
    return out

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 32)
    def forward(self, x):
        return apply(apply(x, self.first, True), self.second, False)
""",
    ),
    honest(
        "mixed policy: the library's product, an own epilogue",
        problems.LINEAR.replace("512, 64", "4096, 16").replace("64, 48", "16, 48"),
        """
@triton.jit
def epilogue(x_ptr, b_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) + tl.load(b_ptr + i % N, mask=i < n)
    tl.store(x_ptr + i, tl.maximum(x, 0.0), mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        out = torch.matmul(x, self.linear.weight.t())
        epilogue[(triton.cdiv(out.numel(), 1024),)](out, self.linear.bias, out.numel(), out.shape[1], BLOCK=1024)
        return out
""",
        policy="mixed",
    ),
)
