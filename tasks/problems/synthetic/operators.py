"""The operators that generated problems are composed of: one line of PyTorch, and what a Triton kernel writes for it.

A kernel holds a tile `x` of shape (ROWS, BLOCK) in registers: `rows` is (ROWS, 1), `cols` is (1, BLOCK), `offs` their
row-major offsets and `mask` the lanes inside the (M, N) tensor. Lanes outside hold arbitrary values after an operator:
reductions mask them. Each operator also has a plausible mistake, as a scraped corpus would have it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """The operator families of the suite, the most demanding first; a composition is filed under the first it has."""

    MATMUL = "matmul"
    LAYOUT = "layout"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    ROW_STATISTIC = "row_statistic"
    BROADCAST = "broadcast"
    SCALAR = "scalar"
    ELEMENTWISE = "elementwise"


class Place(StrEnum):
    """Position of an operator in a composition."""

    HEAD = "head"
    """First: it makes the tile from the input in its own way (matrix products)."""
    BODY = "body"
    """Anywhere: tile to tile of the same shape."""
    TAIL = "tail"
    """Last: it changes the output's shape or layout."""


@dataclass(frozen=True)
class Operator:
    """One operator in both languages."""

    name: str
    family: Family
    torch_line: str
    """Statement in `Model.forward`; rebinds x."""
    kernel_lines: tuple[str, ...]
    """Statements on the tile. For a TAIL the last one computes what is stored."""
    wrong_lines: tuple[str, ...] = ()
    """The same with a plausible mistake."""
    place: Place = Place.BODY
    operand: str | None = None
    """An extra tensor: `y` (M, N) and `c` (M, 1) are inputs; `scale`, `bias` (N,) and `weight` are parameters."""
    output_shape: str = "M, N"
    """Arguments of torch.empty for the output."""
    store: str = "tl.store(out_ptr + offs, x, mask=mask)"
    """Statement that writes the tile."""


def _sum(expression: str) -> str:
    return f"tl.sum(tl.where(mask, {expression}, 0.0), 1)[:, None]"


_MAX = 'tl.max(tl.where(mask, x, -float("inf")), 1)[:, None]'
_ROW_STORE = "tl.store(out_ptr + rows, x, mask=rows < M)"


def _body(
    family: Family, name: str, torch_expression: str, *kernel: str, wrong: str, operand: str | None = None
) -> Operator:
    """Build a BODY operator from the expressions that x is set to; its mistake is in the kernel's first one."""
    right = tuple(f"x = {expression}" for expression in kernel)
    return Operator(name, family, f"x = {torch_expression}", right, (f"x = {wrong}", *right[1:]), operand=operand)


def _elementwise(name: str, torch_expression: str, kernel: str, wrong: str) -> Operator:
    return _body(Family.ELEMENTWISE, name, torch_expression, kernel, wrong=wrong)


def _scalar(name: str, expression: str, wrong: str) -> Operator:
    return _body(Family.SCALAR, name, expression, expression, wrong=wrong)


ELEMENTWISE = (
    _elementwise("relu", "torch.relu(x)", "tl.maximum(x, 0.0)", "tl.minimum(x, 0.0)"),
    _elementwise("sigmoid", "torch.sigmoid(x)", "tl.sigmoid(x)", "1.0 / (1.0 + tl.exp(x))"),
    _elementwise("tanh", "torch.tanh(x)", "2.0 * tl.sigmoid(2.0 * x) - 1.0", "2.0 * tl.sigmoid(x) - 1.0"),
    _elementwise("silu", "F.silu(x)", "x * tl.sigmoid(x)", "tl.sigmoid(x)"),
    _elementwise(
        "gelu", "F.gelu(x)", "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))", "0.5 * x * (1.0 + tl.erf(x))"
    ),
    _elementwise(
        "leaky_relu", "F.leaky_relu(x, 0.1)", "tl.where(x > 0.0, x, 0.1 * x)", "tl.where(x > 0.0, x, 0.01 * x)"
    ),
    _elementwise("elu", "F.elu(x)", "tl.where(x > 0.0, x, tl.exp(x) - 1.0)", "tl.where(x > 0.0, x, tl.exp(x))"),
    _elementwise(
        "softplus",
        "F.softplus(x)",
        "tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x)))",
        "tl.where(x > 20.0, x, tl.log(tl.exp(x)))",
    ),
    _elementwise(
        "hardtanh", "F.hardtanh(x)", "tl.minimum(tl.maximum(x, -1.0), 1.0)", "tl.minimum(tl.maximum(x, 0.0), 1.0)"
    ),
    _elementwise(
        "hardsigmoid",
        "F.hardsigmoid(x)",
        "tl.minimum(tl.maximum(x / 6.0 + 0.5, 0.0), 1.0)",
        "tl.minimum(tl.maximum(x * 0.2 + 0.5, 0.0), 1.0)",
    ),
    _elementwise(
        "hardswish",
        "F.hardswish(x)",
        "x * tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0",
        "x * tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0)",
    ),
    _elementwise("softsign", "F.softsign(x)", "x / (1.0 + tl.abs(x))", "x / (1.0 + x)"),
    _elementwise("abs", "torch.abs(x)", "tl.abs(x)", "-x"),
    _elementwise("square", "torch.square(x)", "x * x", "x + x"),
    _elementwise("negate", "torch.neg(x)", "-x", "tl.abs(x)"),
    _elementwise("sine", "torch.sin(x)", "tl.sin(x)", "tl.cos(x)"),
    _elementwise("cosine", "torch.cos(x)", "tl.cos(x)", "tl.sin(x)"),
    _elementwise("log1p_abs", "torch.log1p(torch.abs(x))", "tl.log(1.0 + tl.abs(x))", "tl.log(1.0 + x)"),
    _elementwise("sqrt_abs", "torch.sqrt(torch.abs(x) + 0.01)", "tl.sqrt(tl.abs(x) + 0.01)", "tl.sqrt(tl.abs(x))"),
    _elementwise("gaussian", "torch.exp(-x * x)", "tl.exp(-x * x)", "tl.exp(x * x)"),
)

SCALAR = (
    _scalar("double", "x * 2.0", "x + 2.0"),
    _scalar("halve", "x * 0.5", "x - 0.5"),
    _scalar("increment", "x + 1.0", "x - 1.0"),
    _scalar("decrement", "x - 0.5", "x + 0.5"),
    _scalar("third", "x / 3.0", "x * 3.0"),
    _scalar("complement", "1.0 - x", "x - 1.0"),
)

_LOAD_Y = "tl.load(y_ptr + offs, mask=mask, other=0.0)"
_LOAD_C = "tl.load(c_ptr + rows, mask=rows < M, other=0.0)"
_LOAD_SCALE = "tl.load(scale_ptr + cols, mask=cols < N, other=0.0)"
_LOAD_BIAS = "tl.load(bias_ptr + cols, mask=cols < N, other=0.0)"


def _broadcast(name: str, torch_expression: str, kernel: str, wrong: str, operand: str) -> Operator:
    return _body(Family.BROADCAST, name, torch_expression, kernel, wrong=wrong, operand=operand)


BROADCAST = (
    _broadcast("add_tensor", "x + y", f"x + {_LOAD_Y}", f"x - {_LOAD_Y}", "y"),
    _broadcast("multiply_tensor", "x * y", f"x * {_LOAD_Y}", f"x + {_LOAD_Y}", "y"),
    _broadcast("maximum_tensor", "torch.maximum(x, y)", f"tl.maximum(x, {_LOAD_Y})", f"tl.minimum(x, {_LOAD_Y})", "y"),
    _broadcast("scale_rows", "x * c", f"x * {_LOAD_C}", f"x + {_LOAD_C}", "c"),
    _broadcast("shift_rows", "x + c", f"x + {_LOAD_C}", f"x * {_LOAD_C}", "c"),
    _broadcast("scale_columns", "x * self.scale", f"x * {_LOAD_SCALE}", f"x + {_LOAD_SCALE}", "scale"),
    _broadcast("shift_columns", "x + self.bias", f"x + {_LOAD_BIAS}", f"x - {_LOAD_BIAS}", "bias"),
)

ROW_STATISTIC = (
    _body(
        Family.ROW_STATISTIC,
        "subtract_mean",
        "x - x.mean(dim=1, keepdim=True)",
        f"x - {_sum('x')} / N",
        wrong=f"x - {_sum('x')} / BLOCK",
    ),
    _body(Family.ROW_STATISTIC, "subtract_max", "x - x.amax(dim=1, keepdim=True)", f"x - {_MAX}", wrong=f"x + {_MAX}"),
    _body(
        Family.ROW_STATISTIC,
        "divide_by_l1",
        "x / (x.abs().sum(dim=1, keepdim=True) + 1.0)",
        f"x / ({_sum('tl.abs(x)')} + 1.0)",
        wrong=f"x / ({_sum('x')} + 1.0)",
    ),
)

SOFTMAX = (
    _body(
        Family.SOFTMAX, "softmax", "torch.softmax(x, dim=1)", f"tl.exp(x - {_MAX})", f"x / {_sum('x')}", wrong="x * x"
    ),
    Operator(
        "log_softmax",
        Family.SOFTMAX,
        "x = torch.log_softmax(x, dim=1)",
        (f"x = x - {_MAX}", f"x = x - tl.log({_sum('tl.exp(x)')})"),
        (f"x = x - {_MAX}", f"x = x - {_sum('tl.exp(x)')}"),
    ),
)

NORMALISATION = (
    _body(
        Family.NORMALISATION,
        "layer_norm",
        "F.layer_norm(x, x.shape[1:])",
        f"x - {_sum('x')} / N",
        f"x * tl.rsqrt({_sum('x * x')} / N + 1e-5)",
        wrong=f"x - {_sum('x')}",
    ),
    _body(
        Family.NORMALISATION,
        "rms_norm",
        "F.rms_norm(x, x.shape[1:], eps=1e-6)",
        f"x * tl.rsqrt({_sum('x * x')} / N + 1e-6)",
        wrong=f"x * tl.rsqrt({_sum('x * x')} + 1e-6)",
    ),
)


def _reduction(name: str, torch_expression: str, kernel: str, wrong: str) -> Operator:
    return Operator(
        name,
        Family.REDUCTION,
        f"x = {torch_expression}",
        (f"x = {kernel}",),
        (f"x = {wrong}",),
        place=Place.TAIL,
        output_shape="M",
        store=_ROW_STORE,
    )


REDUCTION = (
    _reduction("sum", "x.sum(dim=1)", _sum("x"), f"{_sum('x')} / N"),
    _reduction("mean", "x.mean(dim=1)", f"{_sum('x')} / N", _sum("x")),
    _reduction("amax", "x.amax(dim=1)", _MAX, _sum("x")),
    _reduction("l2", "torch.linalg.vector_norm(x, dim=1)", f"tl.sqrt({_sum('x * x')})", _sum("x * x")),
    _reduction(
        "logsumexp",
        "torch.logsumexp(x, dim=1)",
        f"tl.log({_sum(f'tl.exp(x - {_MAX})')}) + {_MAX}",
        f"tl.log({_sum('x * x')})",
    ),
)


def _layout(
    name: str, torch_expression: str, offset: str, wrong_offset: str, shape: str = "M, N", mask: str = "mask"
) -> Operator:
    right = f"tl.store(out_ptr + {offset}, x, mask={mask})"
    wrong = f"tl.store(out_ptr + {wrong_offset}, x, mask={mask})"
    # The mistake of a layout operator is in its store: it is kept as the wrong line.
    return Operator(
        name, Family.LAYOUT, f"x = {torch_expression}", (), (wrong,), place=Place.TAIL, output_shape=shape, store=right
    )


LAYOUT = (
    _layout("transpose", "x.t().contiguous()", "cols * M + rows", "rows * N + cols", "N, M"),
    _layout("flip_columns", "x.flip(1)", "rows * N + N - 1 - cols", "rows * N + cols"),
    _layout("roll_columns", "torch.roll(x, 1, dims=1)", "rows * N + (cols + 1) % N", "rows * N + (cols + N - 1) % N"),
    _layout(
        "even_columns",
        "x[:, ::2].contiguous()",
        "rows * (N // 2) + cols // 2",
        "rows * N + cols // 2",
        "M, N // 2",
        "mask & (cols % 2 == 0)",
    ),
)


def _matmul(name: str, torch_line: str, weight_offset: str, wrong_offset: str) -> Operator:
    lines = (
        "ks = tl.arange(0, BLOCK_K)",
        "x = tl.zeros((ROWS, BLOCK), dtype=tl.float32)",
        "for k in range(0, K, BLOCK_K):",
        "    a = tl.load(x_ptr + rows * K + k + ks[None, :], mask=(rows < M) & (k + ks[None, :] < K), other=0.0)",
        f"    b = tl.load(weight_ptr + {weight_offset}, mask=(k + ks[:, None] < K) & (cols < N), other=0.0)",
        '    x = tl.dot(a, b, x, input_precision="tf32x3")',
    )
    wrong = tuple(line.replace(weight_offset, wrong_offset) for line in lines)
    return Operator(name, Family.MATMUL, torch_line, lines, wrong, place=Place.HEAD, operand="weight")


MATMUL = (
    _matmul("linear", "x = F.linear(x, self.weight)", "cols * K + k + ks[:, None]", "(k + ks[:, None]) * N + cols"),
    _matmul("matmul", "x = torch.matmul(x, self.weight)", "(k + ks[:, None]) * N + cols", "cols * K + k + ks[:, None]"),
)

ALL = (*ELEMENTWISE, *SCALAR, *BROADCAST, *ROW_STATISTIC, *SOFTMAX, *NORMALISATION, *REDUCTION, *LAYOUT, *MATMUL)
BY_NAME = {operator.name: operator for operator in ALL}
CANONICAL = {
    **{"halve": "double", "third": "double", "decrement": "increment"},
    **{"scale_rows": "multiply_tensor", "shift_rows": "add_tensor"},
}
"""One name for operators that differ in a constant, or in an operand's shape, only: the split treats them as one."""
