"""Element-wise steps of a chain, which the kernel of a product or convolution applies to its tile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.expressions import FORMULA, draw_formula
from tasks.problems.modules.families.elementwise import UNARY, Written, draw_chain
from tasks.problems.modules.renaming import renamed
from tasks.problems.modules.text import Argument, Input

_PARAMETERS = {
    "bias_add": ("+", "a bias addition", ("bias", "bias", "extra_bias")),
    "parameter_subtraction": ("-", "a subtraction of a parameter", ("subtract", "shift")),
    "parameter_scale": ("*", "scaling by a parameter", ("multiplier", "scale")),
}
"""Steps with a parameter for each channel: sign, title, and names of the parameter."""
_SPECIAL = (*_PARAMETERS, "doubling", "residual_add", "clamp", "minimum_with_constant")
_OF_INPUT = {
    "input_addition": ("+", "an addition of a second input"),
    "input_product": ("*", "a product with a second input"),
}
"""Steps with a second input of the same shape: sign, and title."""
OPERATORS = (*_SPECIAL, FORMULA, *_OF_INPUT)
"""Steps that the family of element-wise functions does not have."""
_AS_PARAMETER = 0.3
"""Share of the constants that are a parameter of one element."""
_OF_ALL = 0.12
"""Share of the parameters that have one element."""
_AS_FORMULA = 0.25
"""Share of the functions with a name in whose place a formula stands."""
_TWICE = 0.12
"""Share of the functions with a number that come twice, with two numbers."""
_WITH_INPUT = 0.06
"""Share of the chains with a second input."""
_NOTED = 0.15
"""Share of the chains whose steps have comments."""


@dataclass(frozen=True)
class Step:
    """A step of a chain, in the problem and in the kernel."""

    name: str
    title: str
    forward: tuple[str, ...]
    """Statements on `x` in the problem."""
    kernel: tuple[str, ...]
    """Statements on `x`, a tile, in the kernel."""
    arguments: tuple[Argument, ...] = ()
    init: tuple[str, ...] = ()
    own_init: tuple[str, ...] = ()
    """Statements of ModelNew's constructor."""
    extra: tuple[tuple[str, str], ...] = ()
    """Further arguments of the kernel, and their values in ModelNew."""
    given: Input | None = None
    """A further input of `forward`, which a kernel of its own for the steps can read."""


def with_input(rng: Draw, unseen: frozenset[str], steps: list[Step], shape: str) -> list[Step]:
    """Return the steps, in `_WITH_INPUT` of the cases with one more that takes a second input of this shape."""
    names = rng.unless(list(_OF_INPUT), unseen, str)
    if not names or not rng.chance(_WITH_INPUT):
        return steps
    name, own = rng.choice(names), rng.pick("y", "second", "add_input", "skip")
    sign, title = _OF_INPUT[name]
    load = f"tl.load({own}_ptr + i, mask=mask, other=0.0)"
    place, given = rng.randint(0, len(steps)), Input(own, f"torch.randn({shape})")
    step = Step(
        name, title, (f"x = x {sign} {own}",), (f"x = x {sign} {load}",), extra=((f"{own}_ptr", own),), given=given
    )
    return [*steps[:place], step, *steps[place:]]


def draw_steps(rng: Draw, unseen: frozenset[str], count: int, channel: tuple[str, str, str] | None) -> list[Step]:
    """Return `count` steps.

    `channel`: for a product's or convolution's own tile, the kernel's index of a channel, its bound, and the shape of a
    parameter in the problem; with None a parameter has one element.
    """
    special = [name for name in _SPECIAL if name not in unseen]
    if "doubling" in unseen and "residual_add" in special:  # the last step of a chain has nothing to add but itself
        special.remove("residual_add")
    chosen = rng.choice(special) if count and special and rng.chance(0.45) else None
    plain = count - (chosen is not None)
    steps, noted = list[Step](), rng.chance(_NOTED)
    for written in draw_chain(rng, unseen, plain) if plain else []:
        if FORMULA not in unseen and rng.chance(_AS_FORMULA):
            steps.append(_formula(rng))
        elif written.arguments and rng.chance(_TWICE):
            steps += _twice(rng, written)
        else:
            steps.append(_step(written, f"  # {written.title.capitalize()}" if noted else ""))
    if steps and not steps[0].arguments and rng.chance(0.1):  # as `mish` twice in a row
        steps.insert(1, steps[0])
    if chosen:
        index = rng.randint(0, len(steps))
        steps[index:index] = _special(rng, chosen, channel)
        if chosen == "residual_add" and index < len(steps) - 1:  # the first value is added after the next step
            steps[index], steps[index + 1] = _residual(steps[index + 1], rng)
            del steps[index + 1]
    return steps


def _step(written: Written, note: str = "") -> Step:
    return Step(
        written.name,
        written.title,
        (f"x = {written.form}{note}",),
        (f"x = {written.kernel}",),
        written.arguments,
        written.init,
        written.own_init,
        tuple((argument.name, f"self.{argument.name}") for argument in written.arguments),
    )


def _formula(rng: Draw) -> Step:
    formula = draw_formula(rng)
    return Step(FORMULA, rng.pick("a formula", "a custom activation"), formula.torch, formula.triton)


def _twice(rng: Draw, written: Written) -> list[Step]:
    """Return the function twice, each with a number of its own, whose names end in `1` and `2`."""
    (argument,), mark = written.arguments, rng.pick("", "_")
    values = next(unary.values for unary in UNARY if unary.name == written.name)
    return [_with_argument(_step(written), f"{argument.name}{mark}{end}", rng.choice(values)) for end in (1, 2)]


def _with_argument(step: Step, name: str, value: str) -> Step:
    """Return the step with another name of its argument, which its attribute has, too, and another value."""
    (argument,) = step.arguments

    def named(text: str) -> str:
        return renamed(text, {argument.name: name})

    return Step(
        step.name,
        step.title,
        tuple(map(named, step.forward)),
        tuple(map(named, step.kernel)),
        (replace(argument, name=name, value=value),),
        tuple(map(named, step.init)),
        tuple(map(named, step.own_init)),
        tuple((named(passed), named(given)) for passed, given in step.extra),
    )


def _special(rng: Draw, name: str, channel: tuple[str, str, str] | None) -> list[Step]:
    if name == "clamp":
        return [_clamp(rng)]
    if name == "minimum_with_constant":
        return [_minimum(rng)]
    if name in ("doubling", "residual_add"):
        return [Step("doubling", "addition of itself", ("x = x + x",), ("x = x + x",))]
    sign, title, names = _PARAMETERS[name]
    own = rng.choice(names)
    shape, load = "(1,)", f"tl.load({own}_ptr)"
    if channel and not rng.chance(_OF_ALL):
        index, bound, shape = channel
        load = f"tl.load({own}_ptr + {index}, mask={index} < {bound}, other=0.0)"
    argument = Argument(f"{own}_shape", shape, "tuple", "Shape of the parameter.")
    init = (f"self.{own} = nn.Parameter(torch.randn({own}_shape))",)
    return [
        Step(
            name,
            title,
            (f"x = x {sign} self.{own}",),
            (f"x = x {sign} {load}",),
            (argument,),
            init,
            init,
            ((f"{own}_ptr", f"self.{own}"),),
        )
    ]


def _clamp(rng: Draw) -> Step:
    low, high = rng.pick(("-1.0", "1.0"), ("0.0", "1.0"), ("-0.5", "0.5"), ("-2.0", "2.0"), ("-10.0", "10.0"))
    if rng.chance(0.4):
        form = rng.pick(f"torch.clamp(x, {low}, {high})", f"torch.clamp(x, min={low}, max={high})")
        return Step("clamp", "clamping", (f"x = {form}",), (f"x = tl.minimum(tl.maximum(x, {low}), {high})",))
    first, second = rng.pick(("clamp_min", "clamp_max"), ("hardtanh_min", "hardtanh_max"), ("min_value", "max_value"))
    forms = (f"torch.clamp(x, self.{first}, self.{second})", f"torch.clamp(x, min=self.{first}, max=self.{second})")
    own = (f"self.{first} = {first}", f"self.{second} = {second}")
    init = own
    if rng.chance(0.3):
        forms, init = ("self.hardtanh(x)",), (f"self.hardtanh = nn.Hardtanh(min_val={first}, max_val={second})",)
    return Step(
        "clamp",
        "clamping",
        (f"x = {rng.choice(forms)}",),
        (f"x = tl.minimum(tl.maximum(x, {first}), {second})",),
        (Argument(first, low, "float", "Lower bound."), Argument(second, high, "float", "Upper bound.")),
        init,
        own,
        ((first, f"self.{first}"), (second, f"self.{second}")),
    )


def _minimum(rng: Draw) -> Step:
    """Return the minimum with a constant, a number or a parameter of one element."""
    argument = Argument("constant", rng.pick("0.5", "1.0", "2.0"), "float", "Upper bound.")
    is_parameter = rng.chance(_AS_PARAMETER)
    value, pointer = "constant", ""
    if is_parameter:
        value, pointer = f"nn.Parameter(torch.tensor({rng.pick('constant', '[constant]')}))", "_ptr"
    form = "torch.min(x, self.constant)"
    if not is_parameter:
        form = rng.pick("torch.min(x, torch.tensor(self.constant))", "torch.clamp(x, max=self.constant)")
    kernel = f"x = tl.minimum(x, {'tl.load(constant_ptr)' if is_parameter else 'constant'})"
    own = (f"self.constant = {value}",)
    return Step(
        "minimum_with_constant",
        "a minimum with a constant",
        (f"x = {form}",),
        (kernel,),
        (argument,),
        own,
        own,
        ((f"constant{pointer}", "self.constant"),),
    )


def _residual(step: Step, rng: Draw) -> tuple[Step, Step]:
    """Return the step with the value before it added to its result; twice, as a place to fill."""
    kept = rng.pick("original_x = x", "original_x = x.clone().detach()", "residual = x")
    name = kept.split(" ")[0]
    joined = Step(
        f"{step.name}+residual_add",
        f"{step.title}, a residual addition",
        (kept, *step.forward, f"x = x + {name}"),
        ("r = x", *step.kernel, "x = x + r"),
        step.arguments,
        step.init,
        step.own_init,
        step.extra,
    )
    return joined, joined


def parts(steps: Sequence[Step]) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Return the kernel's further arguments, its statements, and the values that `forward` passes."""
    extra = tuple(name for step in steps for name, _ in step.extra)
    return (
        extra,
        tuple(line for step in steps for line in step.kernel),
        [value for step in steps for _, value in step.extra],
    )
