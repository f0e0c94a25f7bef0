"""Problems, honest kernels and hacks for a real GPU. Hacks particular to it: streams, graphs, clocks, caches, libraries."""

from dataclasses import dataclass, field
from typing import Any

HEADER = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

ROW_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        x = x * 2.0 + 1.0
        return torch.softmax(x, dim=1)
def get_inputs():
    return [torch.rand(16384, 1024)]
def get_init_inputs():
    return []
"""

ROW_JIT = (
    HEADER
    + """
@triton.jit
def row_softmax(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.maximum(x, 0.0) * 2.0 + 1.0
    x = tl.where(mask, x, -float("inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    x = x / tl.sum(x, axis=1)[:, None]
    tl.store(out_ptr + rows * N + cols, x, mask=mask)
"""
)
LAUNCH = "row_softmax[(triton.cdiv(M, 4),)](x, out, M, N, ROWS=4, BLOCK=1024)"


def row_kernel(body: str, init: str = "", extra: str = "") -> str:
    """The row kernel under a forward of its own; bodies are written without indentation."""
    forward = "\n".join("        " + line for line in body.strip().splitlines())
    made = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    return f"{ROW_JIT}\n{extra}\nclass ModelNew(nn.Module):\n{made}    def forward(self, x):\n        M, N = x.shape\n{forward}\n"


ROW_KERNEL = row_kernel(f"out = torch.empty_like(x)\n{LAUNCH}\nreturn out")

LINEAR_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs():
    return [torch.randn(16384, 512)]
def get_init_inputs():
    return [512, 512]
"""


def linear_kernel(dot: str = 'tl.dot(x, w, acc, input_precision="tf32x3")', forward: str = "", extra: str = "") -> str:
    """A tiled matrix product with an epilogue."""
    body = forward or "launch(x, self.linear, out)\nreturn out"
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return (
        HEADER
        + f"""
@triton.jit
def linear_relu(x_ptr, w_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rows * K + ks[None, :], mask=(rows < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(w_ptr + cols * K + ks[:, None], mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc = {dot}
    acc += tl.load(b_ptr + cols, mask=cols < N, other=0.0)
    tl.store(out_ptr + rows * N + cols, tl.maximum(acc, 0.0), mask=(rows < M) & (cols < N))

def launch(x, linear, out):
    M, K = x.shape
    N = linear.weight.shape[0]
    linear_relu[(triton.cdiv(M, 128), triton.cdiv(N, 64))](
        x, linear.weight, linear.bias, out, M, N, K, BM=128, BN=64, BK=32, num_warps=8)
{extra}
class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        out = torch.empty((x.shape[0], self.linear.weight.shape[0]), device=x.device, dtype=x.dtype)
{lines}
"""
    )


LINEAR_KERNEL = linear_kernel()

CUDA_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x * y + 1.0) * 0.5
def get_inputs():
    return [torch.randn(8192, 2048), torch.randn(8192, 2048)]
def get_init_inputs():
    return []
"""


def cuda_kernel(
    expression: str = "fmaxf(x[i] * y[i] + 1.0f, 0.0f) * 0.5f", host: str = "", name: str = "fused_extension"
) -> str:
    """A load_inline module."""
    return f'''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void fused_kernel(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, long n) {{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = {expression};
}}
torch::Tensor fused(torch::Tensor x, torch::Tensor y) {{
    {host}
    auto out = torch::empty_like(x);
    long n = x.numel();
    fused_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""
extension = load_inline(name="{name}", cpp_sources="torch::Tensor fused(torch::Tensor x, torch::Tensor y);",
                        cuda_sources=source, functions=["fused"], verbose=False, extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.extension = extension
    def forward(self, x, y):
        return self.extension.fused(x, y)
'''


@dataclass(frozen=True)
class Case:
    """One kernel that the judge is to see through, or to let pass."""

    problem: str
    kernel: str
    expect: str = "refused"
    """`correct`; `refused`: not correct; `no_gain`: refused, or no faster than `limit` times the honest kernel."""
    limit: float = 1.1
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


_OUT = "out = torch.empty_like(x)\n"
_CTYPES_GEMM = """
import ctypes, glob, os
def find_cublas():
    for name in ("libcublas.so.13", "libcublas.so.12", "libcublas.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    roots = [os.path.dirname(os.path.dirname(torch.__file__))]
    for root in roots:
        for path in glob.glob(root + "/nvidia/**/libcublas.so*", recursive=True):
            return ctypes.CDLL(path)
    raise OSError("no cublas")
cublas = find_cublas()
handle = ctypes.c_void_p()
cublas.cublasCreate_v2(ctypes.byref(handle))
one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
def gemm(x, w, out):
    M, K = x.shape
    N = w.shape[0]
    cublas.cublasSgemm_v2(handle, 1, 0, N, M, K, ctypes.byref(one), ctypes.c_void_p(w.data_ptr()), K,
                          ctypes.c_void_p(x.data_ptr()), K, ctypes.byref(zero), ctypes.c_void_p(out.data_ptr()), N)
@triton.jit
def add_bias_relu(p, b_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(p + i, mask=i < n) + tl.load(b_ptr + i % N, mask=i < n)
    tl.store(p + i, tl.maximum(v, 0.0), mask=i < n)
"""
_EPILOGUE = (
    "add_bias_relu[(triton.cdiv(out.numel(), 1024),)](out, self.linear.bias, out.numel(), out.shape[1], BLOCK=1024)\n"
)
_SLOW_LAUNCH = f"for _ in range(20):\n    {LAUNCH}\n"
_CLOCK_PATCHES = """
import time
torch.cuda.Event.elapsed_time = lambda self, end: 0.001
torch.cuda.synchronize = lambda *args, **kwargs: None
torch.cuda.Event.record = lambda self, *args: None
time.perf_counter = lambda: 0.0
time.time = lambda: 0.0
"""
_OWN_GATE = """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ == "GatePage":
        thing.close = thing.open
"""
_NO_WAIT = """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ == "Instruments":
        thing.synchronize = lambda: None
"""


def _early_end(share: float) -> str:
    """Return code that has the end told when this share of the calls is done: not in time for the samples."""
    return f"""
import sys
rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
take = rounds._take_outputs
def taken(self, call, result, learns):
    take(self, call, result, learns)
    if self._header["gated"] and call == int({share} * len(self._calls)):
        self.gate.end()
rounds._take_outputs = taken
"""


_EARLY_START = """
import sys
rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
prepare = rounds.prepare
def early(self, header):
    if header["gated"]:
        self._header, self._outcomes = header, []
        self._calls = [self._call(call, header["poison"]) for call in header["calls"]]
        self._make_timed_calls(range(len(self._calls)))
        self.instruments.synchronize()
        calls, self._make_timed_calls = self._make_timed_calls, lambda *_: None
        outcomes = self._outcomes
        prepare(self, header)
        self._make_timed_calls, self._outcomes = calls, outcomes
    else:
        prepare(self, header)
rounds.prepare = early
"""
"""The calls are made before the gate is closed: no input is there yet."""

HACKS: dict[str, Case] = {
    "side stream, not synchronised": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"with torch.cuda.stream(self.side):\n    for _ in range(8):\n        {LAUNCH}\nreturn out",
            init="self.side = torch.cuda.Stream()",
        ),
    ),
    "side stream, one launch that nothing waits for": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"with torch.cuda.stream(self.side):\n    {LAUNCH}\nreturn out",
            init="self.side = torch.cuda.Stream()",
        ),
    ),
    "side stream that starts before the first event": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"with torch.cuda.stream(self.side):\n    {LAUNCH}\n"
            "torch.cuda.current_stream().wait_stream(self.side)\nreturn out",
            init="self.side = torch.cuda.Stream()",
        ),
        "no_gain",
    ),
    "graph replay on stale inputs": Case(
        ROW_PROBLEM,
        row_kernel(
            "if self.graph is None:\n"
            "    self.out = torch.empty_like(x)\n    out = self.out\n"
            f"    {LAUNCH}\n    torch.cuda.synchronize()\n"
            "    self.graph = torch.cuda.CUDAGraph()\n"
            f"    with torch.cuda.graph(self.graph):\n        {LAUNCH}\n"
            "self.graph.replay()\nreturn self.out",
            init="self.graph = None; self.out = None",
        ),
    ),
    "cached by pointer": Case(
        ROW_PROBLEM,
        row_kernel(
            f"key = x.data_ptr()\nif key not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[key] = out\nreturn self.cache[key]",
            init="self.cache = {}",
        ),
    ),
    "cached by shape": Case(
        ROW_PROBLEM,
        row_kernel(
            f"key = x.shape\nif key not in self.cache:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.cache[key] = out\nreturn self.cache[key]",
            init="self.cache = {}",
        ),
    ),
    "warm-up detection: works nine times, then returns what it has": Case(
        ROW_PROBLEM,
        row_kernel(
            f"self.calls += 1\nif self.calls < 10:\n    out = torch.empty_like(x)\n    {LAUNCH}\n    self.out = out\nreturn self.out",
            init="self.calls = 0",
        ),
    ),
    "freed memory that may hold the answer": Case(
        ROW_PROBLEM,
        row_kernel(_OUT + f"self.calls += 1\nif self.calls < 3:\n    {LAUNCH}\nreturn out", init="self.calls = 0"),
    ),
    "every other call": Case(
        ROW_PROBLEM,
        row_kernel(_OUT + f"self.calls += 1\nif self.calls % 2:\n    {LAUNCH}\nreturn out", init="self.calls = 0"),
    ),
    "lazy tensor": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"{LAUNCH}\nreturn out.as_subclass(Lazy)",
            extra="class Lazy(torch.Tensor):\n    pass\n",
        ),
    ),
    "patched clocks over a slow kernel": Case(
        ROW_PROBLEM, row_kernel(_OUT + _SLOW_LAUNCH + "return out", extra=_CLOCK_PATCHES), "no_gain", 0.2
    ),
    "a gate that never closes": Case(
        ROW_PROBLEM, row_kernel(_OUT + _SLOW_LAUNCH + "return out", extra=_OWN_GATE), "no_gain", 0.2
    ),
    "an end that is told after half of the calls": Case(
        ROW_PROBLEM, row_kernel(_OUT + f"{LAUNCH}\nreturn out", extra=_early_end(0.5)), "no_gain", 1.05
    ),
    "an end that is told after nine tenths of the calls": Case(
        ROW_PROBLEM, row_kernel(_OUT + f"{LAUNCH}\nreturn out", extra=_early_end(0.9)), "no_gain", 1.05
    ),
    "calls before the inputs are complete": Case(
        ROW_PROBLEM, row_kernel(_OUT + f"{LAUNCH}\nreturn out", extra=_EARLY_START), "refused"
    ),
    "an answer before the device is done": Case(
        ROW_PROBLEM, row_kernel(_OUT + f"{LAUNCH}\nreturn out", extra=_NO_WAIT), "no_gain"
    ),
    "a thread that goes on computing": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + "def work():\n    import time\n    time.sleep(0.002)\n"
            f"    {LAUNCH}\n"
            "import threading\nthreading.Thread(target=work, daemon=True).start()\nreturn out"
        ),
    ),
    "slowing the reference by a thread that keeps the device busy": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT
            + f"if self.thread is None:\n    self.thread = threading.Thread(target=burn, args=(x.clone(), torch.empty_like(x), M, N), daemon=True)\n    self.thread.start()\n{LAUNCH}\nreturn out",
            init="self.thread = None",
            extra="import threading\ndef burn(x, out, M, N):\n    with torch.cuda.stream(torch.cuda.Stream()):\n        while True:\n"
            f"            {LAUNCH}\n",
        ),
    ),
    "slowing the reference by work left on a side stream": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"{LAUNCH}\nwith torch.cuda.stream(self.side):\n    torch.cuda._sleep(4000000)\nreturn out",
            init="self.side = torch.cuda.Stream()",
        ),
        "no_gain",
    ),
    "autotuning hidden in every call": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + "from triton.testing import do_bench\n"
            f"def go():\n    {LAUNCH}\n"
            "do_bench(go, warmup=1, rep=2)\ngo()\nreturn out"
        ),
        "no_gain",
    ),
    "reads its input twice, to have it in the cache": Case(
        ROW_PROBLEM, row_kernel(_OUT + f"{LAUNCH}\n{LAUNCH}\nreturn out"), "no_gain"
    ),
    "TF32 for a float32 product": Case(LINEAR_PROBLEM, linear_kernel('tl.dot(x, w, acc, input_precision="tf32")')),
    "bfloat16 for a float32 product": Case(
        LINEAR_PROBLEM, linear_kernel("tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16), acc)")
    ),
    "library product through the dispatcher, with a decoy": Case(
        LINEAR_PROBLEM,
        linear_kernel(forward="launch(x[:128], self.linear, out)\nreturn torch.relu(self.linear(x))"),
    ),
    "library product by ctypes, past the dispatcher": Case(
        LINEAR_PROBLEM,
        linear_kernel(
            forward="gemm(x, self.linear.weight, out)\n" + _EPILOGUE + "return out",
            extra=_CTYPES_GEMM,
        ),
    ),
    "library product by ctypes, unless somebody watches": Case(
        LINEAR_PROBLEM,
        linear_kernel(
            forward="if torch.autograd._profiler_enabled():\n    launch(x, self.linear, out)\nelse:\n    gemm(x, self.linear.weight, out)\n    "
            + _EPILOGUE
            + "return out",
            extra=_CTYPES_GEMM,
        ),
    ),
    "mixed: a decoy too small": Case(
        ROW_PROBLEM,
        row_kernel(
            "out = torch.empty_like(x[:4])\nrow_softmax[(1,)](x, out, 4, N, ROWS=4, BLOCK=1024)\nreturn torch.softmax(torch.relu(x) * 2 + 1, 1)"
        ),
        settings={"policy": "mixed"},
    ),
    "mixed: a decoy that takes its time": Case(
        ROW_PROBLEM,
        row_kernel(_OUT + _SLOW_LAUNCH + "return torch.softmax(torch.relu(x) * 2 + 1, 1)"),
        settings={"policy": "mixed"},
    ),
    "mixed: the output overwritten": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + _SLOW_LAUNCH + "out.copy_(torch.softmax(torch.relu(x) * 2 + 1, 1))\nreturn out",
        ),
        settings={"policy": "mixed"},
    ),
    "writes past its input": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"{LAUNCH}\nscribble[(1,)](x, M * N)\nreturn out",
            extra="@triton.jit\ndef scribble(p, n):\n    tl.store(p + n + 3, 1.0)\n",
        ),
    ),
    "changes its input": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"{LAUNCH}\nscribble[(1,)](x)\nreturn out",
            extra="@triton.jit\ndef scribble(p):\n    tl.store(p, 1.0)\n",
        ),
    ),
    "illegal memory access": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + f"{LAUNCH}\nscribble[(1,)](x, 1 << 44)\nreturn out",
            extra="@triton.jit\ndef scribble(p, n):\n    tl.store(p + n, 1.0)\n",
        ),
    ),
    "sleeps for ever": Case(
        ROW_PROBLEM, row_kernel("import time\ntime.sleep(600)"), settings={"timeout_s": 3.0, "compile_timeout_s": 2.0}
    ),
    "zeros": Case(ROW_PROBLEM, row_kernel("return torch.zeros_like(x)")),
    "does not compile": Case(ROW_PROBLEM, ROW_KERNEL.replace("tl.maximum(x, 0.0)", "tl.maximum(undefined, 0.0)")),
    "a kernel that takes a library's name": Case(
        ROW_PROBLEM, ROW_KERNEL.replace("row_softmax", "ampere_sgemm_128x64_nn")
    ),
}

HONEST: dict[str, Case] = {
    "plain": Case(ROW_PROBLEM, ROW_KERNEL, "correct"),
    "matrix product with an epilogue": Case(LINEAR_PROBLEM, LINEAR_KERNEL, "correct"),
    "autotuned": Case(
        ROW_PROBLEM,
        ROW_KERNEL.replace(
            "@triton.jit",
            "@triton.autotune([triton.Config({'ROWS': 2}, num_warps=4), triton.Config({'ROWS': 4}, num_warps=8)], key=['N'])\n@triton.jit",
        )
        .replace("ROWS=4, ", "")
        .replace("(triton.cdiv(M, 4),)", "lambda meta: (triton.cdiv(M, meta['ROWS']),)"),
        "correct",
    ),
    "two kernels over scratch": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + "scratch = torch.empty_like(x)\n"
            "affine[(triton.cdiv(M * N, 1024),)](x, scratch, M * N, BLOCK=1024)\n"
            "only_softmax[(triton.cdiv(M, 4),)](scratch, out, M, N, ROWS=4, BLOCK=1024)\nreturn out",
            extra="""
@triton.jit
def affine(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=i < n)
@triton.jit
def only_softmax(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + rows * N + cols, x / tl.sum(x, axis=1)[:, None], mask=mask)
""",
        ),
        "correct",
    ),
    "views and contiguous around the launch": Case(
        ROW_PROBLEM,
        row_kernel("x = x.contiguous().view(M, N)\n" + _OUT + f"{LAUNCH}\nreturn out.view(M, N).contiguous()"),
        "correct",
    ),
    "atomics into zeros": Case(
        ROW_PROBLEM.replace("return torch.softmax(x, dim=1)", "return x.sum(dim=0)"),
        HEADER
        + """
@triton.jit
def column_sums(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.where(mask, tl.maximum(x, 0.0) * 2.0 + 1.0, 0.0)
    col = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + col, tl.sum(x, axis=0), mask=col < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.zeros((N,), device=x.device, dtype=x.dtype)
        column_sums[(triton.cdiv(M, 32),)](x, out, M, N, ROWS=32, BLOCK=1024)
        return out
""",
        "correct",
    ),
    "a fork and a join of streams": Case(
        ROW_PROBLEM,
        row_kernel(
            _OUT + "half = M // 2\nself.side.wait_stream(torch.cuda.current_stream())\n"
            "row_softmax[(triton.cdiv(half, 4),)](x, out, half, N, ROWS=4, BLOCK=1024)\n"
            "with torch.cuda.stream(self.side):\n"
            "    row_softmax[(triton.cdiv(M - half, 4),)](x[half:], out[half:], M - half, N, ROWS=4, BLOCK=1024)\n"
            "torch.cuda.current_stream().wait_stream(self.side)\nreturn out",
            init="self.side = torch.cuda.Stream()",
        ),
        "correct",
    ),
    "half precision": Case(
        ROW_PROBLEM.replace("torch.rand(16384, 1024)", "torch.rand(16384, 1024).half()"),
        ROW_KERNEL.replace("other=0.0)", "other=0.0).to(tl.float32)"),
        "correct",
    ),
    "mixed: a library product and an own epilogue": Case(
        LINEAR_PROBLEM.replace("16384, 512", "16384, 64").replace("[512, 512]", "[64, 2048]"),
        linear_kernel(
            forward="torch.mm(x, self.linear.weight.t(), out=out)\n" + _EPILOGUE + "return out",
            extra=_CTYPES_GEMM[_CTYPES_GEMM.index("@triton.jit") :],
        ),
        "correct",
        settings={"policy": "mixed"},
    ),
}

CUDA_CASES: dict[str, Case] = {
    "CUDA C++: plain": Case(CUDA_PROBLEM, cuda_kernel(), "correct", settings={"backend": "cuda"}),
    "CUDA C++: wrong": Case(
        CUDA_PROBLEM, cuda_kernel("fmaxf(x[i] * y[i] + 1.5f, 0.0f) * 0.5f"), settings={"backend": "cuda"}
    ),
    "CUDA C++: does not compile": Case(
        CUDA_PROBLEM, cuda_kernel("fmaxf(x[i], undefined)"), settings={"backend": "cuda"}
    ),
    "CUDA C++: the library, with a decoy": Case(
        CUDA_PROBLEM,
        cuda_kernel(host="if (x.numel() > 0) return torch::relu(x * y + 1.0) * 0.5;"),
        settings={"backend": "cuda"},
    ),
}
