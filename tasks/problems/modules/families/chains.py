"""Chains of level 2: a linear layer or a convolution, element-wise steps, and a reduction, normalisation or pooling.

plain: the steps are in the kernel of the product; what needs whole rows or planes has a second kernel. Slower: the
steps have a kernel of their own.
"""

import re
from dataclasses import dataclass, replace

from tasks.problems.modules.chain_tails import MAP_TAILS, ROW_TAILS, Tail, map_tail, row_tail
from tasks.problems.modules.convolution_problems import SPATIAL, Layer, written
from tasks.problems.modules.convolution_texts import block
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families.chain_steps import OPERATORS, Step, draw_steps, parts
from tasks.problems.modules.families.elementwise import UNARY
from tasks.problems.modules.pair import SEPARATOR, Family, ModulePair
from tasks.problems.modules.product_texts import linear, tile_for
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text

LONGEST = 2300
"""Characters of a kernel at most: about 950 tokens."""
LONGEST_SLOW = 2700
"""Characters of a slower kernel at most, which a model reads and does not write."""
_WEIGHTS = {
    "linear": 9,
    "conv2d": 5,
    "conv3d": 3.5,
    "conv_transpose2d": 3,
    "conv_transpose3d": 4,
}


@dataclass(frozen=True)
class Base:
    """The first operator of a chain."""

    operator: str
    title: str
    attribute: str
    init: str
    arguments: tuple[Argument, ...]
    constants: tuple[tuple[str, str], ...]
    input: Input
    channel: tuple[str, str, str]
    """The kernel's index of an output channel, its bound, and the shape of a parameter for each channel."""
    layer: Layer | None
    """The convolution; None for a linear layer."""
    shape: tuple[int, int, int]
    """M, K and N of a linear layer."""


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a chain of two to five operators."""
    while True:
        pair = _draw(rng, unseen)
        if len(pair.kernel_source) <= LONGEST:
            return pair


def _draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    names = rng.unless(list(_WEIGHTS), unseen, str)
    operator = rng.choices(names, [_WEIGHTS[name] for name in names])[0]
    base = _linear(rng) if operator == "linear" else _convolution(rng, operator)
    tails = rng.unless(ROW_TAILS if base.layer is None else MAP_TAILS, unseen, str)
    has_tail = bool(tails) and rng.chance(0.5)
    count = rng.pick(0, 1, 1, 2) if has_tail else rng.pick(1, 1, 2, 2, 3, 4)
    steps = draw_steps(rng, unseen, count, base.channel)
    last = rng.choice(tails) if has_tail else ""
    after = rng.pick(0, 0, 1, 1, 2) if last else 0
    later = [_renamed(step) for step in draw_steps(rng, unseen, after, _channel(base, last))]
    names = [argument.name for step in (*steps, *later) for argument in step.arguments]
    if len(set(names)) < len(names):
        return _draw(rng, unseen)
    tail = _tail(rng, base, last, later) if last else None
    module = _module(base, steps, tail, later)
    fused = tail is not None and bool(tail.fused)
    extra, lines, values = parts([*steps, *(later if fused else [])])
    if tail and fused:
        lines = (*parts(steps)[1], *tail.fused, *parts(later)[1])
    host, text = _product(base, extra, lines, last if fused else "")
    first = f"{host}(x, self.{base.attribute}{''.join(f', {value}' for value in values)})"
    own = [base.init, *(line for step in steps for line in step.own_init)]
    own += [*(tail.own_init if tail else ()), *(line for step in later for line in step.own_init)]
    separate = tail and not fused
    after_product = [tail.kernel] if tail and separate else []
    forward = [f"x = {first}", *tail.host] if tail and separate else [f"return {first}"]
    apart = ""
    if steps and not fused:
        apart = kernel_text(*_with_steps_apart(base, steps, module, tail), own)
    done = [operator, *(step.name for step in steps), *([tail.name] if tail else []), *(step.name for step in later)]
    return ModulePair(
        family=FAMILY.name,
        operator=SEPARATOR.join(done),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel_text([text, *after_product], module, forward, own),
        style="plain",
        slower=(apart,) if 0 < len(apart) <= LONGEST_SLOW else (),
    )


def _with_steps_apart(
    base: Base, steps: list[Step], module: Module, tail: Tail | None
) -> tuple[list[str], Module, list[str]]:
    """Return kernels, module and host statements of the chain whose steps have a launch of their own."""
    host, product = _product(base, (), (), "")
    kernels = [product, _steps_kernel(base, steps), *([tail.kernel] if tail else [])]
    forward = [f"x = {host}(x, self.{base.attribute})", *_steps_host(parts(steps)[2])]
    return kernels, module, [*forward, *(tail.host if tail else ["return x"])]


def _steps_kernel(base: Base, steps: list[Step]) -> str:
    """Return the kernel that applies the steps to the product's result in memory."""
    extra, lines, _ = parts(steps)
    index, bound, _ = base.channel
    passed = "".join(f", {name}" for name in extra)
    return f"""def steps_kernel(x_ptr, out_ptr{passed}, n, S, {bound}, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {index} = offsets // S % {bound}
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
{block(lines, 4)}    tl.store(out_ptr + offsets, x, mask=offsets < n)"""


def _steps_host(values: list[str]) -> list[str]:
    """Return the statements of `forward` that launch it; `values`: of its further arguments."""
    passed = "".join(f", {value}" for value in values)
    return [
        "n, S, y = x.numel(), x[0, 0].numel(), torch.empty_like(x)",
        f"steps_kernel[(triton.cdiv(n, 1024),)](x, y{passed}, n, S, x.shape[1], BLOCK=1024)",
        "x = y",
    ]


def _renamed(step: Step) -> Step:
    """Return the step with a layer's attribute that the steps before the tail do not use."""
    forward, init = (
        tuple(re.sub(r"self\.act(?=\w* =|\w*\()", "self.last_act", line) for line in lines)
        for lines in (step.forward, step.init)
    )
    return replace(step, forward=forward, init=init)


def _channel(base: Base, tail: str) -> tuple[str, str, str] | None:
    """Return what a parameter after the tail needs; None if the tail's kernel has no index of channels."""
    if base.layer is not None or tail not in ("group_norm", "layer_norm", "batch_norm"):
        return None
    return ("cols", "N", base.channel[2]) if tail == "batch_norm" else ("c", "G * R", base.channel[2])


def _module(base: Base, steps: list[Step], tail: Tail | None, later: list[Step]) -> Module:
    named = [
        base.title,
        *(step.title for step in steps),
        *([tail.title] if tail else []),
        *(step.title for step in later),
    ]
    title = f"{', '.join(named[:-1])} and {named[-1]}"
    lines = [f"x = self.{base.attribute}(x)", *(line for step in steps for line in step.forward)]
    lines += [f"x = {tail.form}"] if tail else []
    lines += [line for step in later for line in step.forward]
    arguments = [*base.arguments, *(argument for step in steps for argument in step.arguments)]
    arguments += [*(tail.arguments if tail else ()), *(argument for step in later for argument in step.arguments)]
    init = [base.init, *(line for step in steps for line in step.init)]
    init += [*(tail.init if tail else ()), *(line for step in later for line in step.init)]
    return Module(title, (base.input,), (*lines, "return x"), tuple(arguments), tuple(init), base.constants)


def _tail(rng: Draw, base: Base, name: str, later: list[Step]) -> Tail:
    names, lines, values = parts(later)
    extra = dict(zip(names, values, strict=True))
    if base.layer is None:
        return row_tail(rng, name, base.shape[2], base.arguments[1].name, lines, extra)
    return map_tail(rng, name, base.layer.rank, base.layer.out_channels, lines, extra)


def _product(base: Base, extra: tuple[str, ...], steps: tuple[str, ...], fused: str) -> tuple[str, str]:
    """Return the name of the host function, and the text of kernel and host function.

    `fused`: the reduction over channels that is among the steps.
    """
    if base.layer is None:
        m, k, n = base.shape
        return "linear", linear(tile_for(m, n, k), extra, steps)
    layer = base.layer
    drawn = replace(layer.text, uniform=True, strided=layer.transposed, extra=extra, steps=steps)
    if fused:
        drawn = replace(drawn, rows=max(16, layer.out_channels), reduces=fused not in ("softmax", "log_softmax"))
    return drawn.host, drawn.text


def _linear(rng: Draw) -> Base:
    batch, k, n = (
        rng.pick(64, 128, 128, 256, 512),
        rng.pick(64, 100, 256, 512, 1024),
        rng.pick(32, 64, 128, 256, 512, 1000),
    )
    inside, out = rng.pick(
        ("in_features", "out_features"), ("in_features", "out_features"), ("input_size", "hidden_size")
    )
    attribute = rng.pick("linear", "gemm", "matmul", "fc")
    title = {"gemm": "a gemm", "matmul": "a matrix multiplication"}.get(attribute, "a linear layer")
    return Base(
        "linear",
        title,
        attribute,
        f"self.{attribute} = nn.Linear({inside}, {out})",
        (
            Argument(inside, inside, meaning="Number of input features."),
            Argument(out, out, meaning="Number of output features."),
        ),
        (("batch_size", str(batch)), (inside, str(k)), (out, str(n))),
        Input("x", f"torch.randn(batch_size, {inside})", meaning=f"Input tensor of shape (batch_size, {inside})."),
        ("cols", "N", f"({out},)"),
        None,
        (batch, k, n),
    )


def _convolution(rng: Draw, operator: str) -> Base:
    transposed, rank = "transpose" in operator, int(operator[-2])
    layer = _chain_layer(rng, rank, transposed)
    attribute = (
        rng.pick("conv_transpose", "conv_transpose", "deconv")
        if transposed
        else rng.pick("conv", "conv", f"conv{rank}d")
    )
    names, values = ["kernel_size"], [written(layer.kernel)]
    if transposed:
        names += ["stride", "padding"]
        values += [written(layer.stride), written(layer.padding)]
        if any(layer.output_padding):
            names.append("output_padding")
            values.append(written(layer.output_padding))
    made = ", ".join(["in_channels", "out_channels", "kernel_size", *(f"{name}={name}" for name in names[1:])])
    channels = Argument("in_channels", "in_channels", meaning="Number of input channels.")
    out = Argument("out_channels", "out_channels", meaning="Number of output channels.")
    settings = [
        Argument(name, value, "tuple" if value.startswith("(") else "int", f"Setting {name} of the convolution.")
        for name, value in zip(names, values, strict=True)
    ]
    sizes = (("batch_size", layer.batch), ("in_channels", layer.channels), ("out_channels", layer.out_channels))
    constants = (*sizes, *zip(SPATIAL[rank], layer.size, strict=True))
    return Base(
        operator,
        f"a {'transposed ' if transposed else ''}{rank}D convolution",
        attribute,
        f"self.{attribute} = nn.{layer.torch_name}({made})",
        (channels, out, *settings),
        tuple((name, str(value)) for name, value in constants),
        layer.input,
        ("o", "OC", f"(out_channels, {', '.join(['1'] * rank)})"),
        layer,
        (0, 0, 0),
    )


def _chain_layer(rng: Draw, rank: int, transposed: bool) -> Layer:
    """Return a layer with bias and one group; without stride and padding unless it is transposed."""
    one = (1,) * rank
    while True:
        kernel = (rng.pick(3, 3, 3, 5) if not transposed else rng.pick(2, 3, 3, 4),) * rank
        stride = (rng.pick(1, 2, 2),) * rank if transposed else one
        padding = (rng.pick(0, 1, 1),) * rank if transposed else (0,) * rank
        room = (1,) * rank if stride[0] > 1 and rng.chance(0.4) else (0,) * rank
        size = rng.pick(8, 16, 28, 32, 64) if rank == 2 else rng.pick(6, 8, 12, 16)
        sizes = (size,) * rank if rng.chance(0.7) else (*(size for _ in range(rank - 1)), size * 2)
        batch, channels, out = (
            rng.pick(2, 4, 8, 16, 32, 128),
            rng.pick(3, 3, 8, 16, 32, 64),
            rng.pick(8, 16, 16, 32, 64),
        )
        layer = Layer(rank, transposed, batch, channels, out, sizes, kernel, stride, padding, one, room, 1, True)
        if layer.fits and min(layer.out_size) >= 4:
            return layer


FAMILY = Family(
    "chains",
    (*_WEIGHTS, *OPERATORS, *(unary.name for unary in UNARY), *dict.fromkeys((*ROW_TAILS, *MAP_TAILS))),
    draw,
    needed=tuple(_WEIGHTS),
)
