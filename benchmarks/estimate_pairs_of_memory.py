"""Pairs of kernels whose defect lies in what they move, and in the shapes of their tiles.

Further pairs for `benchmarks/estimate_pairs.py`, which says what a pair is. Imports neither torch nor triton.
"""

from estimate_pairs import Pair, module, problem

SQUARE = "torch.randn(1024, 1024)"
ELEMENTS = """
@triton.jit
def elements(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = {index}
    mask = i < n
{body}
"""
PLAIN = "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
STRIDED = "tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)"
HALVES = "(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * 33 % n"
TWICE = "    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=mask, other=0.0) * 2.0, mask=mask)"
OUT = "out = torch.empty_like(x)\nn = x.numel()\n"
LAUNCH = "elements[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)\n"


def elements(body: str = TWICE, index: str = PLAIN, forward: str = OUT + LAUNCH + "return out") -> str:
    return module(ELEMENTS.format(index=index, body=body), forward)


def stored(value: str, before: str = "") -> str:
    """Return the body of an element-wise kernel: `value` of x, after further lines."""
    lines = f"    x = tl.load(x_ptr + i, mask=mask, other=0.0)\n{before}"
    return f"{lines}\n    tl.store(out_ptr + i, {value}, mask=mask)"


UNARY = """
@triton.jit
def {name}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, {value}, mask=i < n)
"""
_STEPS = {"halved": "x * 0.5", "shifted": "x + 1.0", "squared": "x * x", "clamped": "tl.minimum(x, 3.0)"}


def _unfused(names: list[str]) -> str:
    kernels = "".join(UNARY.format(name=name, value=_STEPS[name]) for name in names)
    calls = "\n".join(
        f"y = torch.empty_like(x)\n{name}[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\nx = y" for name in names
    )
    return module(kernels, f"n = x.numel()\n{calls}\nreturn x")


def _access() -> list[Pair]:
    """Return pairs that differ in the bytes moved, or in their order."""
    double, good = problem("x * 2.0", SQUARE), elements()
    chain = problem("torch.clamp((x * 0.5 + 1.0) ** 2, max=3.0)", SQUARE)
    fused = elements(stored("tl.minimum(y * y, 3.0)", "    y = x * 0.5 + 1.0"))
    two = problem("(x * 0.5 + 1.0)", SQUARE)
    copied = OUT + "copy = x.clone()\n" + LAUNCH.replace("](x,", "](copy,") + "return out"
    zeroed = OUT.replace("empty_like", "zeros_like") + LAUNCH + "return out"
    wide = "wide = torch.empty(x.shape, dtype=torch.float64, device=x.device)\nn = x.numel()\n"
    wide += LAUNCH.replace("x, out", "x, wide") + "return wide.to(torch.float32)"
    again = OUT + LAUNCH + LAUNCH.replace("x, out", "x, out") + "return out"
    return [
        Pair("neighbouring lanes a stride apart", double, good, elements(index=STRIDED)),
        Pair("every 33rd element in turn", double, good, elements(index=HALVES)),
        Pair("four steps in four kernels", chain, fused, _unfused(["halved", "shifted", "squared", "clamped"])),
        Pair("two steps in two kernels", two, elements(stored("x * 0.5 + 1.0")), _unfused(["halved", "shifted"])),
        Pair("a copy of the input first", double, good, elements(forward=copied)),
        Pair("an output of zeros that is overwritten", double, good, elements(forward=zeroed)),
        Pair("the result in double precision, converted after", double, good, elements(forward=wide)),
        Pair("the same launch twice", double, good, elements(forward=again)),
    ]


TRANSPOSE = """
@triton.jit
def transpose(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (rows < M) & (columns < N)
    x = tl.load(x_ptr + rows * N + columns, mask=mask, other=0.0)
    tl.store(out_ptr + columns * M + rows, x, mask=mask)
"""
_TRANSPOSE = """
M, N = x.shape
out = torch.empty((N, M), device=x.device)
transpose[(triton.cdiv(M, {rows}), triton.cdiv(N, {columns}))](x, out, M, N, ROWS={rows}, COLUMNS={columns})
return out
"""
COLUMN_SUM = """
@triton.jit
def column_sum(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, M, ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < M)[:, None] & (columns < N)[None, :]
        total += tl.sum(tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=mask, other=0.0), 0)
    tl.store(out_ptr + columns, total, mask=columns < N)
"""
_COLUMN_SUM = """
M, N = x.shape
out = torch.empty(N, device=x.device)
column_sum[(triton.cdiv(N, {columns}),)](x, out, M, N, ROWS={rows}, COLUMNS={columns})
return out
"""
SCALED_ROWS = """
@triton.jit
def scaled(x_ptr, w_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    w = tl.load(w_ptr + {place})
    tl.store(out_ptr + i, tl.load(x_ptr + i) * w)
"""
_SCALED_ROWS = "out = torch.empty_like(x)\n{before}\nscaled[(x.shape[0],)](x, w, out, N=x.shape[1])\nreturn out"
GATHER = """
@triton.jit
def gather(x_ptr, index_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(index_ptr + row)
    tl.store(out_ptr + row * N + j, tl.load(x_ptr + source * N + j, mask=j < N, other=0.0), mask=j < N)
"""
_GATHER = """
out = torch.empty((index.shape[0], x.shape[1]), device=x.device)
gather[(index.shape[0] // {rows}, triton.cdiv(x.shape[1], {block}))](x, index, out, {sizes}, BLOCK={block})
return out
"""


def _tiles() -> list[Pair]:
    """Shapes of tiles, and operands that are read in another way than they lie."""
    turned = problem("x.t().contiguous()", SQUARE)
    wide, tall = (module(TRANSPOSE, _TRANSPOSE.format(rows=r, columns=c)) for r, c in ((32, 32), (1, 1024)))
    columns = problem("x.sum(0)", "torch.rand(2048, 2048)")
    sums, single = (module(COLUMN_SUM, _COLUMN_SUM.format(rows=r, columns=c)) for r, c in ((32, 32), (1024, 1)))
    scaled = problem("x * w", "torch.randn(2048, 1024), torch.randn(1024)", "x, w")
    row = module(SCALED_ROWS.format(place="tl.arange(0, N)"), _SCALED_ROWS.format(before=""), "x, w")
    made = _SCALED_ROWS.format(before="w = w.expand(x.shape).contiguous()")
    full = module(SCALED_ROWS.format(place="i"), made, "x, w")
    looked_up = problem("x[index]", "torch.randn(1024, 256), torch.randint(0, 1024, (2048,))", "x, index")
    gathered = module(GATHER, _GATHER.format(rows=1, block=256, sizes="x.shape[1]"), "x, index")
    piecewise = module(GATHER, _GATHER.format(rows=1, block=16, sizes="x.shape[1]"), "x, index")
    return [
        Pair("a transposition by rows instead of tiles", turned, wide, tall),
        Pair("a column for each program", columns, sums, single),
        Pair("a row vector spread out to a matrix first", scaled, row, full),
        Pair("rows gathered in pieces of 16 elements", looked_up, gathered, piecewise),
    ]


MATMUL = """
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, K, DEPTH):
        k = start + tl.arange(0, DEPTH)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :]){cast}
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :]){cast}
        total += {product}
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(c_ptr.dtype.element_ty))
"""
_MATMUL = """
M, K = a.shape
N = b.shape[1]
c = torch.empty((M, N), device=a.device, dtype=a.dtype)
matmul[(M // {tile}, N // {tile})](a, b, c, M, N, K, TILE={tile}, DEPTH={depth})
return c
"""
_BATCHES = """
c = torch.empty((a.shape[0], 128, 128), device=a.device, dtype=a.dtype)
{launch}
return c
"""
BATCHED = """
@triton.jit
def batched(a_ptr, b_ptr, c_ptr, TILE: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(2).to(tl.int64) * N * N
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, N)
    a = tl.load(a_ptr + at + rows[:, None] * N + k[None, :])
    b = tl.load(b_ptr + at + k[:, None] * N + columns[None, :])
    tl.store(c_ptr + at + rows[:, None] * N + columns[None, :], tl.dot(a, b).to(tl.float16))
"""
_DOT, _WIDE = "tl.dot(a, b)", 'tl.dot(a, b, input_precision="ieee")'


def _matmul(product: str = _DOT, cast: str = "", tile: int = 64, depth: int = 32) -> str:
    return module(MATMUL.format(product=product, cast=cast), _MATMUL.format(tile=tile, depth=depth), "a, b")


def _products() -> list[Pair]:
    """Matrix products."""
    half = ", ".join(["torch.randn(512, 512).half()"] * 2)
    halves = problem("a @ b", half, "a, b")
    batches = problem("torch.bmm(a, b)", ", ".join(["torch.randn(32, 128, 128).half()"] * 2), "a, b")
    together = module(BATCHED, _BATCHES.format(launch="batched[(2, 2, a.shape[0])](a, b, c, TILE=64, N=128)"), "a, b")
    loop = "for k in range(a.shape[0]):\n    batched[(2, 2, 1)](a[k], b[k], c[k], TILE=64, N=128)"
    turned = "b = b.t().contiguous().t().contiguous()\n"
    copies = module(MATMUL.format(product=_DOT, cast=""), turned + _MATMUL.format(tile=64, depth=32), "a, b")
    return [
        Pair("a product in tiles of 16", halves, _matmul(), _matmul(tile=16)),
        Pair("half precision widened before the product", halves, _matmul(), _matmul(_WIDE, ".to(tl.float32)")),
        Pair(
            "a launch for each matrix of a batch",
            batches,
            together,
            module(BATCHED, _BATCHES.format(launch=loop), "a, b"),
        ),
        Pair("an operand turned and turned back by copies", halves, _matmul(), copies),
    ]


LONG_ROW = """
@triton.jit
def long_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * columns
    i = tl.arange(0, BLOCK)
    row = x_ptr + place + i
{body}
"""
_LONG_ROW = """
out = torch.empty({shape}, device=x.device, dtype={dtype})
long_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=4096, num_warps=8)
return out
"""
_LOOP = "    for start in range(0, columns, BLOCK):\n        x = tl.load(row + start)\n"
_LARGEST = '    largest = tl.full([BLOCK], -float("inf"), tl.float32)\n'
_TOTAL, _SQUARES = (f"    {name} = tl.zeros([BLOCK], tl.float32)\n" for name in ("total", "squares"))
_MAXIMUM = "        largest = tl.maximum(largest, x)\n"
_PEAK_AFTER = "    peak = tl.max(largest)\n"
_SUM = "        total += x\n"
_EXPONENTIALS = f"{_LARGEST}{_LOOP}{_MAXIMUM}{_PEAK_AFTER}{_TOTAL}{_LOOP}        total += tl.exp(x - peak)\n"
"""Two passes: the maximum, then the sum of the exponentials."""
_RUNNING = f"""{_LARGEST}{_TOTAL}{_LOOP}        before = largest
{_MAXIMUM}        total = total * tl.exp(before - largest) + tl.exp(x - largest)
{_PEAK_AFTER}    total = total * tl.exp(largest - peak)
"""
"""The same in one."""
_STORED = "        tl.store(out_ptr + place + start + i, {value})\n"
_MEANS = f"""{_TOTAL}{_SQUARES}{_LOOP}{_SUM}        squares += x * x
    mean = tl.sum(total) / columns
    scale = tl.rsqrt(tl.sum(squares) / columns - mean * mean + 1e-5)
"""
_MEANS_APART = f"""{_TOTAL}{_LOOP}{_SUM}    mean = tl.sum(total) / columns
{_SQUARES}{_LOOP}        squares += (x - mean) * (x - mean)
    scale = tl.rsqrt(tl.sum(squares) / columns + 1e-5)
"""
_PLACE = "    best = tl.full([BLOCK], 0, tl.int32)\n"
_FOUND = """    at = tl.min(tl.where(largest == peak, best, columns))
    tl.store(out_ptr + tl.program_id(0), at.to(tl.int64))
"""


def _row(body: str, shape: str = "x.shape[0]", dtype: str = "torch.float32") -> str:
    return module(LONG_ROW.format(body=body), _LONG_ROW.format(shape=shape, dtype=dtype))


def _again() -> list[Pair]:
    """Rows of 256 KB that are read once more: all programs together have more of them than a cache holds."""
    rows = "torch.randn(1024, 65536)"
    end = "    tl.store(out_ptr + tl.program_id(0), {value})\n"
    spread = end.format(value="tl.max(largest) - tl.sum(total) / columns")
    once = _row(_LARGEST + _TOTAL + _LOOP + _MAXIMUM + _SUM + spread)
    twice = _row(_LARGEST + _TOTAL + _LOOP + _MAXIMUM + _LOOP + _SUM + spread)
    logarithm = end.format(value="peak + tl.log(tl.sum(total))")
    shares = "    whole = tl.sum(total)\n" + _LOOP + _STORED.format(value="tl.exp(x - peak) / whole")
    normal = _LOOP + _STORED.format(value="(x - mean) * scale")
    kept = f"{_LOOP}        best = tl.where(x > largest, start + i, best)\n{_MAXIMUM}{_PEAK_AFTER}"
    looked_for = f"{_LOOP}{_MAXIMUM}{_PEAK_AFTER}    best += columns\n{_LOOP}"
    looked_for += "        best = tl.minimum(best, tl.where(x == peak, start + i, columns))\n"
    first, then = (_row(_LARGEST + _PLACE + each + _FOUND, dtype="torch.int64") for each in (kept, looked_for))
    return [
        Pair("long rows that are read twice", problem("x.amax(1) - x.mean(1)", rows), once, twice),
        Pair(
            "a sum of exponentials in two passes of long rows", problem("torch.logsumexp(x, 1)", rows),
            _row(_RUNNING + logarithm), _row(_EXPONENTIALS + logarithm),
        ),
        Pair(
            "a softmax in three passes of long rows", problem("torch.softmax(x, 1)", rows),
            _row(_RUNNING + shares, "x.shape"), _row(_EXPONENTIALS + shares, "x.shape"),
        ),
        Pair(
            "a normalisation in three passes of long rows",
            problem("torch.nn.functional.layer_norm(x, (65536,))", rows),
            _row(_MEANS + normal, "x.shape"), _row(_MEANS_APART + normal, "x.shape"),
        ),
        Pair("a maximum's place in two passes of long rows", problem("torch.argmax(x, 1)", rows), first, then),
    ]  # fmt: skip


def memory_pairs() -> list[Pair]:
    """Return the pairs of this module."""
    return [*_access(), *_tiles(), *_products(), *_again()]
