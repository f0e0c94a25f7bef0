"""Honest kernels that rely on what a problem's inputs are, and reductions, losses, gathers of unusual make."""

from kernels_eval.redteam.entry import honest

_PROBLEM = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"

ENTRIES = (
    honest(
        "upper triangular product skipping tiles that are zero, output from zeros",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, A, B):
        return torch.triu(torch.matmul(A, B))
def get_inputs():
    return [torch.triu(torch.randn(128, 128)), torch.triu(torch.randn(128, 128))]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def tri(a, b, c, N, B: tl.constexpr):
    i = tl.program_id(0)
    j = tl.program_id(1)
    if i > j:
        return
    m = i * B + tl.arange(0, B)
    n = j * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k0 in range(i * B, (j + 1) * B, B):
        k = k0 + tl.arange(0, B)
        x = tl.load(a + m[:, None] * N + k[None, :], mask=(m[:, None] < N) & (k[None, :] < N), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < N) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, allow_tf32=False)
    keep = (m[:, None] <= n[None, :]) & (m[:, None] < N) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=keep)
class ModelNew(nn.Module):
    def forward(self, A, B):
        N = A.shape[0]
        C = torch.zeros_like(A)
        t = triton.cdiv(N, 32)
        tri[(t, t)](A, B, C, N, B=32)
        return C
""",
    ),
    honest(
        "permuted input read by its three strides, contiguous output",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x.mean(dim=-1, keepdim=True)
def get_inputs():
    return [torch.randn(16, 96, 40).permute(1, 0, 2)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def k(x_ptr, y_ptr, s0, s1, s2, A, B, C, BLOCK: tl.constexpr):
    a = tl.program_id(0)
    b = tl.program_id(1)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + a * s0 + b * s1 + c * s2, mask=c < C, other=0.0)
    mean = tl.sum(x, axis=0) / C
    tl.store(y_ptr + (a * B + b) * C + c, tl.sigmoid(x) * mean, mask=c < C)
class ModelNew(nn.Module):
    def forward(self, x):
        A, B, C = x.shape
        y = torch.empty((A, B, C), device=x.device, dtype=x.dtype)
        k[(A, B)](x, y, x.stride(0), x.stride(1), x.stride(2), A, B, C, BLOCK=64)
        return y
""",
    ),
    honest(
        "batch norm in eval with dropout, folded per channel in the kernel",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)
        self.drop = nn.Dropout(0.3)
        with torch.no_grad():
            self.bn.running_mean.normal_()
            self.bn.running_var.uniform_(0.5, 1.5)
            self.bn.weight.normal_()
            self.bn.bias.normal_()
        self.eval()
    def forward(self, x):
        return self.drop(F.relu(self.bn(x)))
def get_inputs():
    return [torch.randn(96, 12, 10, 10)]
def get_init_inputs():
    return [12]
""",
        """
@triton.jit
def bn_relu(x_ptr, y_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, C, HW, eps, BLOCK: tl.constexpr):
    nc = tl.program_id(0)
    c = nc % C
    inv = tl.rsqrt(tl.load(var_ptr + c) + eps) * tl.load(w_ptr + c)
    shift = tl.load(b_ptr + c) - tl.load(mean_ptr + c) * inv
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + nc * HW + i, mask=i < HW)
    tl.store(y_ptr + nc * HW + i, tl.maximum(v * inv + shift, 0.0), mask=i < HW)
class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)
        self.drop = nn.Dropout(0.3)
        with torch.no_grad():
            self.bn.running_mean.normal_()
            self.bn.running_var.uniform_(0.5, 1.5)
            self.bn.weight.normal_()
            self.bn.bias.normal_()
        self.eval()
    def forward(self, x):
        N, C, H, W = x.shape
        y = torch.empty_like(x)
        bn_relu[(N * C, triton.cdiv(H * W, 64))](x, y, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias, C, H * W, self.bn.eps, BLOCK=64)
        return y
""",
    ),
    honest(
        "bf16 layer norm of a 3-D input through a torch.autograd.Function with saved tensors",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d).to(torch.bfloat16)
    def forward(self, x):
        return self.ln(x)
def get_inputs():
    return [torch.randn(96, 5, 160, dtype=torch.bfloat16)]
def get_init_inputs():
    return [160]
""",
        """
@triton.jit
def ln_fwd(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    xc = tl.where(cols < N, x - mean, 0.)
    rstd = 1 / tl.sqrt(tl.sum(xc * xc, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    w = tl.load(W + cols, mask=cols < N).to(tl.float32)
    b = tl.load(B + cols, mask=cols < N).to(tl.float32)
    tl.store(Y + cols, xc * rstd * w + b, mask=cols < N)
class LN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = torch.empty_like(x)
        x2 = x.reshape(-1, x.shape[-1])
        M, N = x2.shape
        mean = torch.empty((M,), dtype=torch.float32, device=x.device)
        rstd = torch.empty((M,), dtype=torch.float32, device=x.device)
        MAX_FUSED = 65536 // x.element_size()
        BLOCK = min(MAX_FUSED, triton.next_power_of_2(N))
        if N > BLOCK:
            raise RuntimeError("This layer norm doesn't support feature dim >= 64KB.")
        num_warps = min(max(BLOCK // 256, 1), 8)
        ln_fwd[(M,)](x2, y, weight, bias, mean, rstd, x2.stride(0), N, eps, BLOCK=BLOCK, num_warps=num_warps, num_ctas=1)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.BLOCK = BLOCK
        ctx.eps = eps
        return y
    @staticmethod
    def backward(ctx, dy):
        raise NotImplementedError
layer_norm = LN.apply
class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d).to(torch.bfloat16)
    def forward(self, x):
        return layer_norm(x, self.ln.weight, self.ln.bias, self.ln.eps)
""",
    ),
    honest(
        "frobenius norm: two-stage reduction with a ping-pong of scratch buffers in a host while loop",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, x):
        norm = torch.norm(x, p="fro")
        return x / norm
def get_inputs():
    return [torch.randn(112, 4, 20, 20)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def square_sum(x_ptr, p_ptr, n, BLOCK: tl.constexpr, SQUARE: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    if SQUARE:
        x = x * x
    tl.store(p_ptr + pid, tl.sum(x, 0))
@triton.jit
def div(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) / tl.sqrt(tl.load(s_ptr)), mask=i < n)
class ModelNew(nn.Module):
    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1)
        n = flat.shape[0]
        cur, square, m = flat, True, n
        while True:
            blocks = triton.cdiv(m, 1024)
            nxt = torch.empty(blocks, device=x.device)
            square_sum[(blocks,)](cur, nxt, m, BLOCK=1024, SQUARE=square)
            cur, square, m = nxt, False, blocks
            if m == 1:
                break
        out = torch.empty_like(flat)
        div[(triton.cdiv(n, 1024),)](flat, cur, out, n, BLOCK=1024)
        return out.view(shape)
""",
    ),
    honest(
        "reverse cumulative sum with tl.cumsum(reverse=True) over chunks from the end",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        return torch.cumsum(x.flip(self.dim), dim=self.dim).flip(self.dim)
def get_inputs():
    return [torch.randn(128, 300)]
def get_init_inputs():
    return [1]
""",
        """
@triton.jit
def rev(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    chunks = tl.cdiv(N, BLOCK)
    for j in range(chunks):
        c = (chunks - 1 - j) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
        s = tl.cumsum(x, axis=0, reverse=True) + carry
        tl.store(y_ptr + row * N + c, s, mask=c < N)
        carry += tl.sum(x, axis=0)
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        y = torch.empty_like(x)
        rev[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
""",
    ),
    honest(
        "masked cumulative sum by associative_scan, bool loaded and cast",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x, mask):
        return torch.cumsum(x * mask, dim=self.dim)
def get_inputs():
    return [torch.randn(128, 200), torch.randint(0, 2, (128, 200)).bool()]
def get_init_inputs():
    return [1]
""",
        """
@triton.jit
def add(a, b):
    return a + b
@triton.jit
def scan(x_ptr, m_ptr, y_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    keep = tl.load(m_ptr + r * N + c, mask=c < N, other=0)
    x = tl.where(keep != 0, x, 0.0)
    tl.store(y_ptr + r * N + c, tl.associative_scan(x, 0, add), mask=c < N)
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
    def forward(self, x, mask):
        y = torch.empty_like(x)
        scan[(x.size(0),)](x, mask, y, x.size(1), BLOCK=triton.next_power_of_2(x.size(1)))
        return y
""",
    ),
    honest(
        "KL divergence: rows, then a final sum in one program, 0-d output",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.kl_div(torch.log(predictions), targets, reduction="batchmean")
def get_inputs():
    return [torch.rand(128, 72).softmax(dim=-1), torch.rand(128, 72).softmax(dim=-1)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def kl_rows(p_ptr, t_ptr, o_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + r * N + c, mask=c < N, other=1.0)
    t = tl.load(t_ptr + r * N + c, mask=c < N, other=0.0)
    v = tl.where(t > 0, t * (tl.log(t) - tl.log(p)), 0.0)
    tl.store(o_ptr + r, tl.sum(v, axis=0))
@triton.jit
def finish(o_ptr, out_ptr, M, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, M, BLOCK):
        i = s + tl.arange(0, BLOCK)
        acc += tl.load(o_ptr + i, mask=i < M, other=0.0)
    tl.store(out_ptr, tl.sum(acc) / M)
class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        M, N = predictions.shape
        rows = torch.empty(M, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        kl_rows[(M,)](predictions, targets, rows, N, BLOCK=128)
        finish[(1,)](rows, out, M, BLOCK=256)
        return out
""",
    ),
    honest(
        "hinge loss with a broadcast of (n, 1) against (n,)",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))
def get_inputs():
    return [torch.rand(512, 1), torch.randint(0, 2, (512,)).float() * 2 - 1]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def hinge(p_ptr, t_ptr, out_ptr, n, m, BP: tl.constexpr, BT: tl.constexpr):
    i = tl.program_id(0) * BP + tl.arange(0, BP)
    p = tl.load(p_ptr + i, mask=i < n, other=0.0)
    acc = tl.zeros((BP,), tl.float32)
    for s in range(0, m, BT):
        j = s + tl.arange(0, BT)
        t = tl.load(t_ptr + j, mask=j < m, other=0.0)
        v = tl.maximum(1.0 - p[:, None] * t[None, :], 0.0)
        v = tl.where((i[:, None] < n) & (j[None, :] < m), v, 0.0)
        acc += tl.sum(v, axis=1)
    tl.store(out_ptr + tl.program_id(0), tl.sum(acc, axis=0))
@triton.jit
def mean(parts_ptr, out_ptr, k, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(parts_ptr + i, mask=i < k, other=0.0), axis=0) / count)
class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        p = predictions.view(-1)
        n, m = p.numel(), targets.numel()
        blocks = triton.cdiv(n, 32)
        parts = torch.empty(blocks, device=p.device)
        out = torch.empty((), device=p.device)
        hinge[(blocks,)](p, targets, parts, n, m, BP=32, BT=64)
        mean[(1,)](parts, out, blocks, float(n * m), BLOCK=triton.next_power_of_2(blocks))
        return out
""",
    ),
    honest(
        "smooth L1 by a fixed number of persistent programs and one atomic each",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.smooth_l1_loss(predictions, targets)
def get_inputs():
    scale = torch.rand(())
    return [torch.rand(256, 96) * scale, torch.rand(256, 96)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def huber(p, t, out, n, inv_n, NUM_PROGS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(pid * BLOCK, n, NUM_PROGS * BLOCK):
        i = start + tl.arange(0, BLOCK)
        d = tl.load(p + i, mask=i < n, other=0.0) - tl.load(t + i, mask=i < n, other=0.0)
        a = tl.abs(d)
        acc += tl.where(a < 1.0, 0.5 * d * d, a - 0.5)
    tl.atomic_add(out, tl.sum(acc) * inv_n)
class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        n = predictions.numel()
        out = torch.zeros(1, device=predictions.device, dtype=torch.float32)
        huber[(8,)](predictions, targets, out, n, 1.0 / n, NUM_PROGS=8, BLOCK=1024)
        return out[0]
""",
    ),
    honest(
        "one-hot rows: zeros by PyTorch, ones stored by the kernel alone",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, labels):
        return F.one_hot(labels, 24).float()
def get_inputs():
    return [torch.randint(0, 24, (512,))]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def put(l, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(l + i, mask=i < n, other=0)
    tl.store(y + i * C + k, 1.0, mask=i < n)
class ModelNew(nn.Module):
    def forward(self, labels):
        y = torch.zeros((labels.shape[0], 24), device=labels.device)
        put[(triton.cdiv(labels.shape[0], 64),)](labels, y, labels.shape[0], 24, BLOCK=64)
        return y
""",
    ),
    honest(
        "counts: int64 per row, one int64 scalar by an integer atomic; tuple",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, x):
        return (x > 0.3).sum(dim=1), torch.count_nonzero(x > 1.0)
def get_inputs():
    return [torch.randn(256, 90)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def count(x_ptr, rows_ptr, total_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=-1.0)
    tl.store(rows_ptr + r, tl.sum((x > 0.3).to(tl.int32), axis=0).to(tl.int64))
    tl.atomic_add(total_ptr, tl.sum((x > 1.0).to(tl.int64), axis=0))
class ModelNew(nn.Module):
    def forward(self, x):
        rows = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        total = torch.zeros((), dtype=torch.int64, device=x.device)
        count[(x.shape[0],)](x, rows, total, x.shape[1], BLOCK=128)
        return (rows, total)
""",
    ),
    honest(
        "router: top 2 of 16 by two rounds of max and argmax, softmax over them",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, logits):
        values, indices = torch.topk(logits, 2, dim=-1)
        weights = torch.softmax(values, dim=-1)
        return weights, indices
def get_inputs():
    return [torch.randn(256, 16)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def top2(x_ptr, w_ptr, i_ptr, E: tl.constexpr):
    r = tl.program_id(0)
    e = tl.arange(0, E)
    x = tl.load(x_ptr + r * E + e)
    v0, i0 = tl.max(x, axis=0, return_indices=True)
    rest = tl.where(e == i0, float("-inf"), x)
    v1 = tl.max(rest, axis=0)
    i1 = tl.argmax(rest, axis=0)
    e1 = tl.exp(v1 - v0)
    tl.store(w_ptr + r * 2, 1.0 / (1.0 + e1))
    tl.store(w_ptr + r * 2 + 1, e1 / (1.0 + e1))
    tl.store(i_ptr + r * 2, i0.to(tl.int64))
    tl.store(i_ptr + r * 2 + 1, i1.to(tl.int64))
class ModelNew(nn.Module):
    def forward(self, logits):
        n, e = logits.shape
        w = torch.empty((n, 2), device=logits.device, dtype=logits.dtype)
        i = torch.empty((n, 2), device=logits.device, dtype=torch.int64)
        top2[(n,)](logits, w, i, e)
        return w, i
""",
    ),
    honest(
        "median of a row by tl.sort padded with infinity and a masked sum",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, x):
        return torch.median(x, dim=1).values
def get_inputs():
    return [torch.randn(128, 31)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def med(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=float("inf"))
    s = tl.sort(x, descending=False)
    tl.store(y_ptr + r, tl.sum(tl.where(c == (N - 1) // 2, s, 0.0), axis=0))
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        med[(x.shape[0],)](x, y, x.shape[1], BLOCK=32)
        return y
""",
    ),
    honest(
        "instance norm, Welford in one pass over chunks",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.inorm = nn.InstanceNorm2d(num_features=num_features)
    def forward(self, x):
        return self.inorm(x)
def get_inputs():
    return [torch.rand(80, 6, 18, 22)]
def get_init_inputs():
    return [6]
""",
        """
@triton.jit
def inorm(x_ptr, y_ptr, S, eps, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    base = x_ptr + p * S
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, S, BLOCK):
        i = s + tl.arange(0, BLOCK)
        ok = i < S
        v = tl.load(base + i, mask=ok, other=0.0)
        count = tl.where(ok, count + 1.0, count)
        delta = v - mean
        mean = tl.where(ok, mean + delta / tl.maximum(count, 1.0), mean)
        m2 = tl.where(ok, m2 + delta * (v - mean), m2)
    total = tl.sum(count, 0)
    mu = tl.sum(mean * count, 0) / total
    d = mean - mu
    var = (tl.sum(m2, 0) + tl.sum(d * d * count, 0)) / total
    rstd = tl.rsqrt(var + eps)
    for s in range(0, S, BLOCK):
        i = s + tl.arange(0, BLOCK)
        v = tl.load(base + i, mask=i < S, other=0.0)
        tl.store(y_ptr + p * S + i, (v - mu) * rstd, mask=i < S)
class ModelNew(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.inorm = nn.InstanceNorm2d(num_features)
    def forward(self, x):
        N, C, H, W = x.shape
        y = torch.empty_like(x)
        inorm[(N * C,)](x, y, H * W, self.inorm.eps, BLOCK=128)
        return y
""",
    ),
    honest(
        "pixel shuffle with relu, index arithmetic on int64",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, x):
        return F.pixel_shuffle(torch.relu(x), 2)
def get_inputs():
    return [torch.randn(72, 8, 6, 5)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def ps(x, y, n, C, H, W, R: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ow = i % (W * R)
    oh = (i // (W * R)) % (H * R)
    c = (i // (W * R * H * R)) % C
    b = i // (W * R * H * R * C)
    ic = c * R * R + (oh % R) * R + ow % R
    v = tl.load(x + ((b * C * R * R + ic) * H + oh // R) * W + ow // R, mask=i < n, other=0.0)
    tl.store(y + i, v * (v > 0), mask=i < n)
class ModelNew(nn.Module):
    def forward(self, x):
        B, CRR, H, W = x.shape
        R = 2
        y = torch.empty((B, CRR // (R * R), H * R, W * R), dtype=x.dtype, device=x.device)
        ps[(triton.cdiv(y.numel(), 512),)](x, y, y.numel(), CRR // (R * R), H, W, R, BLOCK=512)
        return y
""",
    ),
    honest(
        "index_add by atomics into zeros",
        _PROBLEM
        + """
class Model(nn.Module):
    def forward(self, src, index):
        return torch.zeros(16, src.shape[1]).index_add_(0, index, src)
def get_inputs():
    return [torch.randn(256, 40), torch.randint(0, 16, (256,))]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def add(src, index, out, D, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    to = tl.load(index + r)
    v = tl.load(src + r * D + c, mask=c < D)
    tl.atomic_add(out + to * D + c, v, mask=c < D)
class ModelNew(nn.Module):
    def forward(self, src, index):
        out = torch.zeros((16, src.shape[1]), dtype=src.dtype, device=src.device)
        add[(src.shape[0],)](src, index, out, src.shape[1], BLOCK=64)
        return out
""",
    ),
    honest(
        "ReLU at KernelBench's size 4096 x 393216",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)
def get_inputs():
    return [torch.rand((4096, 393216))]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def relu_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)
def triton_relu(x: torch.Tensor):
    assert x.is_cuda, "Tensor must be on CUDA"
    x = x.contiguous()
    out = torch.empty_like(x)
    n_elements = x.numel()
    grid = lambda meta: ((n_elements + meta["BLOCK_SIZE"] - 1) // meta["BLOCK_SIZE"],)
    relu_kernel[grid](x, out, n_elements, BLOCK_SIZE=1024)
    return out
class ModelNew(nn.Module):
    def forward(self, x):
        return triton_relu(x)
""",
    ),
    honest(
        "layer norm over 64 x 64 x 64 of a batch of 16 (cannot be cut), two kernels",
        _PROBLEM
        + """
class Model(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)
    def forward(self, x):
        return self.ln(x)
def get_inputs():
    return [torch.randn(16, 64, 64, 64)]
def get_init_inputs():
    return [(64, 64, 64)]
""",
        """
@triton.jit
def stats(x, mean, rstd, N, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    s = tl.zeros((BLOCK,), tl.float32)
    q = tl.zeros((BLOCK,), tl.float32)
    for o in range(0, N, BLOCK):
        i = o + tl.arange(0, BLOCK)
        v = tl.load(x + r * N + i, mask=i < N, other=0.0)
        s += v
        q += v * v
    m = tl.sum(s, 0) / N
    tl.store(mean + r, m)
    tl.store(rstd + r, 1.0 / tl.sqrt(tl.sum(q, 0) / N - m * m + eps))
@triton.jit
def norm(x, mean, rstd, w, b, y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = (tl.load(x + r * N + i, mask=i < N) - tl.load(mean + r)) * tl.load(rstd + r)
    tl.store(y + r * N + i, v * tl.load(w + i, mask=i < N) + tl.load(b + i, mask=i < N), mask=i < N)
class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)
    def forward(self, x):
        R = x.shape[0]
        N = x[0].numel()
        mean = torch.empty(R, device=x.device); rstd = torch.empty(R, device=x.device)
        y = torch.empty_like(x)
        stats[(R,)](x, mean, rstd, N, self.ln.eps, BLOCK=4096)
        norm[(R, triton.cdiv(N, 4096))](x, mean, rstd, self.ln.weight, self.ln.bias, y, N, BLOCK=4096)
        return y
""",
    ),
)
