"""Small kernels with a memory error, a race or a value that nobody wrote, each with its mended twin.

The classes are those that authors of sanitizers for Triton publish: accesses beyond a tensor (a mask that is missing,
too wide or of the other axis, a loop or an index that runs too far, a step before the first element), programs that
write or read the same place unordered, and memory that is read before it is written. The kernels are written for this
comparison. Imports neither torch nor triton.
"""

from dataclasses import dataclass
from enum import StrEnum

from estimate_pairs import module, problem


class Kind(StrEnum):
    """Classes of errors."""

    BOUNDS = "out of bounds"
    RACE = "race"
    UNWRITTEN = "not written"


@dataclass(frozen=True)
class Case:
    """Kernel with an error, and the same without."""

    name: str
    kind: Kind
    problem: str
    wrong: str
    right: str


def _case(name: str, kind: Kind, expected: str, inputs: str, kernel: str, forward: str, *changes: str) -> Case:
    """Return a case. `changes`: the wrong texts, then the right ones, for the marks @1, @2 … in both sources."""
    arguments = "x, y" if inputs.count("torch.") > 1 else "x"
    half = len(changes) // 2
    both: list[str] = []
    for texts in (changes[:half], changes[half:]):
        parts = [kernel, forward]
        for number, text in enumerate(texts, 1):
            parts = [part.replace(f"@{number}", text) for part in parts]
        both.append(module(*parts, arguments=arguments))
    return Case(name, kind, problem(expected, inputs, arguments), *both)


def _kernel(body: str, arguments: str = "x_ptr, out_ptr, n, BLOCK: tl.constexpr") -> str:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"\n@triton.jit\ndef kernel({arguments}):\n{lines}\n"


_LANES = "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
_LAUNCH = "kernel[(triton.cdiv(n, 128),)](x, out, n, BLOCK=128)\nreturn out"
_OVER_ELEMENTS = f"n = x.numel()\nout = torch.empty_like(x)\n{_LAUNCH}"
_VECTOR, _MATRIX = "torch.randn(1000)", "torch.randn(200, 100)"
_ROWS = "M, N = x.shape\nout = torch.empty_like(x)\nkernel[(M,)](x, out, M, N, BLOCK=128)\nreturn out"
_ROW = "x_ptr, out_ptr, M, N, BLOCK: tl.constexpr"


def _bounds() -> list[Case]:
    plain = _LANES + "x = tl.load(x_ptr + i@1)\ntl.store(out_ptr + i, x * 2.0@2)"
    mask = ", mask=i < n"
    return [
        _case("a load without a mask", Kind.BOUNDS, "x * 2.0", _VECTOR, _kernel(plain), _OVER_ELEMENTS,
              "", mask, mask, mask),
        _case("a store without a mask", Kind.BOUNDS, "x * 2.0", _VECTOR, _kernel(plain), _OVER_ELEMENTS,
              mask, "", mask, mask),
        _case("a mask one too wide", Kind.BOUNDS, "x * 2.0", _VECTOR, _kernel(plain), _OVER_ELEMENTS,
              ", mask=i <= n", mask, mask, mask),
        _case("a mask of the padded size", Kind.BOUNDS, "x * 2.0", _VECTOR, _kernel(plain), _OVER_ELEMENTS,
              ", mask=i < tl.cdiv(n, BLOCK) * BLOCK", mask, mask, mask),
        _case("a grid with a block too many", Kind.BOUNDS, "x * 2.0", "torch.randn(1024)", _kernel(plain),
              _OVER_ELEMENTS.replace("(triton.cdiv(n, 128),)", "(@3,)"),
              "", "", "n // 128 + 1", mask, mask, "triton.cdiv(n, 128)"),
        _case("a step before the first element", Kind.BOUNDS, "x + torch.nn.functional.pad(x, (1, 0))[:-1]", _VECTOR,
              _kernel(_LANES + "a = tl.load(x_ptr + i - 1, mask=@1, other=0.0)\nb = tl.load(x_ptr + i, mask=i < n, "
                      "other=0.0)\ntl.store(out_ptr + i, tl.where(i > 0, a, 0.0) + b, mask=i < n)"),
              _OVER_ELEMENTS, "i < n", "(i < n) & (i > 0)"),
        _case("columns masked by the number of rows", Kind.BOUNDS, "torch.relu(x)", _MATRIX,
              _kernel("j = tl.arange(0, BLOCK)\nat = tl.program_id(0) * N + j\nx = tl.load(x_ptr + at, mask=j < @1)\n"
                      "tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=j < N)", _ROW), _ROWS, "M", "N"),
        _case("rows that are a multiple of the tile alone", Kind.BOUNDS, "torch.relu(x)", "torch.randn(203, 100)",
              _kernel("r = tl.program_id(0) * 8 + tl.arange(0, 8)\nj = tl.arange(0, BLOCK)\n"
                      "at = r[:, None] * N + j[None, :]\nmask = (j < N)[None, :]@1\n"
                      "x = tl.load(x_ptr + at, mask=mask)\ntl.store(out_ptr + at, tl.maximum(x, 0.0), mask=mask)",
                      _ROW),
              _ROWS.replace("(M,)", "(triton.cdiv(M, 8),)"), "", " & (r < M)[:, None]"),
        _case("a loop over columns without a mask for the last step", Kind.BOUNDS, "x.sum(1)", _MATRIX,
              _kernel("total = 0.0\nfor k in range(0, N, BLOCK):\n    j = k + tl.arange(0, BLOCK)\n    "
                      "x = tl.load(x_ptr + tl.program_id(0) * N + j, mask=j < @1, other=0.0)\n"
                      "    total += tl.sum(x, 0)\ntl.store(out_ptr + tl.program_id(0), total)", _ROW),
              _ROWS.replace("torch.empty_like(x)", "torch.empty(M, device=x.device)").replace("128", "64"),
              "N + BLOCK", "N"),
        _case("a stride of the other axis", Kind.BOUNDS, "x.t().contiguous()", _MATRIX,
              _kernel("j = tl.arange(0, BLOCK)\nr = tl.program_id(0)\nx = tl.load(x_ptr + r * N + j, mask=j < N)\n"
                      "tl.store(out_ptr + j * @1 + r, x, mask=j < N)", _ROW),
              _ROWS.replace("empty_like(x)", "empty(N, M, device=x.device)"), "(M + 1)", "M"),
        _case("an index that is not checked", Kind.BOUNDS, "x[y.clamp(max=x.shape[0] - 1)]",
              "torch.randn(500), torch.randint(0, 600, (500,))",
              _kernel(_LANES + "k = tl.load(y_ptr + i, mask=i < n, other=0)\nx = tl.load(x_ptr + @1, mask=i < n)\n"
                      "tl.store(out_ptr + i, x, mask=i < n)", "x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr"),
              "n = y.numel()\nout = torch.empty(n, device=x.device)\n"
              "kernel[(triton.cdiv(n, 128),)](x, y, out, n, x.numel(), BLOCK=128)\nreturn out",
              "k", "tl.minimum(k, m - 1)"),
        _case("a block pointer without a boundary check", Kind.BOUNDS, "x * 2.0", _VECTOR,
              _kernel("p = tl.make_block_ptr(x_ptr, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))\n"
                      "q = tl.make_block_ptr(out_ptr, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))\n"
                      "tl.store(q, tl.load(p@1) * 2.0, boundary_check=(0,))"), _OVER_ELEMENTS,
              "", ", boundary_check=(0,), padding_option='zero'"),
        _case("an atomic beyond the last bin", Kind.BOUNDS, "torch.bincount(x.clamp(max=31), minlength=32).float()",
              "torch.randint(0, 40, (500,))",
              _kernel(_LANES + "k = tl.load(x_ptr + i, mask=i < n, other=0)\n"
                      "tl.atomic_add(out_ptr + @1, 1.0, mask=i < n)"),
              f"out = torch.zeros(32, device=x.device)\nn = x.numel()\n{_LAUNCH}", "k", "tl.minimum(k, 31)"),
    ]  # fmt: skip


_SUM = f"out = torch.zeros((), device=x.device)\nn = x.numel()\n{_LAUNCH}"
_PART = _LANES + "x = tl.load(x_ptr + i, mask=i < n, other=0.0)\n"


def _races() -> list[Case]:
    return [
        _case("blocks that overlap by an element", Kind.RACE,
              "x + torch.arange(x.numel(), device=x.device) // 128", _VECTOR,
              _kernel("i = tl.program_id(0) * @1 + tl.arange(0, BLOCK)\nx = tl.load(x_ptr + i, mask=i < n)\n"
                      "tl.store(out_ptr + i, x + tl.program_id(0), mask=i < n)"),
              _OVER_ELEMENTS.replace("cdiv(n, 128)", "cdiv(n, 126)"), "(BLOCK - 1)", "BLOCK"),
        _case("all programs write one sum", Kind.RACE, "x.sum()", _VECTOR,
              _kernel(_PART + "@1"), _SUM, "tl.store(out_ptr, tl.load(out_ptr) + tl.sum(x, 0))",
              "tl.atomic_add(out_ptr, tl.sum(x, 0))"),
        _case("a histogram by loads and stores", Kind.RACE, "torch.bincount(x, minlength=16).float()",
              "torch.randint(0, 16, (1000,))",
              _kernel(_LANES + "k = tl.load(x_ptr + i, mask=i < n, other=0)\n@1"),
              _SUM.replace("zeros(()", "zeros(16"),
              "tl.store(out_ptr + k, tl.load(out_ptr + k, mask=i < n) + 1.0, mask=i < n)",
              "tl.atomic_add(out_ptr + k, 1.0, mask=i < n)"),
        _case("column sums added up without atomics", Kind.RACE, "x.sum(0)", _MATRIX,
              _kernel("j = tl.arange(0, BLOCK)\nx = tl.load(x_ptr + tl.program_id(0) * N + j, mask=j < N)\n@1", _ROW),
              _ROWS.replace("empty_like(x)", "zeros(N, device=x.device)"),
              "tl.store(out_ptr + j, tl.load(out_ptr + j, mask=j < N) + x, mask=j < N)",
              "tl.atomic_add(out_ptr + j, x, mask=j < N)"),
        _case("a neighbour read in place", Kind.RACE, "x * 2.0 + torch.nn.functional.pad(x * 2.0, (0, 1))[1:]", _VECTOR,
              _kernel(_LANES + "a = tl.load(x_ptr + i, mask=i < n)\n"
                      "b = tl.load(x_ptr + i + 1, mask=i + 1 < n, other=0.0)\ntl.store(out_ptr + i, a + b, mask=i < n)")
              + _kernel(_LANES + "tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0, mask=i < n)")
              .replace("def kernel", "def double"),
              "n = x.numel()\nout = torch.empty_like(x)\ntwice = torch.empty_like(x)\ngrid = (triton.cdiv(n, 128),)\n"
              "double[grid](x, twice, n, BLOCK=128)\nkernel[grid](twice, @1, n, BLOCK=128)\nreturn @1",
              "twice", "out"),
        _case("a value of another program in the same launch", Kind.RACE, "x / x.sum()", "torch.rand(1000)",
              _kernel(_PART + "tl.atomic_add(t_ptr, tl.sum(x, 0))\n@1",
                      "x_ptr, out_ptr, t_ptr, n, BLOCK: tl.constexpr")
              + _kernel(_PART + "tl.store(out_ptr + i, x / tl.load(t_ptr), mask=i < n)",
                        "x_ptr, out_ptr, t_ptr, n, BLOCK: tl.constexpr").replace("def kernel", "def divide"),
              "n = x.numel()\nout = torch.empty_like(x)\ntotal = torch.zeros(1, device=x.device)\n"
              "grid = (triton.cdiv(n, 128),)\nkernel[grid](x, out, total, n, BLOCK=128)\n@2\nreturn out",
              "tl.store(out_ptr + i, x / tl.load(t_ptr), mask=i < n)", "",
              "", "divide[grid](x, out, total, n, BLOCK=128)"),
        _case("a matrix transposed in place", Kind.RACE, "x.t().contiguous()", "torch.randn(64, 64)",
              _kernel("j = tl.arange(0, 64)\nr = tl.program_id(0)\nx = tl.load(x_ptr + r * 64 + j)\n"
                      "tl.store(out_ptr + j * 64 + r, x)", "x_ptr, out_ptr")
              + _kernel(_LANES + "tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)")
              .replace("def kernel", "def copy"),
              "own = torch.empty_like(x)\nout = torch.empty_like(x)\ncopy[(32,)](x, own, 4096, BLOCK=128)\n"
              "kernel[(64,)](own, @1)\nreturn @1", "own", "out"),
        _case("rows scattered to places that occur twice", Kind.RACE,
              "torch.zeros(16, device=x.device).index_add(0, y, x)", "torch.randn(1000), torch.randint(0, 16, (1000,))",
              _kernel(_PART + "k = tl.load(y_ptr + i, mask=i < n, other=0)\n@1",
                      "x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr"),
              "n = x.numel()\nout = torch.zeros(16, device=x.device)\n"
              "kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)\nreturn out",
              "tl.store(out_ptr + k, tl.load(out_ptr + k, mask=i < n) + x, mask=i < n)",
              "tl.atomic_add(out_ptr + k, x, mask=i < n)"),
    ]  # fmt: skip


def _unwritten() -> list[Case]:
    doubled = _kernel(_LANES + "x = tl.load(x_ptr + i, mask=i < n)\ntl.store(out_ptr + i, x * 2.0, mask=i < @1)")
    return [
        _case("the last elements are not written", Kind.UNWRITTEN, "x * 2.0", _VECTOR, doubled, _OVER_ELEMENTS,
              "n - 3", "n"),
        _case("a grid rounded down", Kind.UNWRITTEN, "x * 2.0", _VECTOR, doubled,
              _OVER_ELEMENTS.replace("triton.cdiv(n, 128)", "@2"), "n", "n // 128", "n", "triton.cdiv(n, 128)"),
        _case("atomics onto memory without values", Kind.UNWRITTEN, "x.sum()", _VECTOR,
              _kernel(_PART + "tl.atomic_add(out_ptr, tl.sum(x, 0))"), _SUM.replace("zeros", "@1"), "empty", "zeros"),
        _case("partial sums of which one is missing", Kind.UNWRITTEN, "x.sum()", _VECTOR,
              _kernel(_PART + "tl.store(out_ptr + tl.program_id(0), tl.sum(x, 0), mask=tl.program_id(0) @1)")
              + "\n@triton.jit\ndef total(part_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n"
              "    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < n, other=0.0), 0))\n",
              "n = x.numel()\ncount = triton.cdiv(n, 128)\npart = torch.empty(count, device=x.device)\n"
              "out = torch.empty((), device=x.device)\nkernel[(count,)](x, part, n, BLOCK=128)\n"
              "total[(1,)](part, out, count, BLOCK=triton.next_power_of_2(count))\nreturn out", "> 0", ">= 0"),
        _case("the diagonal is left out", Kind.UNWRITTEN, "torch.tril(x)", "torch.randn(64, 64)",
              _kernel("j = tl.arange(0, 64)\nr = tl.program_id(0)\nx = tl.load(x_ptr + r * 64 + j)\n"
                      "tl.store(out_ptr + r * 64 + j, x, mask=j < r)\n"
                      "tl.store(out_ptr + r * 64 + j, x * 0, mask=j > r)@1",
                      "x_ptr, out_ptr"),
              "out = torch.empty_like(x)\nkernel[(x.shape[0],)](x, out)\nreturn out",
              "", "\n    tl.store(out_ptr + r * 64 + j, x, mask=j == r)"),
    ]  # fmt: skip


def all_cases() -> list[Case]:
    """Return every case."""
    return [*_bounds(), *_races(), *_unwritten()]
