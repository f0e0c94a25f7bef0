"""Operations on two tensors of one shape, on a tensor and a number, and on a tensor and a smaller one (broadcasts).

Perhaps an activation follows.
"""

from dataclasses import dataclass

from tasks.problems.modules.draw import Draw, Shape
from tasks.problems.modules.families.elementwise import UNARY, Written, write_unary
from tasks.problems.modules.pair import SEPARATOR, Family, ModulePair
from tasks.problems.modules.slow_forms import with_step_apart
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text


@dataclass(frozen=True)
class Binary:
    """A function of `a` and `b`."""

    name: str
    title: str
    forms: tuple[str, ...]
    """In PyTorch; `{a}` and `{b}` stand for the operands."""
    kernel: str
    simple: bool = False
    """Good for a number or a smaller tensor as `b`."""


BINARY = (
    Binary("addition", "addition", ("{a} + {b}", "torch.add({a}, {b})"), "a + b", True),
    Binary("difference", "subtraction", ("{a} - {b}", "torch.sub({a}, {b})"), "a - b", True),
    Binary("product", "multiplication", ("{a} * {b}", "torch.mul({a}, {b})"), "a * b", True),
    Binary("maximum", "maximum", ("torch.maximum({a}, {b})",), "tl.maximum(a, b)"),
    Binary("minimum", "minimum", ("torch.minimum({a}, {b})",), "tl.minimum(a, b)"),
    Binary("squared_difference", "squared difference", ("({a} - {b}) ** 2",), "(a - b) * (a - b)"),
    Binary("absolute_difference", "absolute difference", ("torch.abs({a} - {b})",), "tl.abs(a - b)"),
    Binary("gating", "gating", ("{a} * torch.sigmoid({b})", "torch.sigmoid({b}) * {a}"), "a * tl.sigmoid(b)"),
    Binary("swiglu", "SwiGLU gating", ("F.silu({a}) * {b}",), "a * tl.sigmoid(a) * b"),
    Binary("average", "average", ("({a} + {b}) / 2", "0.5 * ({a} + {b})"), "(a + b) * 0.5"),
    Binary("where", "selection by sign", ("torch.where({a} > 0, {a}, {b})",), "tl.where(a > 0.0, a, b)"),
    Binary("guarded_ratio", "ratio", ("{a} / ({b} ** 2 + 1.0)",), "a / (b * b + 1.0)"),
)
_ACTIVATIONS = tuple(unary for unary in UNARY if not unary.parameter and not unary.grows)


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one of the three kinds."""
    known = rng.unless(BINARY, unseen, lambda item: item.name)
    simple = [binary for binary in known if binary.simple]
    kind = rng.pick(_same, _same, _number, _broadcast, _broadcast) if simple else _same
    operator = rng.choice(known if kind is _same else simple)
    activations = rng.unless(_ACTIVATIONS, unseen, lambda item: item.name)
    after = write_unary(rng, rng.choice(activations)) if activations and rng.chance(0.35) else None
    return kind(rng, operator, after)


def _pair(rng: Draw, binary: Binary, after: Written | None, module: Module, kernel: str) -> ModulePair:
    names = [binary.name] + ([after.name] if after else [])
    return ModulePair(
        family=FAMILY.name,
        operator=SEPARATOR.join(names),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel,
        style="fast",
        slower=(with_step_apart(kernel, after.name, after.kernel),) if after else (),
    )


def _forward(form: str, after: Written | None) -> tuple[str, ...]:
    return (f"return {form}",) if after is None else (f"x = {form}", f"return {after.form}")


def _result(binary: Binary, after: Written | None) -> str:
    text = f"    x = {binary.kernel}\n"
    return text + (f"    x = {after.kernel}\n" if after else "") + "    tl.store(out_ptr + offsets, x, mask=mask)"


def _title(text: str, after: Written | None) -> str:
    return text if after is None else f"{text} followed by {after.title}"


_OFFSETS = "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    mask = offsets < n\n"


def _same(rng: Draw, binary: Binary, after: Written | None) -> ModulePair:
    shape = rng.shape()
    a, b = rng.pick(("a", "b"), ("A", "B"), ("x", "y"), ("input", "other"))
    module = Module(
        title=_title(f"an element-wise {binary.title} of two tensors", after),
        inputs=(Input(a, shape.made()), Input(b, shape.made())),
        forward=_forward(rng.choice(binary.forms).format(a=a, b=b), after),
        init=after.init if after else (),
        constants=shape.constants,
    )
    kernel = (
        f"def binary_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):\n{_OFFSETS}"
        "    a = tl.load(a_ptr + offsets, mask=mask, other=0.0)\n"
        "    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)\n" + _result(binary, after)
    )
    host = [f"{a}, {b} = {a}.contiguous(), {b}.contiguous()", f"out = torch.empty_like({a})", "n = out.numel()"]
    host += [f"binary_kernel[(triton.cdiv(n, 1024),)]({a}, {b}, out, n, BLOCK=1024)", "return out"]
    return _pair(rng, binary, after, module, kernel_text([kernel], module, host, ()))


def _number(rng: Draw, binary: Binary, after: Written | None) -> ModulePair:
    shape = rng.shape()
    a, b = rng.pick("A", "x", "matrix"), rng.pick("s", "scalar", "value")
    form = rng.choice(binary.forms[:1]).format(a=a, b=b)
    module = Module(
        title=_title(f"a {binary.title} of a tensor and a scalar", after),
        inputs=(Input(a, shape.made()), Input(b, rng.pick("3.14", "0.5", "2.0"), "float", "Scalar value.")),
        forward=_forward(form, after),
        init=after.init if after else (),
        constants=shape.constants,
    )
    kernel = (
        f"def scalar_kernel(a_ptr, out_ptr, b, n, BLOCK: tl.constexpr):\n{_OFFSETS}"
        "    a = tl.load(a_ptr + offsets, mask=mask, other=0.0)\n" + _result(binary, after)
    )
    host = [f"{a} = {a}.contiguous()", f"out = torch.empty_like({a})", "n = out.numel()"]
    host += [f"scalar_kernel[(triton.cdiv(n, 1024),)]({a}, out, {b}, n, BLOCK=1024)", "return out"]
    return _pair(rng, binary, after, module, kernel_text([kernel], module, host, ()))


def _broadcast(rng: Draw, binary: Binary, after: Written | None) -> ModulePair:
    """Return x with a vector along its last dimension, a column, or one value a channel; an input or a parameter."""
    place = rng.pick("last", "channel", "row")
    shape = rng.shape(2 if place != "channel" else rng.pick(3, 4, 5))
    name, sizes, index = _smaller(place, shape)
    own = rng.chance(0.5)
    b = "self.bias" if own else rng.pick("b", "bias", "y")
    argument = Argument("bias_shape", f"({', '.join(sizes)},)", "tuple", "Shape of the parameter.")
    module = Module(
        title=_title(f"a broadcast {binary.title} {name}", after),
        inputs=(Input("x", shape.made()),)
        if own
        else (Input("x", shape.made()), Input(b, f"torch.randn({', '.join(sizes)})")),
        forward=_forward(rng.choice(binary.forms).format(a="x", b=b), after),
        arguments=(argument,) if own else (),
        init=(*(("self.bias = nn.Parameter(torch.randn(bias_shape))",) if own else ()), *(after.init if after else ())),
        constants=shape.constants,
    )
    extra = {"last": "C", "row": "C", "channel": "C, inner"}[place]
    kernel = (
        f"def broadcast_kernel(x_ptr, b_ptr, out_ptr, n, {extra}, BLOCK: tl.constexpr):\n{_OFFSETS}"
        "    a = tl.load(x_ptr + offsets, mask=mask, other=0.0)\n"
        f"    b = tl.load(b_ptr + {index}, mask=mask, other=0.0)\n" + _result(binary, after)
    )
    host = ["x = x.contiguous()", "out = torch.empty_like(x)"]
    host += ["n, C = x.numel(), x.shape[1]", *(["inner = n // (x.shape[0] * C)"] if place == "channel" else [])]
    host += [f"broadcast_kernel[(triton.cdiv(n, 1024),)](x, {b}, out, n, {extra}, BLOCK=1024)", "return out"]
    init = module.init[:1] if own else ()
    return _pair(rng, binary, after, module, kernel_text([kernel], module, host, init))


def _smaller(place: str, shape: Shape) -> tuple[str, list[str], str]:
    """Return where the smaller tensor applies, its sizes, and the index into it."""
    if place == "last":
        return "with a vector over the last dimension", [shape.names[1]], "offsets % C"
    if place == "row":
        return "with a column vector", [shape.names[0], "1"], "offsets // C"
    ones = ["1"] * (shape.rank - 2)
    return "with one value per channel", [shape.names[1], *ones], "offsets // inner % C"


_NAMES = tuple(binary.name for binary in BINARY)
FAMILY = Family("binary", _NAMES + tuple(unary.name for unary in _ACTIVATIONS), draw, needed=_NAMES)
