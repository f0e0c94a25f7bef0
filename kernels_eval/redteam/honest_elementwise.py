"""Honest element-wise kernels: every way of writing and launching one that people have."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import honest

_JIT = """
@triton.jit
def affine_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)
"""
_MODEL = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        affine_kernel[grid](x, out, n, BLOCK=1024)
        return out
"""

ENTRIES = (
    honest("grid given as a lambda", problems.AFFINE, _JIT + _MODEL),
    honest(
        "wrapper function with assertions, docstrings and a __main__ block",
        problems.AFFINE,
        _JIT
        + '''
def triton_affine(x: torch.Tensor) -> torch.Tensor:
    """Fused ReLU, scale and shift.

    Launches one program for each block.
    """
    assert x.is_cuda, "Tensor must be on CUDA."
    assert x.dtype == torch.float32
    x = x.contiguous()
    out = torch.empty_like(x)
    n_elements = x.numel()
    BLOCK_SIZE = 1024
    affine_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](x, out, n_elements, BLOCK=BLOCK_SIZE)
    return out

class ModelNew(nn.Module):
    """Optimised model."""
    def __init__(self) -> None:
        super(ModelNew, self).__init__()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return triton_affine(x)

if __name__ == "__main__":
    print(ModelNew()(torch.rand(4, 4).cuda()))
''',
    ),
    honest(
        "autotuned over block sizes and warps",
        problems.AFFINE,
        _JIT.replace(
            "@triton.jit",
            '@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w, num_stages=2) for b in (256, 512, 1024) for w in (2, 4, 8)], key=["n"])\n@triton.jit',
        )
        + _MODEL.replace("n, BLOCK=1024)", "n)"),
    ),
    honest(
        "heuristics and autotune stacked, with a pruner",
        problems.AFFINE,
        """
def prune(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= 512] or configs[:1]

@triton.autotune(configs=[triton.Config({"BLOCK": 2048}), triton.Config({"BLOCK": 512})], key=["n"],
                 prune_configs_by={"early_config_prune": prune})
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def affine_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
        tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=offsets < n)
"""
        + _MODEL.replace("n, BLOCK=1024)", "n)"),
    ),
    honest(
        "persistent programs: a grid of one for each multiprocessor, striding",
        problems.AFFINE,
        """
@triton.jit
def affine_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=offsets < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    def forward(self, x):
        out = torch.empty_like(x)
        affine_kernel[(min(self.sms, triton.cdiv(x.numel(), 256)),)](x, out, x.numel(), BLOCK=256)
        return out
""",
    ),
    honest(
        "two-dimensional grid with strides",
        problems.AFFINE,
        """
@triton.jit
def affine_2d(x_ptr, y_ptr, M, N, sxm, sxn, sym, syn, BM: tl.constexpr, BN: tl.constexpr):
    pid_m, pid_n = tl.program_id(axis=0), tl.program_id(axis=1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    x = tl.load(x_ptr + rm[:, None] * sxm + rn[None, :] * sxn, mask=mask, other=0)
    y = tl.where(x > 0, x, 0.0) * 2.0 + 1.0
    tl.store(y_ptr + rm[:, None] * sym + rn[None, :] * syn, y, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        affine_2d[(triton.cdiv(M, 16), triton.cdiv(N, 32))](
            x, y, M, N, x.stride(0), x.stride(1), y.stride(0), y.stride(1), BM=16, BN=32, num_warps=4)
        return y
""",
    ),
    honest(
        "three-dimensional grid over a four-dimensional tensor",
        problems.VOLUME,
        """
@triton.jit
def volume_kernel(x_ptr, y_ptr, C, H, W, BLOCK: tl.constexpr):
    b, c, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    base = ((b * C + c) * H + h).to(tl.int64) * W
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + base + cols, mask=cols < W, other=0.0)
    y = tl.sin(x) + tl.sqrt(tl.abs(x))
    tl.store(y_ptr + base + cols, y, mask=cols < W)

class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.size()
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        volume_kernel[B, C, H](x, y, C, H, W, BLOCK=triton.next_power_of_2(W))
        return y
""",
    ),
    honest(
        "device functions in helpers, a helper class of static methods",
        problems.GELU,
        """
@triton.jit
def cdf(x):
    return 0.5 * (1.0 + tl.math.erf(x * 0.7071067811865476))

@triton.jit
def gelu(x):
    return x * cdf(x)

@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, gelu(tl.load(x_ptr + i, mask=i < n)), mask=i < n)

class Launcher:
    BLOCK = 512
    @staticmethod
    def run(x):
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), Launcher.BLOCK),)](x, out, x.numel(), Launcher.BLOCK)
        return out

class ModelNew(nn.Module):
    def forward(self, x):
        return Launcher.run(x)
""",
    ),
    honest(
        "libdevice under its own name",
        problems.TANH_GELU,
        """
from triton.language.extra import libdevice

@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(out_ptr + i, 0.5 * x * (1.0 + libdevice.tanh(inner)), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
""",
    ),
    honest(
        "libdevice of CUDA by its long path, tanh by exponentials beside it",
        problems.TANH_GELU,
        """
import triton.language.extra.cuda.libdevice as ld
SQRT_2_OVER_PI: tl.constexpr = tl.constexpr(0.7978845608028654)

@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    inner = SQRT_2_OVER_PI * (x + 0.044715 * ld.pow(x, 3.0))
    tanh = 2.0 * tl.sigmoid(2.0 * inner) - 1.0
    tl.store(out_ptr + i, 0.5 * x * (1.0 + tanh), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
""",
    ),
    honest(
        "scalar argument, passed on as a float",
        problems.ADD_SCALED,
        """
@triton.jit
def add_scaled(x_ptr, y_ptr, o_ptr, alpha, n: tl.int32, BLOCK: tl.constexpr = 512):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, m) + alpha * tl.load(y_ptr + i, m), m)

class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        o = torch.empty_like(x)
        add_scaled[(triton.cdiv(x.numel(), 512),)](x, y, o, float(alpha), x.numel())
        return o
""",
    ),
    honest(
        "torch.autograd.Function around the launch, with a backward that is not used",
        problems.SWIGLU,
        """
@triton.jit
def swiglu_kernel(g, u, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    gate = tl.load(g + i, mask=m).to(tl.float32)
    tl.store(o + i, gate * tl.sigmoid(gate) * tl.load(u + i, mask=m), mask=m)

class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        out = torch.empty_like(gate)
        swiglu_kernel[(triton.cdiv(gate.numel(), 1024),)](gate, up, out, gate.numel(), BLOCK=1024)
        ctx.save_for_backward(gate, up)
        return out
    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        return grad * up, grad * gate

class ModelNew(nn.Module):
    def forward(self, gate, up):
        return SwiGLU.apply(gate, up)
""",
    ),
    honest(
        "dataclass configuration, functools.partial, cached block size",
        problems.SWIGLU,
        """
import functools
from dataclasses import dataclass

@dataclass(frozen=True)
class Settings:
    block: int = 256
    warps: int = 4

@triton.jit
def swiglu_kernel(g, u, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    gate = tl.load(g + i, mask=m)
    tl.store(o + i, gate / (1.0 + tl.exp(-gate)) * tl.load(u + i, mask=m), mask=m)

@functools.lru_cache(maxsize=None)
def blocks(n, block):
    return (triton.cdiv(n, block), 1, 1)

def run(settings, gate, up):
    out = torch.empty_like(gate)
    n = gate.numel()
    swiglu_kernel[blocks(n, settings.block)](gate, up, out, n, BLOCK=settings.block, num_warps=settings.warps)
    return out

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.run = functools.partial(run, Settings())
    def forward(self, gate, up):
        return self.run(gate, up)
""",
    ),
    honest(
        "closure that makes the launcher, kernel made by a factory",
        problems.AFFINE,
        """
def make(scale, shift):
    SCALE = tl.constexpr(scale)
    SHIFT = tl.constexpr(shift)
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(out_ptr + i, tl.maximum(x, 0.0) * SCALE + SHIFT, mask=i < n)
    def launch(x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
    return launch

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.launch = make(2.0, 1.0)
    def forward(self, x):
        return self.launch(x)
""",
    ),
    honest(
        "module-level plain constants and a mode chosen by a string",
        problems.AFFINE,
        """
BLOCK_SIZE: tl.constexpr = tl.constexpr(256)
SLOPE = tl.constexpr(2.0)

@triton.jit
def act(x, MODE: tl.constexpr):
    if MODE == "relu":
        return tl.maximum(x, 0.0)
    elif MODE == "abs":
        return tl.abs(x)
    else:
        tl.static_assert(False, "no such mode")

@triton.jit
def kernel(x_ptr, out_ptr, n, MODE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, act(x, MODE) * SLOPE + 1.0, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), MODE="relu")
        return out
""",
    ),
    honest(
        "flattened view in, reshaped out, reused output buffer kept on the module",
        problems.AFFINE,
        _JIT
        + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = None
    def forward(self, x):
        flat = x.reshape(-1)
        if self.buffer is None or self.buffer.numel() != flat.numel():
            self.buffer = torch.empty(flat.numel(), dtype=x.dtype, device=x.device)
        affine_kernel[(triton.cdiv(flat.numel(), 1024),)](flat, self.buffer, flat.numel(), BLOCK=1024)
        return self.buffer.view(x.shape)
""",
    ),
    honest(
        "warm-up launch in __init__",
        problems.AFFINE,
        _JIT
        + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        a = torch.zeros(1024, device="cuda")
        b = torch.empty_like(a)
        affine_kernel[(1,)](a, b, 1024, BLOCK=1024)
        torch.cuda.synchronize()
    def forward(self, x):
        out = torch.empty_like(x)
        with torch.cuda.device(x.device):
            affine_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
""",
    ),
    honest(
        "several elements a program in a static loop, evict hints, multiple_of",
        problems.AFFINE,
        """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, PER: tl.constexpr):
    base = tl.program_id(0) * BLOCK * PER
    for k in tl.static_range(PER):
        i = tl.max_contiguous(tl.multiple_of(base + k * BLOCK + tl.arange(0, BLOCK), BLOCK), BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0, cache_modifier=".cg")
        tl.store(out_ptr + i, tl.fma(tl.maximum(x, 0.0), 2.0, 1.0), mask=i < n, eviction_policy="evict_last")

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 128 * 4),)](x, out, x.numel(), BLOCK=128, PER=4)
        return out
""",
    ),
)
