"""Pairs of kernels for one problem: a good one, and the same with one defect that a GPU pays for.

The estimate has to order each pair (`tests/integration/kernels_eval/test_estimate_pairs.py`), as a GPU does
(`tools/gpu/estimate_pairs_on_gpu.py`). Imports neither torch nor triton.
"""

from dataclasses import dataclass

HEADER = """import math
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
_INPUTS = """
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Pair:
    """Two kernels for one problem."""

    name: str
    """Defect of the defective one."""
    problem: str
    good: str
    defect: str


def problem(forward: str, inputs: str, arguments: str = "x") -> str:
    """Return a problem whose `forward` returns an expression."""
    return f"""import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, {arguments}):
        return {forward}
{_INPUTS.format(inputs=inputs)}"""


def module(kernels: str, forward: str, arguments: str = "x") -> str:
    """Return a candidate: its kernels, and the lines of its `forward`."""
    lines = "\n".join(f"        {line}" for line in forward.strip().splitlines())
    return f"{HEADER}{kernels}\nclass ModelNew(nn.Module):\n    def forward(self, {arguments}):\n{lines}\n"


SCALE = """
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
{before}
    tl.store(out_ptr + i, {value}, mask=i < n)
"""
SCALE_LAUNCH = "out = torch.empty_like(x)\nscale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)\n"
_LARGE, _SMALL = "torch.randn(2048, 1024)", "torch.randn(1024, 128)"


def _scale(value: str = "x * 2.0", before: str = "") -> str:
    return SCALE.format(value=value, before=before)


def _scaled(before: str = "", after: str = "return out", kernels: str = "") -> str:
    return module(_scale() + kernels, f"{before}\n{SCALE_LAUNCH}{after}")


def _host(size: str) -> list[Pair]:
    """Work of host code between launches."""
    double, good = problem("x * 2.0", size), _scaled()
    tag = "large" if size == _LARGE else "small"
    read = (
        "if float(out[0, 0]) == 12345.0:\n    out = torch.empty_like(x)\nscale[(1,)](x, out, 1, BLOCK=1024)\nreturn out"
    )
    return [
        Pair(f"one value read, {tag}", double, good, _scaled(after=read)),
        Pair(f"eight values read, {tag}", double, good,
             _scaled(after="for k in range(8):\n    if float(out[k, k]) == 12345.0:\n        return x\n" + read)),
        Pair(f"twenty synchronisations, {tag}", double, good,
             _scaled(after="for _ in range(20):\n    torch.cuda.synchronize()\nreturn out")),
        Pair(f"a stream waited for ten times, {tag}", double, good,
             _scaled(after="for _ in range(10):\n    torch.cuda.current_stream().synchronize()\nreturn out")),
    ]  # fmt: skip


TABLE_PROBLEM = """import math
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        position = torch.arange(2048, device=x.device, dtype=torch.float32)
        return x * torch.exp(-position / 2048)
def get_inputs():
    return [torch.randn(4096, 2048)]
def get_init_inputs():
    return []
"""
ROWS = """
@triton.jit
def rows(x_ptr, table_ptr, out_ptr, D: tl.constexpr):
    j = tl.arange(0, D)
    x = tl.load(x_ptr + tl.program_id(0) * D + j)
    factor = {factor}
    tl.store(out_ptr + tl.program_id(0) * D + j, x * factor)
"""
_IN_KERNEL = ROWS.format(factor="tl.exp(-j.to(tl.float32) / 2048)")
_FROM_TABLE = ROWS.format(factor="tl.load(table_ptr + j)")


CONSTANT = """
@triton.jit
def scale(x_ptr, f_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, x * {factor}, mask=i < n)
"""
_CONSTANT = """
out = torch.empty_like(x)
scale[(triton.cdiv(x.numel(), 1024),)](x, {given}, out, x.numel(), BLOCK=1024)
return out
"""


def _tables() -> list[Pair]:
    """Tensors that host code makes in each call."""

    def from_table(made: str) -> str:
        return module(_FROM_TABLE, f"{made}\n{launch.format(table='table')}")

    launch = "out = torch.empty_like(x)\nrows[(x.shape[0],)](x, {table}, out, D=2048)\nreturn out"
    good = module(_IN_KERNEL, launch.format(table="x"))
    table = "table = torch.tensor([math.exp(-k / 2048) for k in range(2048)], device=x.device)"
    pieces = """
pieces = []
for s in range(0, 2048, 256):
    pieces.append(torch.tensor([math.exp(-k / 2048) for k in range(s, s + 256)], device=x.device))
table = torch.cat(pieces)
"""
    constant = "\nfactor = torch.tensor([2.0], device=x.device)" + _CONSTANT.format(given="factor")
    fixed = module(CONSTANT.format(factor="2.0"), _CONSTANT.format(given="x"))
    loaded = module(CONSTANT.format(factor="tl.load(f_ptr)"), constant)
    return [
        Pair("table made by the host in each call", TABLE_PROBLEM, good, from_table(table)),
        Pair("table of eight pieces made by the host", TABLE_PROBLEM, good, from_table(pieces)),
        Pair("one constant uploaded in each call", problem("x * 2.0", _LARGE), fixed, loaded),
    ]


SUM = """
@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    x = x * x
    {add}
"""
FOLD = """
@triton.jit
def fold(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N)), 0))
"""
_TOTAL = """
out = torch.zeros({cells}, device=x.device)
total[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
"""
_BLOCK_SUM = SUM.format(add="tl.atomic_add(out_ptr, tl.sum(x, 0))")
_RETURNED = "return out.reshape(())"


def _added(cells: int, target: str) -> str:
    """Return a sum of all elements, each added to one of so many cells."""
    kernels = SUM.format(add=f"tl.atomic_add({target}, x, mask=i < n)") + FOLD
    folded = f"result = torch.empty((), device=x.device)\nfold[(1,)](out, result, N={cells})\nreturn result"
    return module(kernels, _TOTAL.format(cells=cells) + (folded if cells > 1 else _RETURNED))


COLUMNS = """
@triton.jit
def columns(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    j = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for r in range(ROWS):
        row = tl.program_id(0) * ROWS + r
        total += tl.load(x_ptr + row * N + j, mask=row < M, other=0.0)
    tl.atomic_add(out_ptr + j, total)
"""
_COLUMNS = """
out = torch.zeros(x.shape[1], device=x.device)
columns[(triton.cdiv(x.shape[0], {rows}),)](x, out, x.shape[0], N=x.shape[1], ROWS={rows})
return out
"""
COUNTS = """
@triton.jit
def counts(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(x_ptr + i, mask=i < n, other=BINS)
    {add}
"""
_COUNT = """
out = torch.zeros({bins}, device=x.device, dtype=torch.int32)
counts[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BINS={bins}, BLOCK=4096)
return out
"""
_BY_HISTOGRAM = "tl.atomic_add(out_ptr + tl.arange(0, BINS), tl.histogram(b, BINS, mask=i < n))"
_BY_ATOMICS = "tl.atomic_add(out_ptr + b, 1, mask=i < n)"
ROW_SUM = """
@triton.jit
def row_sum(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    {store}
"""
_ROW_SUM = """
out = torch.zeros(x.shape[0], device=x.device)
row_sum[(x.shape[0],)](x, out, N=x.shape[1])
return out
"""


def _histogram(bins: int) -> Pair:
    given = f"torch.randint(0, {bins}, (1024, 1024), dtype=torch.int32)"
    counted = problem(f"torch.bincount(x.reshape(-1).long(), minlength={bins}).int()", given)
    good, defect = (module(COUNTS.format(add=add), _COUNT.format(bins=bins)) for add in (_BY_HISTOGRAM, _BY_ATOMICS))
    return Pair(f"histogram of {bins} bins by an atomic for each element", counted, good, defect)


def _atomics() -> list[Pair]:
    """Elements that meet in one place."""
    total, good = (
        problem("(x * x).sum()", "torch.rand(1024, 512)"),
        module(_BLOCK_SUM, _TOTAL.format(cells=1) + _RETURNED),
    )
    rows, columns = (problem(f"x.sum({axis})", "torch.rand(4096, 1024)") for axis in (1, 0))
    stored = module(ROW_SUM.format(store="tl.store(out_ptr + row, tl.sum(x, 0))"), _ROW_SUM)
    added = module(ROW_SUM.format(store="tl.atomic_add(out_ptr + row + tl.arange(0, N) * 0, x)"), _ROW_SUM)
    few, many = (module(COLUMNS, _COLUMNS.format(rows=count)) for count in (64, 1))
    return [
        Pair("all lanes onto one address", total, good, _added(1, "out_ptr + i * 0")),
        Pair("lanes onto 4 addresses", total, good, _added(4, "out_ptr + i % 4")),
        Pair("lanes onto 32 addresses", total, good, _added(32, "out_ptr + i % 32")),
        Pair("programs onto 32 addresses", total, good, _added(32, "out_ptr + i * 0 + tl.program_id(0) % 32")),
        Pair("lanes onto 1024 addresses", total, good, _added(1024, "out_ptr + i % 1024")),
        _histogram(16),
        _histogram(256),
        Pair("row sums by an atomic for each element", rows, stored, added),
        Pair("column sums with an atomic for each row", columns, few, many),
    ]


SOFTMAX = """
@triton.jit
def softmax(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + i, e / tl.sum(e, 0))
"""
_SOFTMAX = """
out = torch.empty_like(x)
softmax[(x.shape[0],)](x, out, N=x.shape[1], num_warps={warps})
return out
"""
_IN_PARTS = """
out = torch.empty_like(x)
for r in range(0, x.shape[0], 256):
    scale[(256,)](x[r:r + 256], out[r:r + 256], 262144, BLOCK=1024)
return out
"""
_WIDE_SINE = "tl.sin(tl.sin(tl.sin(x.to(tl.float64)))).to(tl.float32)"
_WIDE_EXP = "tl.exp(-(x.to(tl.float64) * x.to(tl.float64))).to(tl.float32)"


def _scaled_as(value: str, before: str = "") -> str:
    return module(_scale(value, before), SCALE_LAUNCH + "return out")


def _in_kernels() -> list[Pair]:
    """Within kernels, and in how they are launched."""
    double, good = problem("x * 2.0", _LARGE), _scaled()
    sines = problem("torch.sin(torch.sin(torch.sin(x)))", _LARGE)
    barriers = "    for _ in range({count}):\n        tl.debug_barrier()"
    small = SCALE_LAUNCH.replace("1024", "64") + "return out"
    return [
        Pair("100 barriers", double, good, _scaled_as("x * 2.0", barriers.format(count=100))),
        Pair("400 barriers", double, good, _scaled_as("x * 2.0", barriers.format(count=400))),
        Pair("sines in double precision", sines, _scaled_as("tl.sin(tl.sin(tl.sin(x)))"), _scaled_as(_WIDE_SINE)),
        Pair("blocks of 64 elements", double, good, module(_scale(), small)),
        Pair("a launch for every 256 rows", double, good, module(_scale(), _IN_PARTS)),
    ]


def all_pairs() -> list[Pair]:
    """Return every pair."""
    return [*_atomics(), *_tables(), *_host(_LARGE), *_host(_SMALL), *_in_kernels()]


def equal_pairs() -> list[Pair]:
    """Return pairs that look like a defect and cost an H100 nothing: within 5 % (docs/estimates.md)."""
    softmax = problem("torch.softmax(x, 1)", "torch.randn(4096, 4096)")
    eight, one = (module(SOFTMAX, _SOFTMAX.format(warps=warps)) for warps in (8, 1))
    exp = problem("torch.exp(-x * x)", _LARGE)
    return [
        Pair("softmax of 4096 columns by one warp", softmax, eight, one),
        Pair("exponentials in double precision", exp, _scaled_as("tl.exp(-x * x)"), _scaled_as(_WIDE_EXP)),
    ]
