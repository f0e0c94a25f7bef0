"""Activations and other functions of one tensor's elements, one or a chain of two or three.

plain: one kernel, a block of elements a program. slow (as an earlier kernel): a kernel for each function of a chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import SEPARATOR, Family, ModulePair
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text


@dataclass(frozen=True)
class Unary:
    """A function of `x`. `{p}` in an expression stands for its parameter."""

    name: str
    forms: tuple[str, ...]
    """Ways to write it in PyTorch."""
    kernel: str
    """The same in Triton."""
    parameter: str = ""
    values: tuple[str, ...] = ()
    """Values of the parameter."""
    layer: str = ""
    """The layer of torch.nn that computes it."""
    grows: bool = False
    """Its results are too large for a chain."""
    default: str = ""
    """Value of the parameter where the layer, or the function of torch.nn.functional, is given none."""

    @property
    def title(self) -> str:
        """The name as a sentence has it."""
        return self.name.replace("_", " ")


_TANH = "2.0 * tl.sigmoid(2.0 * {}) - 1.0"
_SOFTPLUS = "tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x)))"
_GELU_TANH = "0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3))))"
_SELU = "1.0507009873554805 * tl.where(x > 0.0, x, 1.6732632423543772 * (tl.exp(x) - 1.0))"
UNARY = (
    Unary("relu", ("torch.relu(x)", "F.relu(x)", "x.clamp(min=0)"), "tl.maximum(x, 0.0)", layer="nn.ReLU()"),
    Unary("sigmoid", ("torch.sigmoid(x)", "1 / (1 + torch.exp(-x))"), "tl.sigmoid(x)", layer="nn.Sigmoid()"),
    Unary("tanh", ("torch.tanh(x)", "x.tanh()"), _TANH.format("x"), layer="nn.Tanh()"),
    Unary(
        "silu", ("F.silu(x)", "x * torch.sigmoid(x)", "torch.sigmoid(x) * x"), "x * tl.sigmoid(x)", layer="nn.SiLU()"
    ),
    Unary(
        "gelu",
        ("F.gelu(x)", "torch.nn.functional.gelu(x)"),
        "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
        layer="nn.GELU()",
    ),
    Unary(
        "gelu_tanh",
        (_GELU_TANH, 'F.gelu(x, approximate="tanh")'),
        "x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
    ),
    Unary("quick_gelu", ("x * torch.sigmoid(1.702 * x)",), "x * tl.sigmoid(1.702 * x)"),
    Unary("softplus", ("F.softplus(x)", "torch.nn.functional.softplus(x)"), _SOFTPLUS, layer="nn.Softplus()"),
    Unary("softsign", ("F.softsign(x)", "x / (1 + torch.abs(x))"), "x / (1.0 + tl.abs(x))", layer="nn.Softsign()"),
    Unary(
        "hardsigmoid",
        ("F.hardsigmoid(x)",),
        "tl.minimum(tl.maximum(x / 6.0 + 0.5, 0.0), 1.0)",
        layer="nn.Hardsigmoid()",
    ),
    Unary(
        "hardswish",
        ("F.hardswish(x)", "x * F.relu6(x + 3) / 6", "x * torch.clamp((x + 3) / 6, 0, 1)"),
        "x * tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0",
        layer="nn.Hardswish()",
    ),
    Unary("relu6", ("F.relu6(x)", "torch.clamp(x, 0, 6)"), "tl.minimum(tl.maximum(x, 0.0), 6.0)", layer="nn.ReLU6()"),
    Unary(
        "mish",
        ("F.mish(x)", "x * torch.tanh(F.softplus(x))"),
        f"x * ({_TANH.format(_SOFTPLUS)})",
        layer="nn.Mish()",
    ),
    Unary("selu", ("torch.selu(x)", "F.selu(x)"), _SELU, layer="nn.SELU()"),
    Unary(
        "logsigmoid",
        ("F.logsigmoid(x)",),
        "tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))",
        layer="nn.LogSigmoid()",
    ),
    Unary(
        "tanhshrink",
        ("x - torch.tanh(x)", "F.tanhshrink(x)"),
        f"x - ({_TANH.format('x')})",
        layer="nn.Tanhshrink()",
    ),
    Unary("abs", ("torch.abs(x)", "x.abs()"), "tl.abs(x)"),
    Unary("square", ("x ** 2", "torch.square(x)", "x * x", "torch.pow(x, 2)"), "x * x", grows=True),
    Unary("cube", ("x ** 3", "torch.pow(x, 3)", "x * x * x"), "x * x * x", grows=True),
    Unary("exp", ("torch.exp(x)", "x.exp()"), "tl.exp(x)", grows=True),
    Unary("sin", ("torch.sin(x)", "x.sin()"), "tl.sin(x)"),
    Unary("cos", ("torch.cos(x)", "x.cos()"), "tl.cos(x)"),
    Unary("sqrt", ("torch.sqrt(torch.abs(x) + 1e-3)",), "tl.sqrt(tl.abs(x) + 1e-3)"),
    Unary("rsqrt", ("torch.rsqrt(x * x + 0.1)",), "tl.rsqrt(x * x + 0.1)"),
    Unary("log1p", ("torch.log1p(torch.abs(x))", "torch.log(1 + torch.abs(x))"), "tl.log(1.0 + tl.abs(x))"),
    Unary("negation", ("-x", "torch.neg(x)"), "-x"),
    Unary("reciprocal", ("1.0 / (2.0 + torch.abs(x))",), "1.0 / (2.0 + tl.abs(x))"),
    Unary(
        "leaky_relu",
        ("F.leaky_relu(x, {p})", "F.leaky_relu(x, negative_slope={p})", "torch.where(x > 0, x, {p} * x)"),
        "tl.where(x > 0.0, x, {p} * x)",
        "negative_slope",
        ("0.01", "0.02", "0.1", "0.2"),
        "nn.LeakyReLU({p})",
        default="0.01",
    ),
    Unary(
        "elu",
        ("F.elu(x, alpha={p})", "F.elu(x, {p})", "torch.where(x > 0, x, {p} * (torch.exp(x) - 1))"),
        "tl.where(x > 0.0, x, {p} * (tl.exp(x) - 1.0))",
        "alpha",
        ("0.5", "1.0", "1.5"),
        "nn.ELU(alpha={p})",
        default="1.0",
    ),
    Unary(
        "celu",
        ("F.celu(x, alpha={p})",),
        "tl.where(x > 0.0, x, {p} * (tl.exp(x / {p}) - 1.0))",
        "alpha",
        ("0.5", "1.0", "2.0"),
        "nn.CELU(alpha={p})",
        default="1.0",
    ),
    Unary(
        "threshold",
        ("torch.where(x > {p}, x, torch.zeros_like(x))", "F.threshold(x, {p}, 0.0)"),
        "tl.where(x > {p}, x, 0.0)",
        "threshold",
        ("0.1", "0.5", "1.0"),
    ),
    Unary(
        "hardtanh",
        ("torch.clamp(x, -{p}, {p})", "F.hardtanh(x, min_val=-{p}, max_val={p})", "x.clamp(min=-{p}, max={p})"),
        "tl.minimum(tl.maximum(x, -{p}), {p})",
        "bound",
        ("0.5", "1.0", "2.0"),
    ),
    Unary(
        "hardshrink",
        ("F.hardshrink(x, {p})",),
        "tl.where(tl.abs(x) > {p}, x, 0.0)",
        "lambd",
        ("0.25", "0.5"),
        "nn.Hardshrink({p})",
        default="0.5",
    ),
    Unary(
        "softshrink",
        ("F.softshrink(x, {p})",),
        "tl.where(x > {p}, x - {p}, tl.where(x < -{p}, x + {p}, 0.0))",
        "lambd",
        ("0.25", "0.5"),
        "nn.Softshrink({p})",
        default="0.5",
    ),
    Unary("scale", ("x * {p}", "{p} * x"), "x * {p}", "scaling_factor", ("0.5", "2.0", "3.0")),
    Unary("shift", ("x + {p}",), "x + {p}", "offset", ("0.5", "1.0", "0.1")),
    Unary("subtraction", ("x - {p}",), "x - {p}", "subtract_value", ("0.5", "1.5", "2.0")),
    Unary("division", ("x / {p}",), "x / {p}", "divisor", ("2.0", "3.0", "10.0")),
    Unary(
        "clamp_min",
        ("torch.clamp(x, min={p})", "x.clamp(min={p})"),
        "tl.maximum(x, {p})",
        "min_value",
        ("0.0", "-0.5", "0.25"),
    ),
    Unary(
        "clamp_max",
        ("torch.clamp(x, max={p})", "x.clamp(max={p})"),
        "tl.minimum(x, {p})",
        "max_value",
        ("0.0", "0.5", "1.0"),
    ),
    Unary("swish", ("x * torch.sigmoid({p} * x)",), "x * tl.sigmoid({p} * x)", "beta", ("0.5", "1.5", "2.0")),
)


@dataclass(frozen=True)
class Written:
    """A function as a problem has it: with its form, its parameter's place, and its constructor's parts."""

    name: str
    title: str
    form: str
    kernel: str
    arguments: tuple[Argument, ...] = ()
    init: tuple[str, ...] = ()
    own_init: tuple[str, ...] = ()
    """Statements of ModelNew's constructor."""


def write_unary(rng: Draw, unary: Unary, attribute: str = "act") -> Written:
    """Return the function in one of its forms; its parameter is an argument of the constructor, or a number."""
    made = unary.layer and rng.chance(0.4)
    if not unary.parameter:
        form = f"self.{attribute}(x)" if made else rng.choice(unary.forms)
        init = (f"self.{attribute} = {unary.layer}",) if made else ()
        return Written(unary.name, unary.title, form, unary.kernel, init=init)
    if unary.default and rng.chance(0.25):
        layer = unary.layer.split("(")[0] + "()"
        form, init = f"self.{attribute}(x)", (f"self.{attribute} = {layer}",)
        if not made:
            form, init = f"F.{unary.name}(x)", ()
        return Written(unary.name, unary.title, form, unary.kernel.format(p=unary.default), init=init)
    value = rng.choice(unary.values)
    if rng.chance(0.35):
        return Written(unary.name, unary.title, rng.choice(unary.forms).format(p=value), unary.kernel.format(p=value))
    name = unary.parameter
    own = (f"self.{name} = {name}",)
    form = f"self.{attribute}(x)" if made else rng.choice(unary.forms).format(p=f"self.{name}")
    init = (f"self.{attribute} = {unary.layer.format(p=name)}",) if made else own
    meaning = f"The parameter of {unary.title}."
    argument = Argument(name, value, "float", meaning)
    return Written(unary.name, unary.title, form, unary.kernel.format(p=name), (argument,), init, own)


def draw_chain(rng: Draw, unseen: frozenset[str], count: int) -> list[Written]:
    """Return up to `count` functions in their order, no two of which share a parameter's name."""
    known = [unary for unary in UNARY if unary.name not in unseen and not (count > 1 and unary.grows)]
    chosen: list[Unary] = []
    for unary in rng.sample(known, min(count, len(known))):
        if not unary.parameter or unary.parameter not in {other.parameter for other in chosen}:
            chosen.append(unary)
    if not chosen:  # only those that grow are left
        return draw_chain(rng, unseen, 1)
    single = rng.pick("act", "activation")
    names = [single] if len(chosen) == 1 else [f"act{index}" for index in range(len(chosen))]
    return [write_unary(rng, unary, name) for unary, name in zip(chosen, names, strict=True)]


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one to three functions."""
    chain = draw_chain(rng, unseen, rng.pick(1, 1, 1, 2, 3))
    shape = rng.shape()
    forms = [written.form for written in chain]
    module = Module(
        title=" followed by ".join(written.title for written in chain)
        if len(chain) > 1
        else _named(rng, chain[0].title),
        inputs=(Input("x", shape.made()),),
        forward=(f"return {forms[0]}",) if len(forms) == 1 else (*(f"x = {form}" for form in forms), "return x"),
        arguments=tuple(argument for written in chain for argument in written.arguments),
        init=tuple(line for written in chain for line in written.init),
        constants=shape.constants,
    )
    block = rng.pick(1024, 1024, 2048)
    unfused = _unfused(module, chain, block)
    slow = len(chain) > 1 and rng.chance(0.3)
    return ModulePair(
        family=FAMILY.name,
        operator=SEPARATOR.join(written.name for written in chain),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=_fused(module, chain, block),
        style="plain",
        earlier_source=unfused if slow else None,
        slower=(unfused,) if len(chain) > 1 else (),
    )


def _named(rng: Draw, title: str) -> str:
    """Return one function as docstrings call it: `sigmoid`, `a Sigmoid activation`, `SIGMOID activation`."""
    name = rng.pick(title, title.capitalize(), title.upper())
    return rng.pick(title, title, f"a {name} activation", f"{name} activation")


def _kernel(name: str, steps: list[Written]) -> str:
    parameters = "".join(f", {argument.name}" for step in steps for argument in step.arguments)
    return kernel_of_elements(name, [f"x = {step.kernel}" for step in steps], parameters)


def kernel_of_elements(name: str, statements: Sequence[str], parameters: str = "") -> str:
    """Return the kernel of statements on `x`, a block of elements; `parameters` begin with a comma."""
    body = "".join(f"    {statement}\n" for statement in statements)
    return (
        f"def {name}(x_ptr, out_ptr, n{parameters}, BLOCK: tl.constexpr):\n"
        "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = offsets < n\n"
        "    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)\n"
        f"{body}    tl.store(out_ptr + offsets, x, mask=mask)"
    )


def _launch(name: str, source: str, steps: list[Written], block: int) -> str:
    passed = "".join(f", self.{argument.name}" for step in steps for argument in step.arguments)
    return f"{name}[(triton.cdiv(n, {block}),)]({source}, out, n{passed}, BLOCK={block})"


def _own_init(chain: list[Written]) -> list[str]:
    return [line for written in chain for line in written.own_init]


def _fused(module: Module, chain: list[Written], block: int) -> str:
    name = f"{chain[0].name}_kernel" if len(chain) == 1 else "fused_kernel"
    host = ["x = x.contiguous()", "out = torch.empty_like(x)", "n = x.numel()"]
    host += [_launch(name, "x", chain, block), "return out"]
    return kernel_text([_kernel(name, chain)], module, host, _own_init(chain))


def _unfused(module: Module, chain: list[Written], block: int) -> str:
    host = ["x = x.contiguous()", "out = torch.empty_like(x)", "n = x.numel()"]
    host += [_launch(f"{step.name}_kernel", "out" if index else "x", [step], block) for index, step in enumerate(chain)]
    kernels = [_kernel(f"{step.name}_kernel", [step]) for step in chain]
    return kernel_text(kernels, module, [*host, "return out"], _own_init(chain))


FAMILY = Family("elementwise", tuple(unary.name for unary in UNARY), draw)
