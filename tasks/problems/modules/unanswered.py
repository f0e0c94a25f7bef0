"""Draws problems that no family has a kernel for: other functions, and chains of them.

RL needs no kernel: the reward says which of the policy's are right. So these problems are wider than the pairs. Nothing
in them jumps, as rounding does: a right kernel stays within the tolerance.
"""

from collections.abc import Iterator

from kernels_eval import Problem
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import long_chains
from tasks.problems.modules.families.chain_bases import WEIGHTS, draw_base
from tasks.problems.modules.families.chain_steps import Step
from tasks.problems.modules.families.chain_texts import module_of
from tasks.problems.modules.renaming import drawn_names, renamed
from tasks.problems.modules.text import Argument, Input, Module, problem_text
from tasks.problems.modules.tiles import draw_dimension, written_dim

FUNCTIONS = {
    "a hyperbolic sine": "torch.sinh(x * {p})",
    "a hyperbolic cosine": "torch.cosh(x * {p})",
    "a power of two": "torch.exp2(x)",
    "an exponential less one": "torch.expm1(x * {p})",
    "a logarithm to base 2": "torch.log2(torch.abs(x) + {p})",
    "a logarithm to base 10": "torch.log10(x * x + {p})",
    "an error function": "torch.erf(x)",
    "a complementary error function": "torch.erfc(x)",
    "a signed square root": "torch.sign(x) * torch.sqrt(torch.abs(x))",
    "a squared relu": "torch.relu(x) ** 2",
    "a star relu": "{p} * torch.relu(x) ** 2 - 0.4472",
    "a cubic polynomial": "x * x * x - {p} * x",
    "a bell curve": "torch.exp(-x * x)",
    "a damped sine": "torch.sin(x) / (1 + x * x)",
    "a sum of waves": "torch.sin(x) + torch.cos({p} * x)",
    "a tilted softplus": "F.softplus(x) - {p} * x",
    "a shifted softplus": "F.softplus(x) - 0.6931471805599453",
    "a gated tanh": "torch.sigmoid(x) * torch.tanh(x)",
    "a bent identity": "(torch.sqrt(x * x + 1) - 1) / 2 + x",
    "a Cauchy curve": "1 / (1 + (x / {p}) ** 2)",
    "a log-cosh": "x + F.softplus(-2 * x) - 0.6931471805599453",
    "an interpolation with the square": "torch.lerp(x, x * x, {p})",
    "a maximum with its own multiple": "torch.maximum(x, -{p} * x)",
    "a square above zero": "torch.where(x > 0, x * x, {p} * x)",
    "an inverse square root unit": "x / torch.sqrt(1 + {p} * x * x)",
    "an inverse square root linear unit": "torch.where(x < 0, x / torch.sqrt(1 + x * x), x)",
    "a power of 1.5": "torch.pow(torch.abs(x), 1.5)",
    "a reciprocal hyperbolic cosine": "1 / torch.cosh(x)",
    "a rational function": "(x + 1) / (x * x + {p})",
    "a squareplus": "(x + torch.sqrt(x * x + 4)) / 2",
    "two hyperbolic tangents": "torch.tanh(torch.tanh(x))",
    "a phish": "x * torch.tanh(F.gelu(x))",
    "a serf": "x * torch.erf(F.softplus(x))",
    "a logish": "x * torch.log(1 + torch.sigmoid(x))",
    "a smish": "x * torch.tanh(torch.log(1 + torch.sigmoid(x)))",
}
"""Functions of `x` by their words; `{p}` stands for a number between 0 and 2."""
_GROWS = frozenset({"a hyperbolic sine", "a hyperbolic cosine", "a power of two", "an exponential less one"})
"""Functions whose results are too large after the sums of a long chain."""
OF_TWO = {
    "a hypotenuse": "torch.hypot(x, y)",
    "a sum of logarithms": "torch.logaddexp(x, y)",
    "a sigmoid gate": "x * torch.sigmoid(y)",
    "a gelu gate": "F.gelu(x) * y",
    "an interpolation": "torch.lerp(x, y, {p})",
    "a distance": "torch.maximum(x, y) - torch.minimum(x, y)",
    "a relative difference": "(x - y) / (torch.abs(x) + torch.abs(y) + 1.0)",
    "an added product": "torch.addcmul(x, y, y, value={p})",
    "an added quotient": "torch.addcdiv(x, y, 1 + x * x, value={p})",
    "a product with a bell curve": "x * torch.exp(-y * y)",
    "a root of squares": "torch.sqrt(x * x + y * y + {p})",
    "a rotation": "x * torch.cos(y) - y * torch.sin(x)",
}
"""Functions of `x` and `y`."""
REDUCTIONS = {
    "a sum of squares": "torch.sum(x * x, dim={d}{k})",
    "a mean of magnitudes": "torch.mean(torch.abs(x), dim={d}{k})",
    "a norm of order 3": "torch.norm(x, p=3, dim={d}{k})",
    "a scaled log-sum-exp": "torch.logsumexp(x * {p}, dim={d}{k})",
    "a sum of what is positive": "torch.sum(torch.relu(x), dim={d}{k})",
    "a mean of exponentials": "torch.mean(torch.exp(x), dim={d}{k})",
    "a root mean square": "torch.sqrt(torch.mean(x * x, dim={d}{k}))",
    "a largest magnitude": "torch.amax(torch.abs(x), dim={d}{k})",
    "a product of mean and maximum": "torch.mean(x, dim={d}{k}) * torch.amax(x, dim={d}{k})",
    "a mean weighted by a softmax": "torch.sum(x * torch.softmax(x, dim={d}), dim={d}{k})",
    "a geometric mean of magnitudes": "torch.exp(torch.mean(torch.log(torch.abs(x) + 0.1), dim={d}{k}))",
}
"""Reductions over the dimension `{d}`; `{k}` stands for `, keepdim=True` or nothing."""
ALONG = {
    "a softmax with a temperature": "torch.softmax(x / (0.5 + {p}), dim={d})",
    "a product with a softmax": "x * torch.softmax(x, dim={d})",
    "a division by the sum of exponentials": "x / torch.sum(torch.exp(x), dim={d}, keepdim=True)",
    "what is above the mean": "torch.relu(x - x.mean(dim={d}, keepdim=True))",
    "a division by the norm and one": "x * torch.rsqrt(1 + torch.sum(x * x, dim={d}, keepdim=True))",
    "a cumulative sum of what is positive": "torch.cumsum(torch.relu(x), dim={d})",
    "a distance from the maximum": "torch.tanh(torch.amax(x, dim={d}, keepdim=True) - x)",
    "shares of sigmoids": "torch.sigmoid(x) / torch.sum(torch.sigmoid(x), dim={d}, keepdim=True)",
}
"""Functions along the dimension `{d}` that leave the shape."""
_KINDS = (("functions", 2), ("two", 1), ("along", 3), ("layer", 2), ("chain", 6))
"""Kinds of problems, and how often each is drawn."""


def stream_unanswered(seed: int, unseen: frozenset[str]) -> Iterator[Problem]:
    """Yield problems without end, with distinct digests; ids are `open-00000` and so on."""
    rng, seen = Draw(f"unanswered-{seed}"), set[str]()
    while True:
        module, level = _draw(rng, unseen)
        source = problem_text(rng, module)
        source = renamed(source, drawn_names(rng, source, [source]))
        problem = Problem(
            problem_id=f"open-{len(seen):05d}", source=source, level=level, family="open", name=module.title
        )
        if problem.digest not in seen:
            seen.add(problem.digest)
            yield problem


def _draw(rng: Draw, unseen: frozenset[str]) -> tuple[Module, int]:
    """Return a problem's module, and its level."""
    kind = rng.choices([name for name, _ in _KINDS], [weight for _, weight in _KINDS])[0]
    if kind == "layer" and not set(WEIGHTS) <= unseen:
        return _after_layer(rng, unseen), 2
    if kind == "chain" and long_chains.can_draw(unseen):
        return _in_chain(rng, unseen), 2
    steps, inputs, constants = _along(rng) if kind == "along" else _of_elements(rng, is_of_two=kind == "two")
    init = tuple(line for step in steps for line in step.init)
    arguments = tuple(argument for step in steps for argument in step.arguments)
    lines = (*(line for step in steps for line in step.forward), "return x")
    title = " followed by ".join(step.title for step in steps)
    return Module(title, inputs, lines, arguments, init, constants), 1 if len(steps) == 1 else 2


def _add(rng: Draw, steps: list[Step], title: str, form: str, **places: str) -> None:
    """Add a function; its number is an argument of the constructor, or written out."""
    value = rng.pick("0.25", "0.5", "0.75", "1.5", "2.0")
    arguments: tuple[Argument, ...] = ()
    if "{p}" in form and rng.chance(0.5):
        name = f"value{sum(len(step.arguments) for step in steps) + 1}"
        arguments = (Argument(name, value, "float", f"The number of {title}."),)
        value = f"self.{name}"
    init = tuple(f"self.{argument.name} = {argument.name}" for argument in arguments)
    steps.append(Step("", title, (f"x = {form.format(p=value, **places)}",), (), arguments, init))


def _functions(rng: Draw, steps: list[Step], count: int, without: frozenset[str] = frozenset()) -> None:
    for title, form in rng.sample([item for item in FUNCTIONS.items() if item[0] not in without], count):
        _add(rng, steps, title, form)


_Parts = tuple[list[Step], tuple[Input, ...], tuple[tuple[str, str], ...]]
"""A problem's functions, inputs and constants."""


def _of_elements(rng: Draw, *, is_of_two: bool) -> _Parts:
    """Return functions of one tensor's elements, or of two tensors' whose second may be a row."""
    steps, count, shape = list[Step](), rng.pick(1, 1, 2, 3), rng.shape()
    inputs = [Input("x", shape.made(rng.tensor()))]
    if is_of_two:
        names = shape.names[-1:] if shape.rank > 1 and rng.chance(0.3) else shape.names
        inputs.append(Input("y", f"{rng.tensor()}({', '.join(names)})"))
        _add(rng, steps, *rng.choice(list(OF_TWO.items())))
        count -= 1
    _functions(rng, steps, count)
    return steps, tuple(inputs), shape.constants


def _along(rng: Draw) -> _Parts:
    """Return a function along a dimension, perhaps with functions of elements before or after it."""
    steps, dimension = list[Step](), draw_dimension(rng)
    _functions(rng, steps, rng.pick(0, 0, 1))
    title, form = rng.choice([*REDUCTIONS.items(), *ALONG.items()])
    _add(rng, steps, title, form, d=written_dim(rng, dimension), k=rng.pick("", ", keepdim=True"))
    _functions(rng, steps, rng.pick(0, 0, 1))
    return steps, (Input("x", dimension.shape.made(rng.tensor())),), dimension.shape.constants


def _after_layer(rng: Draw, unseen: frozenset[str]) -> Module:
    """Return a linear layer or a convolution with functions of elements, perhaps with one along dimension 1."""
    steps, base = list[Step](), draw_base(rng, unseen)
    _functions(rng, steps, rng.pick(0, 1, 1, 2))
    if not steps or rng.chance(0.4):
        title, form = rng.choice([*REDUCTIONS.items(), *ALONG.items()])
        _add(rng, steps, title, form, d="1", k=rng.pick("", ", keepdim=True"))
    return module_of(base, steps, [])


def _in_chain(rng: Draw, unseen: frozenset[str]) -> Module:
    """Return a long chain with one or two functions of elements among its steps; its kernel may have any length."""
    functions = list[Step]()
    _functions(rng, functions, rng.pick(1, 1, 2), without=_GROWS)
    while True:
        base, steps, stages = long_chains.draw_parts(rng, unseen)
        for function in functions:
            place = rng.choice([steps, *(later for _, later in stages)])
            place.insert(rng.randint(0, len(place)), function)
        module = module_of(base, steps, stages)
        if not long_chains.has_one_name_twice(module, stages):
            return module
