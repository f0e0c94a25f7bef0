"""Pairs of kernels whose defect lies in how work is shared out, and in work that is done more often than needed.

Further pairs for `benchmarks/estimate_pairs.py`, which says what a pair is. Imports neither torch nor triton.
"""

from estimate_pairs import Pair, module, problem
from estimate_pairs_of_memory import LAUNCH, OUT, SQUARE, elements, stored

ROWS_BY_SHARE = """
@triton.jit
def rows(x_ptr, out_ptr, M, N: tl.constexpr, SHARE: tl.constexpr):
    for r in range(SHARE):
        row = tl.program_id(0) * SHARE + r
        x = tl.load(x_ptr + row * N + tl.arange(0, N), mask=row < M, other=0.0)
        tl.store(out_ptr + row, tl.sum(x, 0), mask=row < M)
"""
_ROWS_BY_SHARE = """
out = torch.empty(x.shape[0], device=x.device)
rows[(triton.cdiv(x.shape[0], {share}),)](x, out, x.shape[0], N=x.shape[1], SHARE={share})
return out
"""
UNEVEN = """
@triton.jit
def rows(x_ptr, out_ptr, M, N: tl.constexpr):
    first = tl.program_id(0) == 0
    count = tl.where(first, M // 2, 1)
    start = tl.where(first, 0, M // 2 + tl.program_id(0) - 1)
    for r in range(0, count):
        row = start + r
        x = tl.load(x_ptr + row * N + tl.arange(0, N), mask=row < M, other=0.0)
        tl.store(out_ptr + row, tl.sum(x, 0), mask=row < M)
"""
_UNEVEN = """
out = torch.empty(x.shape[0], device=x.device)
rows[(x.shape[0] // 2 + 1,)](x, out, x.shape[0], N=x.shape[1])
return out
"""
PADDED = """
@triton.jit
def padded(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + j, mask=j < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + tl.program_id(0) * N + j, e / tl.sum(e, 0), mask=j < N)
"""
_PADDED = "out = torch.empty_like(x)\npadded[(x.shape[0],)](x, out, x.shape[1], BLOCK={block})\nreturn out"
SCALAR_ROWS = """
@triton.jit
def rows(x_ptr, out_ptr, N):
    total = 0.0
    for j in range(0, N):
        total += tl.load(x_ptr + tl.program_id(0) * N + j)
    tl.store(out_ptr + tl.program_id(0), total)
"""
_SCALAR_ROWS = "out = torch.empty(x.shape[0], device=x.device)\nrows[(x.shape[0],)](x, out, x.shape[1])\nreturn out"
SERIAL_SCAN = """
@triton.jit
def scan(x_ptr, out_ptr, N):
    total = 0.0
    for j in range(0, N):
        total += tl.load(x_ptr + tl.program_id(0) * N + j)
        tl.store(out_ptr + tl.program_id(0) * N + j, total)
"""
SCAN = """
@triton.jit
def scan(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + i, tl.cumsum(tl.load(x_ptr + i), 0))
"""
_SCAN = "out = torch.empty_like(x)\nscan[(x.shape[0],)](x, out, x.shape[1])\nreturn out"


def _shares() -> list[Pair]:
    """Return pairs that share work out to programs and lanes in different ways."""
    sums = problem("x.sum(1)", "torch.rand(2048, 512)")
    one, many, all_rows = (module(ROWS_BY_SHARE, _ROWS_BY_SHARE.format(share=share)) for share in (1, 256, 2048))
    soft = problem("torch.softmax(x, 1)", "torch.randn(2048, 100)")
    fitting, padded = (module(PADDED, _PADDED.format(block=block)) for block in (128, 4096))
    scans = problem("torch.cumsum(x, 1)", "torch.rand(256, 256)")
    short = problem("x.sum(1)", "torch.rand(512, 256)")
    idle = OUT + "elements[(64 * triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)\nreturn out"
    return [
        Pair("eight programs for all rows", sums, one, many),
        Pair("one program for all rows", sums, one, all_rows),
        Pair("one program with half of the rows", sums, one, module(UNEVEN, _UNEVEN)),
        Pair("rows of 100 in blocks of 4096", soft, fitting, padded),
        Pair("a row added up an element at a time", short, one, module(SCALAR_ROWS, _SCALAR_ROWS)),
        Pair("a running sum an element at a time", scans, module(SCAN, _SCAN), module(SERIAL_SCAN, _SCAN)),
        Pair(
            "64 times as many programs as there are blocks",
            problem("x * 2.0", SQUARE),
            elements(),
            elements(forward=idle),
        ),
    ]


MEAN = """
@triton.jit
def mean(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, 0) / N)

@triton.jit
def deviation(x_ptr, mean_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N)) - tl.load(mean_ptr + tl.program_id(0))
    tl.store(out_ptr + tl.program_id(0), tl.sqrt(tl.sum(x * x, 0) / N + 1e-5))

@triton.jit
def normal(x_ptr, mean_ptr, deviation_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i) - tl.load(mean_ptr + tl.program_id(0))
    tl.store(out_ptr + i, x / tl.load(deviation_ptr + tl.program_id(0)))
"""
_IN_THREE = """
rows, N = x.shape
means, deviations = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
out = torch.empty_like(x)
mean[(rows,)](x, means, N=N)
deviation[(rows,)](x, means, deviations, N=N)
normal[(rows,)](x, means, deviations, out, N=N)
return out
"""
NORM = """
@triton.jit
def normal(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    x -= tl.sum(x, 0) / N
    tl.store(out_ptr + i, x / tl.sqrt(tl.sum(x * x, 0) / N + 1e-5))
"""
_NORM = "out = torch.empty_like(x)\nnormal[(x.shape[0],)](x, out, N=x.shape[1])\nreturn out"
EVERY_MAXIMUM = """
@triton.jit
def shifted(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.load(x_ptr + i, mask=i < n, other=-float("inf")))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.max(largest, 0), mask=i < n)
"""
_EVERY_MAXIMUM = OUT + "shifted[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)\nreturn out"
TWO_STAGES = """
@triton.jit
def maxima(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0), tl.max(tl.load(x_ptr + i, mask=i < n, other=-float("inf")), 0))

@triton.jit
def shifted(x_ptr, maxima_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    largest = tl.max(tl.load(maxima_ptr + tl.arange(0, PARTS)), 0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) - largest, mask=i < n)
"""
_TWO_STAGES = (
    OUT
    + """parts = torch.empty(n // 1024, device=x.device)
maxima[(n // 1024,)](x, parts, n, BLOCK=1024)
shifted[(n // 1024,)](x, parts, out, n, PARTS=n // 1024, BLOCK=1024)
return out
"""
)
_SERIES = """    y = 1.0 + 0.0 * x
    term = y
    for k in range(1, 200):
        term = term * x / k
        y += term"""
_LOGS = """    y = x * 0.0
    for k in range(64):
        y += tl.log(tl.exp(x * 0.01) + k * 0.0)"""


def _repeated() -> list[Pair]:
    """Work that is done more often than it has to be."""
    norm = problem("(x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, unbiased=False, keepdim=True) + 1e-5)", SQUARE)
    shifted = problem("x - x.max()", "torch.randn(256, 1024)")
    exp = problem("torch.exp(torch.sigmoid(x))", SQUARE)
    sigmoid = "    x = 1.0 / (1.0 + tl.exp(-x))"
    series = elements(stored("y", f"{sigmoid}\n{_SERIES}"))
    logs = problem("x * 0.64", SQUARE)
    powers = problem("x ** 4", SQUARE)
    by_function = elements(stored("tl.where(x == 0.0, 0.0, p)", _POWER))
    return [
        Pair("a normalisation in three kernels", norm, module(NORM, _NORM), module(MEAN, _IN_THREE)),
        Pair(
            "the maximum of all found by every program",
            shifted,
            module(TWO_STAGES, _TWO_STAGES),
            module(EVERY_MAXIMUM, _EVERY_MAXIMUM),
        ),
        Pair("an exponential by 200 terms", exp, elements(stored("tl.exp(y)", f"{sigmoid}\n    y = x")), series),
        Pair("64 logarithms of exponentials", logs, elements(stored("x * 0.64")), elements(stored("y", _LOGS))),
        Pair("powers by 40 logarithms", powers, elements(stored("x * x * x * x")), by_function),
    ]


_POWER = """    p = x * 0.0
    for k in range(40):
        p += tl.exp(4.0 * tl.log(tl.abs(x) + 1e-30)) * 0.025"""
WINDOW = """
@triton.jit
def window(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{body}
    tl.store(out_ptr + i, total / 64, mask=i < n)
"""
_WINDOW = """
n = x.shape[0] - 63
out = torch.empty(n, device=x.device)
window[(triton.cdiv(n, {block}),)](x, out, n, BLOCK={block})
return out
"""
_SUMMED = """    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(64):
        total += tl.load(x_ptr + i + k, mask=i < n, other=0.0)"""


def _windows() -> list[Pair]:
    """Windows and orders of elements."""
    windows = problem("x.unfold(0, 64, 1).mean(1)", "torch.randn(262207)")
    large, tiny = (module(WINDOW.format(body=_SUMMED), _WINDOW.format(block=block)) for block in (1024, 16))
    mirrored = problem("x.flip(0)", "torch.randn(1048576)")
    flip, one_by_one = (
        elements(
            "    tl.store(out_ptr + i, tl.load(x_ptr + n - 1 - i, mask=mask, other=0.0), mask=mask)", forward=forward
        )
        for forward in (
            OUT + LAUNCH + "return out",
            OUT + "elements[(triton.cdiv(n, 32),)](x, out, n, BLOCK=32)\nreturn out",
        )
    )
    return [
        Pair("a moving mean in blocks of 16", windows, large, tiny),
        Pair("a mirrored vector in blocks of 32", mirrored, flip, one_by_one),
    ]


def work_pairs() -> list[Pair]:
    """Return the pairs of this module."""
    return [*_shares(), *_repeated(), *_windows()]
