"""Honest kernels where types, layouts, indices or the host's code are unusual."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import honest

_COPY = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, {expression}, mask=i < n)
"""


def _pointwise(expression: str, body: str) -> str:
    loaded = expression.replace("X", "tl.load(x_ptr + i, mask=i < n)")
    return (
        _COPY.format(expression=loaded)
        + "\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        + "".join(f"        {line}\n" for line in body.strip().splitlines())
    )


ENTRIES = (
    honest(
        "transposed output written by the kernel",
        problems.TRANSPOSE,
        """
@triton.jit
def transpose(x_ptr, y_ptr, M, N, B: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    x = tl.load(x_ptr + rm[:, None] * N + rn[None, :], mask=(rm[:, None] < M) & (rn[None, :] < N))
    tl.store(y_ptr + rn[:, None] * M + rm[None, :], tl.trans(x * 2.0), mask=(rn[:, None] < N) & (rm[None, :] < M))

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((N, M), device=x.device, dtype=x.dtype)
        transpose[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, y, M, N, B=16)
        return y
""",
    ),
    honest(
        "output returned as a transposed view, as the reference does",
        problems.TRANSPOSED_VIEW,
        _pointwise(
            "tl.sigmoid(X)",
            "y = torch.empty_like(x)\nkernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y.t()",
        ),
    ),
    honest(
        "another memory layout than the reference's",
        problems.AFFINE,
        """
@triton.jit
def kernel(x_ptr, y_ptr, M, N, syn, sym, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N)
    tl.store(y_ptr + row * sym + c * syn, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((N, M), device=x.device, dtype=x.dtype).t()
        kernel[(M,)](x, y, M, N, y.stride(1), y.stride(0), BLOCK=128)
        return y
""",
    ),
    honest(
        "input that is not contiguous, made so",
        problems.FROM_TRANSPOSED,
        _pointwise(
            "tl.exp(X)",
            "x = x.contiguous()\ny = torch.empty_like(x)\nkernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
    ),
    honest(
        "input that is not contiguous, read by its strides",
        problems.FROM_TRANSPOSED,
        """
@triton.jit
def kernel(x_ptr, y_ptr, sxm, sxn, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * sxm + c * sxn, mask=c < N)
    tl.store(y_ptr + row * N + c, tl.exp(x), mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        kernel[(M,)](x, y, *x.stride(), M, N, BLOCK=triton.next_power_of_2(N))
        return y
""",
    ),
    honest(
        "half precision in, float32 within, half out",
        problems.HALF,
        """
@triton.jit
def kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * N + c, (e / tl.sum(e, 0)).to(y_ptr.dtype.element_ty), mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
""",
    ),
    honest(
        "bfloat16, converted to float32 by the host and back by the kernel",
        problems.BFLOAT,
        _pointwise(
            "(X / (1.0 + tl.exp(-X))).to(tl.bfloat16)",
            "wide = x.to(torch.float32)\ny = torch.empty_like(x)\nkernel[(triton.cdiv(x.numel(), 256),)](wide, y, x.numel(), BLOCK=256)\nreturn y",
        ),
    ),
    honest(
        "float32 result converted to bfloat16 by the host",
        problems.BFLOAT,
        _pointwise(
            "X.to(tl.float32) * tl.sigmoid(X.to(tl.float32))",
            "y = torch.empty(x.shape, device=x.device, dtype=torch.float32)\nkernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y.to(x.dtype)",
        ),
    ),
    honest(
        "int8 output",
        problems.QUANTISE,
        """
from triton.language.extra.libdevice import rint

@triton.jit
def quantise(x_ptr, q_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = rint(tl.load(x_ptr + i, mask=i < n) * 20.0)
    tl.store(q_ptr + i, tl.minimum(tl.maximum(x, -128.0), 127.0).to(tl.int8), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        q = torch.empty(x.shape, device=x.device, dtype=torch.int8)
        quantise[(triton.cdiv(x.numel(), 512),)](x, q, x.numel(), BLOCK=512)
        return q
""",
    ),
    honest(
        "bool input",
        problems.MASKED,
        """
@triton.jit
def masked(x_ptr, m_ptr, y_ptr, n, value, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = tl.load(m_ptr + i, mask=i < n, other=0)
    tl.store(y_ptr + i, tl.where(m != 0, value, tl.load(x_ptr + i, mask=i < n)), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x, m):
        y = torch.empty_like(x)
        masked[(triton.cdiv(x.numel(), 256),)](x, m, y, x.numel(), 0.5, BLOCK=256)
        return y
""",
    ),
    honest(
        "bool input viewed as int8",
        problems.MASKED,
        """
@triton.jit
def masked(x_ptr, m_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(m_ptr + i, mask=i < n, other=0) == 0
    x = tl.load(x_ptr + i, mask=(i < n) & keep, other=0.5)
    tl.store(y_ptr + i, x, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x, m):
        y = torch.empty_like(x)
        masked[(triton.cdiv(x.numel(), 256),)](x, m.view(torch.int8), y, x.numel(), BLOCK=256)
        return y
""",
    ),
    honest(
        "bool output",
        problems.POSITIVE,
        _pointwise(
            "X > 0.25",
            "y = torch.empty(x.shape, dtype=torch.bool, device=x.device)\nkernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
    ),
    honest(
        "histogram by integer atomics",
        problems.HISTOGRAM,
        """
@triton.jit
def count(i_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    bins = tl.load(i_ptr + at, mask=mask, other=0)
    tl.atomic_add(out_ptr + bins, tl.full((BLOCK,), 1, tl.int64), mask=mask)

class ModelNew(nn.Module):
    def forward(self, i):
        out = torch.zeros(32, dtype=torch.int64, device=i.device)
        count[(triton.cdiv(i.numel(), 64),)](i, out, i.numel(), BLOCK=64)
        return out
""",
    ),
    honest(
        "embedding: a gather of rows by int64 indices",
        problems.EMBEDDING,
        """
@triton.jit
def gather(i_ptr, w_ptr, y_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.load(i_ptr + row)
    c = tl.arange(0, BLOCK)
    tl.store(y_ptr + row * D + c, tl.load(w_ptr + index * D + c, mask=c < D), mask=c < D)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 64)
    def forward(self, i):
        y = torch.empty((*i.shape, 64), device=i.device, dtype=self.table.weight.dtype)
        gather[(i.numel(),)](i, self.table.weight, y, 64, BLOCK=64)
        return y
""",
    ),
    honest(
        "cross entropy: losses of rows, then their mean in one program",
        problems.CROSS_ENTROPY,
        """
@triton.jit
def losses(x_ptr, t_ptr, l_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=float("-inf"))
    m = tl.max(x, axis=0)
    lse = m + tl.log(tl.sum(tl.exp(x - m), axis=0))
    tl.store(l_ptr + row, lse - tl.load(x_ptr + row * N + tl.load(t_ptr + row)))

@triton.jit
def mean(l_ptr, o_ptr, M, BLOCK: tl.constexpr):
    acc = 0.0
    for s in range(0, M, BLOCK):
        i = s + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(l_ptr + i, mask=i < M, other=0.0), axis=0)
    tl.store(o_ptr, acc / M)

class ModelNew(nn.Module):
    def forward(self, x, target):
        M, N = x.shape
        each = torch.empty(M, device=x.device, dtype=torch.float32)
        out = torch.empty([], device=x.device, dtype=torch.float32)
        losses[(M,)](x, target, each, N, BLOCK=triton.next_power_of_2(N))
        mean[(1,)](each, out, M, BLOCK=128)
        return out
""",
    ),
    honest(
        "mean squared error: squeeze of a keep-dims result",
        problems.MSE,
        """
@triton.jit
def mse(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(o_ptr, tl.sum(d * d) / n, sem="relaxed")

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.zeros((1,), dtype=torch.float32, device=x.device)
        mse[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out.squeeze()
""",
    ),
    honest(
        "rotary embedding on two halves, views passed as arguments",
        problems.ROPE,
        """
@triton.jit
def rope(a_ptr, b_ptr, c_ptr, s_ptr, oa_ptr, ob_ptr, stride, H: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, H)
    a, b = tl.load(a_ptr + row * stride + i), tl.load(b_ptr + row * stride + i)
    c, s = tl.load(c_ptr + row * H + i), tl.load(s_ptr + row * H + i)
    tl.store(oa_ptr + row * stride + i, a * c - b * s)
    tl.store(ob_ptr + row * stride + i, a * s + b * c)

class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        out = torch.empty_like(x)
        half = x.shape[-1] // 2
        rope[(x.shape[0],)](x[:, :half], x[:, half:], cos, sin, out[:, :half], out[:, half:], x.stride(0), H=half)
        return out
""",
    ),
    honest(
        "half of the output is a copy that PyTorch makes",
        problems.CONCATENATED,
        """
@triton.jit
def relu_into(y_ptr, o_ptr, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o_ptr + row * stride + c, tl.maximum(tl.load(y_ptr + row * N + c, mask=c < N), 0.0), mask=c < N)

class ModelNew(nn.Module):
    def forward(self, x, y):
        M, N = x.shape
        out = torch.empty((M, 2 * N), device=x.device, dtype=x.dtype)
        out[:, :N].copy_(x)
        relu_into[(M,)](y, out[:, N:], out.stride(0), N, BLOCK=64)
        return out
""",
    ),
    honest(
        "lower triangle: the rest is zeros from torch.zeros",
        problems.LOWER,
        """
@triton.jit
def lower(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = (c <= row) & (c < N)
    tl.store(y_ptr + row * N + c, tl.load(x_ptr + row * N + c, mask=mask) * 2.0, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        lower[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
""",
    ),
    honest(
        "max pooling with strides of the host's",
        problems.MAX_POOL,
        """
@triton.jit
def pool(x_ptr, y_ptr, H, W, OH, OW, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ow = i % OW
    oh = (i // OW) % OH
    plane = i // (OW * OH)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for dy in tl.static_range(2):
        for dx in tl.static_range(2):
            best = tl.maximum(best, tl.load(x_ptr + plane * H * W + (oh * 2 + dy) * W + ow * 2 + dx, mask=i < n, other=float("-inf")))
    tl.store(y_ptr + i, best, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        y = torch.empty((B, C, H // 2, W // 2), device=x.device, dtype=x.dtype)
        pool[(triton.cdiv(y.numel(), 128),)](x, y, H, W, H // 2, W // 2, y.numel(), BLOCK=128)
        return y
""",
    ),
    honest(
        "nearest upsampling",
        problems.UPSAMPLE,
        """
@triton.jit
def upsample(x_ptr, y_ptr, H, W, S: tl.constexpr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = i % (W * S)
    h = (i // (W * S)) % (H * S)
    plane = i // (W * S * H * S)
    tl.store(y_ptr + i, tl.load(x_ptr + (plane * H + h // S) * W + w // S, mask=i < n), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        y = x.new_empty((B, C, 2 * H, 2 * W))
        upsample[(triton.cdiv(y.numel(), 256),)](x, y, H, W, 2, y.numel(), BLOCK=256)
        return y
""",
    ),
    honest(
        "changes its input, as the reference does",
        problems.IN_PLACE,
        """
@triton.jit
def add_mul(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, (tl.load(x_ptr + i, mask=i < n) + 1.0) * 2.0, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        add_mul[(triton.cdiv(x.numel(), 256),)](x, x.numel(), BLOCK=256)
        return x
""",
    ),
    honest(
        "outputs of millionths",
        problems.TINY,
        _pointwise(
            "X * 1e-6",
            "y = torch.empty_like(x)\nkernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y",
        ),
    ),
    honest(
        "integers: remainder and multiplication of int64",
        problems.INTEGERS,
        """
@triton.jit
def kernel(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o_ptr + i, (tl.load(x_ptr + i, mask=m, other=0) * 3 + tl.load(y_ptr + i, mask=m, other=0)) % 7, mask=m)

class ModelNew(nn.Module):
    def forward(self, x, y):
        o = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), BLOCK=256)
        return o
""",
    ),
    honest(
        "sorted rows by tl.sort",
        problems.SORTED,
        """
@triton.jit
def kernel(x_ptr, y_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, N)
    tl.store(y_ptr + row * N + c, tl.sort(tl.load(x_ptr + row * N + c)))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1])
        return y
""",
    ),
    honest(
        "type annotations everywhere, keyword-only host arguments, walrus, f-string in an assertion",
        problems.SWIGLU,
        """
from typing import Optional, Tuple

@triton.jit
def kernel(
    g_ptr: tl.tensor, u_ptr: tl.tensor, o_ptr: tl.tensor, n: int, BLOCK: tl.constexpr
) -> None:
    '''One block.'''
    i: tl.tensor = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask: tl.tensor = i < n
    g = tl.load(g_ptr + i, mask=mask)
    tl.store(o_ptr + i, g * tl.sigmoid(g) * tl.load(u_ptr + i, mask=mask), mask=mask)

def run(gate: torch.Tensor, *, up: torch.Tensor, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    assert gate.shape == up.shape, f"shapes differ: {gate.shape} and {up.shape}"
    if out is None:
        out = torch.empty_like(gate)
    if (n := gate.numel()) == 0:
        return out
    kernel[(triton.cdiv(n, 256),)](gate, up, out, n, BLOCK=256)
    return out

class ModelNew(nn.Module):
    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return run(gate, up=up)
""",
    ),
    honest(
        "a temperature read from a tensor by the host",
        """import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))
    def forward(self, x, bias):
        return torch.tanh(x / self.temperature + bias)
def get_inputs():
    return [torch.randn(512, 64), torch.randn(1)]
def get_init_inputs():
    return []
""",
        """
@triton.jit
def kernel(x_ptr, y_ptr, n, temperature, bias, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) / temperature + bias
    tl.store(y_ptr + i, 2.0 * tl.sigmoid(2.0 * x) - 1.0, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))
    def forward(self, x, bias):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), self.temperature.item(), float(bias), BLOCK=256)
        return y
""",
    ),
    honest(
        "torch.no_grad, device guard, data_ptr asserts, requires_grad parameter, register_buffer",
        problems.RMS_NORM,
        """
@triton.jit
def rms(x_ptr, w_ptr, e_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    y = x / tl.sqrt(tl.sum(x * x, axis=0) / N + tl.load(e_ptr))
    tl.store(y_ptr + row * N + c, y * tl.load(w_ptr + c, mask=c < N, other=0.0), mask=c < N)

class ModelNew(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size), requires_grad=True)
        self.register_buffer("epsilon", torch.tensor([eps], dtype=torch.float32), persistent=False)
    @torch.no_grad()
    def forward(self, x):
        if not x.is_cuda:
            x = x.cuda()
        assert x.data_ptr() % 16 == 0 and x.is_contiguous() and x.dim() == 2
        y = torch.empty(x.size(), dtype=x.dtype, device=x.device)
        with torch.cuda.device(x.device.index or 0):
            rms[(x.size(0),)](x, self.weight, self.epsilon, y, x.size(1), BLOCK=128)
        return y
""",
    ),
)
