"""Pairs of kernels for one problem: a good one, and the same with one defect that a GPU pays for.

The estimate has to order each pair (`tests/integration/kernels_eval/test_estimate_pairs.py`), as a GPU does
(`tests/gpu/estimate_pairs_on_gpu.py`). Imports neither torch nor triton.
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
_LARGE, _SMALL = "torch.randn(4096, 2048)", "torch.randn(4096, 128)"


def _scale(value: str = "x * 2.0", before: str = "") -> str:
    return SCALE.format(value=value, before=before)


def _scaled(before: str = "", after: str = "return out", kernels: str = "") -> str:
    return module(_scale() + kernels, f"{before}\n{SCALE_LAUNCH}{after}")


def _host(size: str) -> list[Pair]:
    """What host code does between launches."""
    double, good = problem("x * 2.0", size), _scaled()
    tag = "large" if size == _LARGE else "small"
    last = "\nout = torch.empty_like(x)\nscale[(1,)](x, out, 1, BLOCK=1024)" + "\n"
    read = (
        "if float(out[0, 0]) == 12345.0:\n    out = torch.empty_like(x)\nscale[(1,)](x, out, 1, BLOCK=1024)\nreturn out"
    )
    del last
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


def _tables() -> list[Pair]:
    launch = "out = torch.empty_like(x)\nrows[(x.shape[0],)](x, {table}, out, D=2048)\nreturn out"
    good = module(_IN_KERNEL, launch.format(table="x"))
    table = "table = torch.tensor([math.exp(-k / 2048) for k in range(2048)], device=x.device)\n"
    pieces = (
        "pieces = [torch.tensor([math.exp(-k / 2048) for k in range(s, s + 256)], device=x.device)"
        " for s in range(0, 2048, 256)]\ntable = torch.cat(pieces)\n"
    )
    constant = "factor = torch.tensor([2.0], device=x.device)\n"
    scaled = """
@triton.jit
def scale(x_ptr, f_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, x * {factor}, mask=i < n)
"""
    one = "out = torch.empty_like(x)\nscale[(triton.cdiv(x.numel(), 1024),)](x, {f}, out, x.numel(), BLOCK=1024)\nreturn out"
    return [
        Pair("table made by the host in each call", TABLE_PROBLEM, good, module(_FROM_TABLE, table + launch.format(table="table"))),
        Pair("table of eight pieces made by the host", TABLE_PROBLEM, good, module(_FROM_TABLE, pieces + launch.format(table="table"))),
        Pair("one constant uploaded in each call", problem("x * 2.0", _LARGE), module(scaled.format(factor="2.0"), one.format(f="x")),
             module(scaled.format(factor="tl.load(f_ptr)"), constant + one.format(f="factor"))),
    ]  # fmt: skip


SUM = """
@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    {add}
"""
FOLD = """
@triton.jit
def fold(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N)), 0))
"""
_TOTAL = "out = torch.zeros({cells}, device=x.device)\ntotal[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)\n"
_BLOCK_SUM = SUM.format(add="tl.atomic_add(out_ptr, tl.sum(x, 0))")


def _added(cells: int, target: str) -> str:
    kernels = SUM.format(add=f"tl.atomic_add({target}, x, mask=i < n)") + FOLD
    folded = f"result = torch.empty((), device=x.device)\nfold[(1,)](out, result, N={cells})\nreturn result"
    return module(kernels, _TOTAL.format(cells=cells) + (folded if cells > 1 else "return out.reshape(())"))


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
COUNTS = """
@triton.jit
def counts(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(x_ptr + i, mask=i < n, other=BINS)
    {add}
"""
_COUNT = "out = torch.zeros({bins}, device=x.device, dtype=torch.int32)\ncounts[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BINS={bins}, BLOCK=4096)\nreturn out"
ROW_SUM = """
@triton.jit
def row_sum(x_ptr, out_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    {store}
"""
_ROW_SUM = "out = torch.zeros(x.shape[0], device=x.device)\nrow_sum[(x.shape[0],)](x, out, N=x.shape[1])\nreturn out"


def _atomics() -> list[Pair]:
    total, good = (
        problem("x.sum()", "torch.rand(4096, 1024)"),
        module(_BLOCK_SUM, _TOTAL.format(cells=1) + "return out.reshape(())"),
    )
    count = problem(
        "torch.bincount(x.reshape(-1).long(), minlength={bins}).int()",
        "torch.randint(0, {bins}, (2048, 2048), dtype=torch.int32)",
    )
    by_histogram = COUNTS.format(
        add="h = tl.histogram(b, BINS, mask=i < n)\n    tl.atomic_add(out_ptr + tl.arange(0, BINS), h)"
    )
    by_atomics = COUNTS.format(add="tl.atomic_add(out_ptr + b, 1, mask=i < n)")
    rows = problem("x.sum(1)", "torch.rand(8192, 1024)")
    good_columns = "out = torch.zeros(x.shape[1], device=x.device)\ncolumns[(triton.cdiv(x.shape[0], {r}),)](x, out, x.shape[0], N=x.shape[1], ROWS={r})\nreturn out"
    return [
        Pair("all lanes onto one address", total, good, _added(1, "out_ptr + i * 0")),
        Pair("lanes onto 4 addresses", total, good, _added(4, "out_ptr + i % 4")),
        Pair("lanes onto 32 addresses", total, good, _added(32, "out_ptr + i % 32")),
        Pair("lanes onto 32 addresses, one for each program", total, good, _added(32, "out_ptr + i * 0 + tl.program_id(0) % 32")),
        Pair("lanes onto 1024 addresses", total, good, _added(1024, "out_ptr + i % 1024")),
        Pair("histogram of 16 bins by atomics", count.format(bins=16), module(by_histogram, _COUNT.format(bins=16)), module(by_atomics, _COUNT.format(bins=16))),
        Pair("histogram of 256 bins by atomics", count.format(bins=256), module(by_histogram, _COUNT.format(bins=256)), module(by_atomics, _COUNT.format(bins=256))),
        Pair("row sums by an atomic for each element", rows, module(ROW_SUM.format(store="tl.store(out_ptr + row, tl.sum(x, 0))"), _ROW_SUM),
             module(ROW_SUM.format(store="tl.atomic_add(out_ptr + row + tl.arange(0, N) * 0, x)"), _ROW_SUM)),
        Pair("column sums with an atomic for each row", problem("x.sum(0)", "torch.rand(8192, 1024)"),
             module(COLUMNS, good_columns.format(r=64)), module(COLUMNS, good_columns.format(r=1))),
    ]  # fmt: skip


SOFTMAX = """
@triton.jit
def softmax(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    {before}
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + i, e / tl.sum(e, 0))
"""
_SOFTMAX = "out = torch.empty_like(x)\nsoftmax[(x.shape[0],)](x, out, N=x.shape[1], num_warps={warps})\nreturn out"


def _in_kernels() -> list[Pair]:
    double, good = problem("x * 2.0", _LARGE), _scaled()
    softmax, small = (
        problem("torch.softmax(x, 1)", "torch.randn(4096, 4096)"),
        problem("torch.softmax(x, 1)", "torch.randn(256, 4096)"),
    )
    barriers = "    for _ in range({count}):\n        tl.debug_barrier()"
    plain = SOFTMAX.format(before="")

    def softened(warps: int) -> str:
        return module(plain, _SOFTMAX.format(warps=warps))

    def doubled(value: str, before: str = "") -> str:
        return module(_scale(value, before), SCALE_LAUNCH + "return out")

    exp = problem("torch.exp(-x * x)", _LARGE)
    wide = "tl.exp(-(x.to(tl.float64) * x.to(tl.float64))).to(tl.float32)"
    sine, exact = problem("torch.sin(x)", _LARGE), "tl.sin(x.to(tl.float64)).to(tl.float32)"
    root, exact_root = (
        problem("torch.sqrt(x * x + 1.0)", _LARGE),
        "tl.sqrt((x * x + 1.0).to(tl.float64)).to(tl.float32)",
    )
    return [
        Pair("100 barriers", double, good, doubled("x * 2.0", barriers.format(count=100))),
        Pair("400 barriers", double, good, doubled("x * 2.0", barriers.format(count=400))),
        Pair("softmax of 4096 columns by one warp", softmax, softened(8), softened(1)),
        Pair("softmax of 4096 columns by one warp, few rows", small, softened(8), softened(1)),
        Pair("exponentials in double precision", exp, doubled("tl.exp(-x * x)"), doubled(wide)),
        Pair("sines in double precision", sine, doubled("tl.sin(x)"), doubled(exact)),
        Pair("roots in double precision", root, doubled("tl.sqrt(x * x + 1.0)"), doubled(exact_root)),
        Pair("products in double precision", double, good, doubled("(x.to(tl.float64) * 2.0 + 0.0 * x.to(tl.float64) * x.to(tl.float64)).to(tl.float32)")),
        Pair("every element loaded twice, apart", double, good,
             doubled("x + tl.load(x_ptr + (i * 1025) % n, mask=(i * 1025) % n < 0, other=0.0) + tl.load(x_ptr + (n - 1 - i), mask=i < n) * 0.0 + x")),
        Pair("blocks of 64 elements", double, good, module(_scale(), SCALE_LAUNCH.replace("1024", "64") + "return out")),
        Pair("a launch for every 256 rows", double, good, module(_scale(), "out = torch.empty_like(x)\nfor r in range(0, x.shape[0], 256):\n"
             "    scale[(512,)](x[r:r + 256], out[r:r + 256], 524288, BLOCK=1024)\nreturn out")),
    ]  # fmt: skip


def all_pairs() -> list[Pair]:
    """Return every pair."""
    return [*_atomics(), *_tables(), *_host(_LARGE), *_host(_SMALL), *_in_kernels()]
