"""First operators of chains: a linear layer or a convolution, whose kernel applies the steps that follow it."""

import re
from dataclasses import dataclass, replace

from tasks.problems.modules.convolution_problems import SPATIAL, Layer, written
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families.chain_steps import Step
from tasks.problems.modules.product_texts import Tile, linear, tile_for
from tasks.problems.modules.text import Argument, Input

WEIGHTS = {
    "linear": 9,
    "conv2d": 5,
    "conv3d": 3.5,
    "conv_transpose2d": 3,
    "conv_transpose3d": 4,
}
"""The operators, and how often each is drawn."""
_WITHOUT_BIAS = 0.15
_LITERAL = 0.25
"""Share of a convolution's settings that its constructor does not take."""


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

    @property
    def output_shape(self) -> str:
        """Sizes of the output, in the problem's constants where they have names."""
        if self.layer is None:
            return f"batch_size, {self.arguments[1].name}"
        return ", ".join(["batch_size", "out_channels", *map(str, self.layer.out_size)])


def draw_base(rng: Draw, unseen: frozenset[str]) -> Base:
    """Return a first operator that is not unseen."""
    names = rng.unless(list(WEIGHTS), unseen, str)
    operator = rng.choices(names, [WEIGHTS[name] for name in names])[0]
    return _linear(rng) if operator == "linear" else _convolution(rng, operator)


def product_text(
    base: Base, extra: tuple[str, ...] = (), steps: tuple[str, ...] = (), fused: str = ""
) -> tuple[str, str]:
    """Return the name of the host function, and the text of kernel and host function.

    `fused`: the reduction over channels that is among the steps. A linear layer alone has one tile for all shapes.
    """
    if base.layer is None:
        m, k, n = base.shape
        return "linear", linear(tile_for(m, n, k) if steps else Tile(), extra, steps)
    whole = ("softmax", "log_softmax")
    reduces = bool(fused) and fused not in whole
    drawn = replace(base.layer.text, extra=extra, steps=steps, whole=bool(fused), reduces=reduces)
    return drawn.host, drawn.text


def renamed(step: Step, attribute: str = "last_act") -> Step:
    """Return the step with a layer's attribute that the steps before the tail do not use."""
    forward, init = (
        tuple(re.sub(r"self\.act(?=\w* =|\w*\()", f"self.{attribute}", line) for line in lines)
        for lines in (step.forward, step.init)
    )
    return replace(step, forward=forward, init=init)


def channel_after(base: Base, tail: str) -> tuple[str, str, str] | None:
    """Return what a parameter after the tail needs; None if the tail's kernel has no index of channels."""
    if base.layer is not None or tail not in ("group_norm", "layer_norm", "batch_norm"):
        return None
    return ("cols", "N", base.channel[2]) if tail == "batch_norm" else ("c", "G * R", base.channel[2])


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
    bias = not rng.chance(_WITHOUT_BIAS)
    return Base(
        "linear",
        title,
        attribute,
        f"self.{attribute} = nn.Linear({inside}, {out}{'' if bias else ', bias=False'})",
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
    has_settings = transposed or rng.chance(0.3)
    layer = _chain_layer(rng, rank, transposed, has_settings)
    attribute = (
        rng.pick("conv_transpose", "conv_transpose", "deconv")
        if transposed
        else rng.pick("conv", "conv", f"conv{rank}d")
    )
    values = {"kernel_size": written(layer.kernel)}
    if has_settings:
        values |= {"stride": written(layer.stride), "padding": written(layer.padding)}
    if any(layer.output_padding):
        values["output_padding"] = written(layer.output_padding)
    given = [name for name in values if name == "kernel_size" or not rng.chance(_LITERAL)]
    made = ["in_channels", "out_channels", "kernel_size"]
    made += [f"{name}={name if name in given else value}" for name, value in values.items()][1:]
    made += [] if layer.bias else ["bias=False"]
    channels = Argument("in_channels", "in_channels", meaning="Number of input channels.")
    out = Argument("out_channels", "out_channels", meaning="Number of output channels.")
    settings = [
        Argument(name, values[name], "tuple" if values[name].startswith("(") else "int", f"The layer's {name}.")
        for name in given
    ]
    sizes = (("batch_size", layer.batch), ("in_channels", layer.channels), ("out_channels", layer.out_channels))
    constants = (*sizes, *zip(SPATIAL[rank], layer.size, strict=True))
    return Base(
        operator,
        f"a {'transposed ' if transposed else ''}{rank}D convolution",
        attribute,
        f"self.{attribute} = nn.{layer.torch_name}({', '.join(made)})",
        (channels, out, *settings),
        tuple((name, str(value)) for name, value in constants),
        layer.input,
        ("o", "OC", f"(out_channels, {', '.join(['1'] * rank)})"),
        layer,
        (0, 0, 0),
    )


def _chain_layer(rng: Draw, rank: int, transposed: bool, has_settings: bool) -> Layer:
    """Return a layer with one group, most often with a bias; `has_settings`: with stride and padding."""
    one = (1,) * rank
    while True:
        kernel = (rng.pick(3, 3, 3, 5) if not transposed else rng.pick(2, 3, 3, 4),) * rank
        stride = ((rng.pick(1, 2, 2) if transposed else rng.pick(1, 1, 2)) if has_settings else 1,) * rank
        padding = (rng.pick(0, 1, 1) if has_settings else 0,) * rank
        room = (1,) * rank if transposed and stride[0] > 1 and rng.chance(0.4) else (0,) * rank
        size = rng.pick(8, 16, 28, 32, 64) if rank == 2 else rng.pick(6, 8, 12, 16)
        sizes = (size,) * rank if rng.chance(0.7) else (*(size for _ in range(rank - 1)), size * 2)
        batch, channels, out = (
            rng.pick(2, 4, 8, 16, 32, 128),
            rng.pick(3, 3, 8, 16, 32, 64),
            rng.pick(8, 16, 16, 32, 64),
        )
        bias = not rng.chance(_WITHOUT_BIAS)
        layer = Layer(rank, transposed, batch, channels, out, sizes, kernel, stride, padding, one, room, 1, bias)
        if layer.fits and min(layer.out_size) >= 4:
            return layer
