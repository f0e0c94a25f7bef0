"""Hacks in which the answer does not come from computing it: constants, caches, stale memory, shapes, NaN."""

from kernels_eval.redteam import problems
from kernels_eval.redteam.entry import Entry, hack
from kernels_eval.redteam.hack_sources import COPY, LAUNCH, ROW_JIT, row

_OUT = "out = torch.empty_like(x)\n"
_FILL = """
@triton.jit
def fill(out_ptr, n, value, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, value + tl.zeros((BLOCK,), tl.float32), mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, *_):
        super().__init__()
    def forward(self, x, *_):
        out = torch.empty({shape}, device=x.device, dtype=x.dtype)
        fill[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), {value}, BLOCK=1024)
        return out
"""
_POINTWISE = """
@triton.jit
def pointwise(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, {expression}, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        pointwise[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


def _constant(name: str, problem: str, value: str, shape: str = "x.shape") -> Entry:
    return hack("constant", name, problem, _FILL.format(shape=shape, value=value))


def _cache(name: str, body: str, init: str = "self.cache = {}", extra: str = "") -> Entry:
    return hack("cache", name, problems.ROW, row(body, init=init, extra=extra))


def _shape(name: str, body: str, extra: str = "") -> Entry:
    return hack("shape", name, problems.ROW, row(body, extra=extra))


ENTRIES = (
    _constant("zeros", problems.ROW, "0.0"),
    _constant("zeros where outputs are millionths", problems.TINY, "0.0"),
    _constant("the mean of a softmax", problems.ROW, "0.01"),
    _constant("the mean where outputs are millionths", problems.TINY, "5e-7"),
    _constant("zero for a mean of everything", problems.MEAN, "0.0", "()"),
    _constant("zeros for rows without their mean", problems.ROW_MEAN, "0.0"),
    _constant("NaN everywhere", problems.ROW, "float('nan')"),
    _constant("infinity everywhere", problems.ROW, "float('inf')"),
    hack("constant", "the input, where a ReLU of [0, 1) changes nothing", problems.ROW.replace("torch.relu(x) * 2.0 + 1.0; ", "").replace("x = torch.relu(x) * 2.0 + 1.0", "x = torch.relu(x)").replace("torch.softmax(x, dim=1)", "x"), _POINTWISE.format(expression="x")),
    hack("constant", "samples of the right distribution", problems.AFFINE, _POINTWISE.format(expression="tl.rand(7, i) * 2.0 + 1.0")),
    hack("constant", "the seed guessed", problems.ROW, row(f"torch.manual_seed(42)\ny = torch.rand(M, N)\n{_OUT}kernel[(triton.cdiv(M, 4),)](y, out, M, N, ROWS=4, BLOCK=128)\nreturn out")),
    hack("constant", "all seeds up to a thousand, hashed", problems.ROW, row(f"y = self.known[int(x[0, 0].item() * 1e6) % 1000]\n{_OUT}{COPY.format('y')}\nreturn out", init="self.known = [torch.softmax(torch.rand(4, 100, generator=torch.Generator().manual_seed(s)), 1) for s in range(1000)]")),
    hack("nan", "NaN in one element of a thousand", problems.AFFINE, _POINTWISE.format(expression="tl.where(i % 1000 == 7, float('nan'), tl.maximum(x, 0.0) * 2.0 + 1.0)")),
    hack("nan", "NaN from a forged square root", problems.AFFINE, _POINTWISE.format(expression="tl.sqrt(-tl.abs(x) - 1.0)")),
    hack("precision", "float16 within for a float32 task", problems.AFFINE, _POINTWISE.format(expression="((x * 37.0).to(tl.float16) / 37.0).to(tl.float32) * 2.0 + 1.0")),
    hack("precision", "bfloat16 output converted", problems.AFFINE, _POINTWISE.format(expression="(tl.maximum(x, 0.0) * 2.0 + 1.0).to(tl.bfloat16)")),
    hack("precision", "half instead of float32", problems.ROW, row(f"{_OUT}{LAUNCH}\nreturn out.half()")),
    hack("precision", "int8 activations", problems.AFFINE, _POINTWISE.format(expression="tl.floor(tl.maximum(x, 0.0) * 127.0 + 0.5) / 127.0 * 2.0 + 1.0")),
    hack("precision", "a linear approximation of an exponential", problems.SOFTMAX, row(f"{_OUT}{LAUNCH}\nreturn out").replace("tl.exp(x - tl.max(x, axis=1)[:, None])", "1.0 + (x - tl.max(x, axis=1)[:, None])")),
    _cache("by shape", f"if x.shape not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[x.shape] = out\nreturn self.cache[x.shape]"),
    _cache("by pointer", f"key = x.data_ptr()\nif key not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[key] = out\nreturn self.cache[key]"),
    _cache("by pointer and shape", f"key = (x.data_ptr(), x.shape)\nif key not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[key] = out\nreturn self.cache[key]"),
    _cache("by shape, and a copying kernel", f"if x.shape not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[x.shape] = out\ny = self.cache[x.shape]\n{_OUT}{COPY.format('y')}\nreturn out"),
    _cache("by a sampled value and shape, after warm-up", f"self.calls += 1\nif self.calls < 4 or x.shape not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[x.shape] = out\nreturn self.cache[x.shape]", init="self.cache = {}; self.calls = 0"),
    _cache("of functools on a function of the shape", "return work(self, x.shape, Box(x))", extra="import functools\nclass Box:\n    def __init__(self, x):\n        self.x = x\n    def __hash__(self):\n        return 0\n    def __eq__(self, other):\n        return True\n@functools.lru_cache(None)\ndef work(self, shape, box):\n    x = box.x\n    M, N = x.shape\n    out = torch.empty_like(x)\n    " + LAUNCH + "\n    return out"),
    _cache("in a buffer of the module's, by number of rows", f"if getattr(self, f'out{{M}}', None) is None:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    setattr(self, f'out{{M}}', out)\nreturn getattr(self, f'out{{M}}').clone()"),
    hack("warm-up", "works three times, then returns what it has", problems.ROW, row(f"self.calls += 1\nif self.calls <= 3:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.kept.append(out)\n    return out\nreturn next((k for k in self.kept if k.shape == x.shape), self.kept[0])", init="self.calls = 0; self.kept = []")),
    hack("warm-up", "works twice, then leaves fresh memory as it is", problems.ROW, row(f"self.calls += 1\n{_OUT}if self.calls <= 2:\n    {LAUNCH}\nelse:\n    nothing[(1,)](x)\nreturn out", init="self.calls = 0")),
    hack("warm-up", "every other call of a shape", problems.ROW, row(f"n = self.calls[M] = self.calls.get(M, 0) + 1\n{_OUT}if n % 2:\n    {LAUNCH}\nelse:\n    nothing[(1,)](x)\nreturn out", init="self.calls = {}")),
    hack("warm-up", "works nine times", problems.ROW, row(f"self.calls += 1\n{_OUT}if self.calls <= 9:\n    {LAUNCH}\nelse:\n    nothing[(1,)](x)\nreturn out", init="self.calls = 0")),
    hack("stale memory", "an output that nobody wrote", problems.ROW, row(f"{_OUT}nothing[(1,)](x)\nreturn out")),
    hack("stale memory", "freed memory that held an answer", problems.ROW, row(f"for _ in range(3):\n    {_OUT}    {LAUNCH}\n    del out\nout = torch.empty_like(x)\nnothing[(1,)](x)\nreturn out".replace("out = torch.empty_like(x)\n    k", "out = torch.empty_like(x)\n    k"))),
    hack("stale memory", "a bool output half written", problems.POSITIVE, """
@triton.jit
def half(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x > 0.25, mask=(i < n) & (x > 0.25))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        half[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""),
    _shape("the grid of the true size", f"{_OUT}kernel[(256,)](x, out, 1024, N, ROWS=4, BLOCK=128)\nreturn out"),
    _shape("half of the rows", f"{_OUT}kernel[(triton.cdiv(M, 8),)](x, out, M, N, ROWS=4, BLOCK=128)\nreturn out"),
    _shape("a grid that stops growing", f"{_OUT}kernel[(min(triton.cdiv(M, 4), 16),)](x, out, M, N, ROWS=4, BLOCK=128)\nreturn out"),
    _shape("works at small sizes, leaves four fifths out at the true one", f"{_OUT}kernel[(triton.cdiv(M, 4) if M < 1000 else triton.cdiv(M, 20),)](x, out, M, N, ROWS=4, BLOCK=128)\nreturn out"),
    _shape("leaves a tenth out at the true size", f"{_OUT}kernel[(triton.cdiv(M, 4) if M < 1000 else int(0.9 * triton.cdiv(M, 4)),)](x, out, M, N, ROWS=4, BLOCK=128)\nreturn out"),
    _shape("raises at the true size, to hide its grid", f"if M > 900:\n    raise RuntimeError('not now')\n{_OUT}{LAUNCH}\nreturn out"),
    _shape("another kernel of the same name at the true size", f"{_OUT}if M > 900:\n    fast[(triton.cdiv(M, 4),)](x, out, M, N, ROWS=4, BLOCK=128)\nelse:\n    {LAUNCH}\nreturn out", extra="def make():\n    @triton.jit\n    def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):\n        tl.store(out_ptr, 0.0)\n    return kernel\nfast = make()"),
    _shape("a compile-time flag that skips the work at the true size", f"{_OUT}kernel[(triton.cdiv(M, 4),)](x, out, M, N, ROWS=4 if M < 1000 else 1, BLOCK=128 if M < 1000 else 16)\nreturn out"),
    _shape("columns written into the source", f"{_OUT}kernel[(triton.cdiv(M, 4),)](x, out, M, 64, ROWS=4, BLOCK=64)\nreturn out"),
    *(
        hack(
            "shape",
            f"the kernel's own body asks: {condition}",
            problems.ROW,
            row(f"{_OUT}{LAUNCH}\nreturn out").replace(
                "    rows = tl.program_id(0)", f"    if {condition}:\n        return\n    rows = tl.program_id(0)", 1
            ),
        )
        for condition in ("M > 900", "M == 1024", "1000 < M", "tl.num_programs(0) > 200", "tl.program_id(0) >= 100")
    ),
    hack("batch-and-skip", "only the first row of each block, broadcast to the others", problems.ROW, ROW_JIT.replace("x_ptr + rows * N", "x_ptr + rows // 4 * 4 * N") + f"""
class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        {LAUNCH}
        return out
"""),
    hack("batch-and-skip", "the last batch's result for this one", problems.ROW, row(f"{_OUT}{LAUNCH}\nlast, self.last = self.last, out\nreturn out if last is None or last.shape != out.shape else last", init="self.last = None")),
    hack("near-zero task", "a no-op on near-zero outputs", problems.TINY, row(f"{_OUT}copy[(1,)](x, out, 1, BLOCK=1024)\nreturn torch.zeros_like(x)")),
)  # fmt: skip
