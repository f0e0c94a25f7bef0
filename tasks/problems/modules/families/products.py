"""Matrix products: plain, transposed, batched, triangular, symmetric, with vectors, diagonals and tensors, and layers.

plain: tiles of the result, whose operands are read by their strides; the tile's sizes follow the problem's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.product_texts import MATRIX_VECTOR, bmm, by_element, linear, matmul, tile_for
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text

MOST_STEPS = 4000
"""Steps of 32 inner elements over all tiles at most: few enough for the interpreter."""
_SIZES = (64, 100, 128, 256, 384, 512, 512, 768, 1000, 1024, 2048)


@dataclass(frozen=True)
class Drawn:
    """A product's parts: the module, the kernels' texts and the statements of `forward`."""

    module: Module
    kernels: list[str]
    host: list[str]


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one product."""
    operator = rng.choice(rng.unless(FAMILY.operators, unseen, str))
    drawn = _MAKERS[operator](rng)
    return ModulePair(
        family=FAMILY.name,
        operator=operator,
        title=drawn.module.title,
        problem_source=problem_text(rng, drawn.module),
        kernel_source=kernel_text(drawn.kernels, drawn.module, drawn.host),
        style="plain",
    )


def sizes(rng: Draw, batch: int = 1, *, short: str = "") -> tuple[int, int, int]:
    """Return M, K and N of a product; `short`: the one of them that is 16 to 64, while M or K is long."""
    while True:
        m, k, n = (rng.choice(_SIZES) for _ in range(3))
        if short:
            m, n = rng.pick(4096, 8192, 16384), rng.pick(16, 32, 64)
            k = rng.pick(16, 32, 64, 128)
        tile = tile_for(m, n, k)
        steps = batch * math.ceil(m / tile.rows) * math.ceil(n / tile.cols) * math.ceil(k / 32)
        if 16 <= steps <= MOST_STEPS and m * n >= 2**12:
            return m, k, n


def _names(rng: Draw) -> tuple[str, str]:
    return rng.pick(("A", "B"), ("A", "B"), ("a", "b"), ("x", "y"))


def _two(
    rng: Draw, names: tuple[str, str], shapes: tuple[str, str], made: tuple[str, str] | None = None
) -> tuple[Input, Input]:
    first, second = (
        Input(name, value or f"torch.randn({shape})", meaning=f"Input matrix of shape ({shape}).")
        for name, shape, value in zip(names, shapes, made or ("", ""), strict=True)
    )
    return first, second


def _dims(**values: int) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in values.items())


def _plain(rng: Draw, transposed: str = "", short: str = "") -> Drawn:
    (m, k, n), (a, b) = sizes(rng, short=short), _names(rng)
    swap = rng.pick(".T", ".t()", ".transpose(0, 1)")
    left = f"{a}{swap}" if "a" in transposed else a
    right = f"{b}{swap}" if "b" in transposed else b
    shapes = ("K, M" if "a" in transposed else "M, K", "N, K" if "b" in transposed else "K, N")
    forms = [f"torch.matmul({left}, {right})", f"{left} @ {right}", f"torch.mm({left}, {right})"]
    if transposed or rng.chance(0.3):
        indices = "".join(part.replace(", ", "").lower() for part in shapes)
        forms.append(f'torch.einsum("{indices[:2]},{indices[2:]}->mn", {a}, {b})')
    title = {
        "": "a matrix multiplication (C = A * B)",
        "a": "a matrix multiplication with a transposed first operand",
        "b": "a matrix multiplication with a transposed second operand",
        "ab": "a matrix multiplication with both operands transposed",
    }[transposed]
    title = "a tall and skinny matrix multiplication" if short else title
    module = Module(title, _two(rng, (a, b), shapes), (f"return {rng.choice(forms)}",), constants=_dims(M=m, K=k, N=n))
    call = f"matmul({a}{'.T' if 'a' in transposed else ''}, {b}{'.T' if 'b' in transposed else ''})"
    return Drawn(module, [matmul(tile_for(m, n, k))], [f"return {call}"])


def _square(rng: Draw, kind: str) -> Drawn:
    n, (a, b) = rng.pick(256, 384, 512, 768, 1000, 1024), _names(rng)
    product = rng.pick(f"torch.matmul({a}, {b})", f"{a} @ {b}", f"torch.mm({a}, {b})")
    if kind == "symmetric":
        form = product
        title = "a multiplication of two symmetric matrices"
        half = "(lambda t: (t + t.T) / 2)(torch.randn(N, N))"
        made = (half, half)
    else:
        part = "triu" if kind == "upper" else "tril"
        form = rng.pick(
            f"torch.{part}({product})", f"({product}).{part}()" if "@" in product else f"{product}.{part}()"
        )
        title = f"a matrix multiplication of {kind} triangular matrices"
        one = f"torch.{part}(torch.randn(N, N))"
        made = rng.pick((one, one), (one, one), ("torch.randn(N, N)", "torch.randn(N, N)"))
    module = Module(title, _two(rng, (a, b), ("N, N", "N, N"), made), (f"return {form}",), constants=_dims(N=n))
    text = matmul(tile_for(n, n, n), "" if kind == "symmetric" else "upper" if kind == "upper" else "lower")
    return Drawn(module, [text], [f"return matmul({a}, {b})"])


def _batched(rng: Draw) -> Drawn:
    batch, (a, b) = rng.pick(4, 8, 16, 32), _names(rng)
    m, k, n = sizes(rng, batch)
    swapped = rng.chance(0.3)
    right = f"{b}.transpose({rng.pick('1, 2', '-2, -1')})" if swapped else b
    forms = [f"torch.bmm({a}, {right})", f"torch.matmul({a}, {right})", f"{a} @ {right}"]
    forms.append(f'torch.einsum("bmk,{"bnk" if swapped else "bkn"}->bmn", {a}, {b})')
    inputs = _two(rng, (a, b), ("batch_size, M, K", "batch_size, N, K" if swapped else "batch_size, K, N"))
    dims = _dims(batch_size=batch, M=m, K=k, N=n)
    module = Module("a batched matrix multiplication", inputs, (f"return {rng.choice(forms)}",), constants=dims)
    call = f"bmm({a}, {b}.transpose(1, 2))" if swapped else f"bmm({a}, {b})"
    return Drawn(module, [bmm(tile_for(m, n, k))], [f"return {call}"])


def _tensor(rng: Draw, rank: int) -> Drawn:
    """Return a product of the last dimension of a tensor of rank 3 or 4 with a matrix."""
    a, b = rng.pick(("A", "B"), ("A", "B"), ("x", "weight"))  # a and b are names of sizes here
    while True:
        lead = (rng.pick(2, 4, 8, 16), *((rng.pick(4, 8, 16),) if rank == 4 else ()), rng.pick(32, 64, 128, 256))
        k, n, rows = rng.pick(64, 128, 256, 512), rng.pick(64, 96, 128, 256, 768), math.prod(lead)
        tile = tile_for(rows, n, k)
        if math.ceil(rows / tile.rows) * math.ceil(n / tile.cols) * math.ceil(k / 32) <= MOST_STEPS:
            break
    names = rng.pick(("N", "M", "K", "L"), ("b", "i", "l", "k")) if rank == 3 else ("b", "i", "j", "l", "k")
    letters = "".join(names).lower()
    equation = f"{letters[:rank]},{letters[-2:]}->{letters[: rank - 1]}{letters[-1]}"
    forms = [f"torch.matmul({a}, {b})", f"{a} @ {b}", f'torch.einsum("{equation}", {a}, {b})']
    inputs = _two(rng, (a, b), (", ".join(names[:rank]), ", ".join(names[-2:])))
    constants = tuple((name, str(size)) for name, size in zip(names, (*lead, k, n), strict=True))
    module = Module(
        f"a {rank}D tensor-matrix multiplication", inputs, (f"return {rng.choice(forms)}",), constants=constants
    )
    host = [f"out = matmul({a}.view(-1, {a}.shape[-1]), {b})", f"return out.view(*{a}.shape[:-1], {b}.shape[1])"]
    return Drawn(module, [matmul(tile)], host)


def _vector(rng: Draw) -> Drawn:
    a, b = rng.pick(("A", "B"), ("A", "x"), ("matrix", "vector"))
    m, k = rng.pick((256, 8192), (512, 4096), (1024, 1000), (2048, 1024), (128, 16384), (4096, 512))
    column = rng.chance(0.5)
    forms = [f"torch.matmul({a}, {b})", f"{a} @ {b}", *([] if column else [f"torch.mv({a}, {b})"])]
    inputs = _two(rng, (a, b), ("M, K", "K, 1" if column else "K"))
    module = Module(
        "a matrix-vector multiplication", inputs, (f"return {rng.choice(forms)}",), constants=_dims(M=m, K=k)
    )
    shape = f"({a}.shape[0], 1)" if column else f"{a}.shape[0]"
    block = 4096 if k >= 4096 else 1024
    host = [
        f"{a}, {b} = {a}.contiguous(), {b}.contiguous()",
        f"M, K = {a}.shape",
        f"out = torch.empty({shape}, device={a}.device)",
    ]
    return Drawn(
        module, [MATRIX_VECTOR], [*host, f"matvec_kernel[(M,)]({a}, {b}, out, K, BLOCK={block})", "return out"]
    )


def _outer(rng: Draw) -> Drawn:
    a, b = _names(rng)
    m, n = rng.pick(512, 1000, 2048, 4096), rng.pick(512, 1000, 2048, 4096)
    form = rng.pick(
        f"torch.outer({a}, {b})",
        f"{a}.unsqueeze(1) * {b}.unsqueeze(0)",
        f"{a}[:, None] * {b}[None, :]",
        f'torch.einsum("i,j->ij", {a}, {b})',
    )
    module = Module(
        "an outer product of two vectors", _two(rng, (a, b), ("M", "N")), (f"return {form}",), constants=_dims(M=m, N=n)
    )
    text = by_element("outer_kernel", "tl.load(a_ptr + row) * tl.load(b_ptr + cols, mask=mask, other=0.0)")
    host = [
        f"{a}, {b} = {a}.contiguous(), {b}.contiguous()",
        f"M, N = {a}.shape[0], {b}.shape[0]",
        f"out = torch.empty((M, N), device={a}.device)",
    ]
    return Drawn(
        module, [text], [*host, f"outer_kernel[(M, triton.cdiv(N, 1024))]({a}, {b}, out, N, BLOCK=1024)", "return out"]
    )


def _diagonal(rng: Draw) -> Drawn:
    a, b = _names(rng)
    m, n = rng.pick(512, 1000, 1024, 2048), rng.pick(512, 1000, 2048, 4096)
    right = rng.chance(0.3)
    matrix = f"torch.diag({a})"
    if right:
        forms = [f"{b} @ {matrix}", f"torch.matmul({b}, {matrix})", f"{b} * {a}.unsqueeze(0)"]
        inputs, scale = _two(rng, (a, b), ("M", "N, M")), "tl.load(a_ptr + cols, mask=mask, other=0.0)"
    else:
        forms = [
            f"{matrix} @ {b}",
            f"torch.matmul({matrix}, {b})",
            f"torch.mm({matrix}, {b})",
            f"{a}.unsqueeze(1) * {b}",
        ]
        inputs, scale = _two(rng, (a, b), ("N", "N, M")), "tl.load(a_ptr + row)"
    title = (
        "a multiplication of a matrix with a diagonal matrix"
        if right
        else "a multiplication of a diagonal matrix with a matrix"
    )
    module = Module(title, inputs, (f"return {rng.choice(forms)}",), constants=_dims(M=m, N=n))
    text = by_element("diag_kernel", f"{scale} * tl.load(b_ptr + row * N + cols, mask=mask, other=0.0)")
    host = [f"{a}, {b} = {a}.contiguous(), {b}.contiguous()", f"M, N = {b}.shape", f"out = torch.empty_like({b})"]
    return Drawn(
        module, [text], [*host, f"diag_kernel[(M, triton.cdiv(N, 1024))]({a}, {b}, out, N, BLOCK=1024)", "return out"]
    )


def _linear(rng: Draw) -> Drawn:
    rank = rng.pick(2, 2, 2, 3)
    while True:
        rows = (rng.pick(16, 64, 128, 256, 512),) if rank == 2 else (rng.pick(4, 8, 16), rng.pick(32, 64, 128))
        k, n = rng.pick(64, 128, 256, 512, 1000, 1024), rng.pick(64, 100, 128, 256, 512, 1024)
        tile = tile_for(math.prod(rows), n, k)
        if math.ceil(math.prod(rows) / tile.rows) * math.ceil(n / tile.cols) * math.ceil(k / 32) <= MOST_STEPS:
            break
    inside, out = rng.pick(
        ("in_features", "out_features"), ("input_size", "hidden_size"), ("in_features", "out_features")
    )
    bias, attribute = rng.chance(0.75), rng.pick("linear", "fc", "gemm", "matmul", "layer")
    lead = ("batch_size",) if rank == 2 else ("batch_size", "seq_len")
    names = (*lead, inside)
    init = f"self.{attribute} = nn.Linear({inside}, {out}{'' if bias else ', bias=False'})"
    module = Module(
        rng.pick("a linear layer", "a matrix multiplication with a weight matrix", "a fully connected layer"),
        (Input("x", f"torch.randn({', '.join(names)})", meaning=f"Input tensor of shape ({', '.join(names)})."),),
        (f"return self.{attribute}(x)",),
        (
            Argument(inside, inside, meaning="Number of input features."),
            Argument(out, out, meaning="Number of output features."),
        ),
        (init,),
        tuple((name, str(size)) for name, size in zip((*names, out), (*rows, k, n), strict=True)),
    )
    host = [f"return linear(x, self.{attribute})"]
    if rank == 3:
        host = [f"out = linear(x.view(-1, x.shape[-1]), self.{attribute})", "return out.view(*x.shape[:-1], -1)"]
    return Drawn(module, [linear(tile)], host)


_MAKERS: dict[str, Callable[[Draw], Drawn]] = {
    "matmul": _plain,
    "matmul_transposed_a": lambda rng: _plain(rng, "a"),
    "matmul_transposed_b": lambda rng: _plain(rng, "b"),
    "matmul_transposed_both": lambda rng: _plain(rng, "ab"),
    "tall_skinny_matmul": lambda rng: _plain(rng, short="N"),
    "batched_matmul": _batched,
    "upper_triangular_matmul": lambda rng: _square(rng, "upper"),
    "lower_triangular_matmul": lambda rng: _square(rng, "lower"),
    "symmetric_matmul": lambda rng: _square(rng, "symmetric"),
    "tensor3d_matmul": lambda rng: _tensor(rng, 3),
    "tensor4d_matmul": lambda rng: _tensor(rng, 4),
    "matrix_vector": _vector,
    "outer": _outer,
    "diagonal_matmul": _diagonal,
    "linear": _linear,
}
FAMILY = Family("products", tuple(_MAKERS), draw)
