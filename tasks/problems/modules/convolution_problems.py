"""Draws convolution layers: sizes, settings, and the constructor of the module around them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.problems.modules.convolution_texts import Convolution
from tasks.problems.modules.defaults import Default, with_defaults
from tasks.problems.modules.draw import MOST_ELEMENTS, Draw
from tasks.problems.modules.text import Argument, Input, Module, problem_text

MOST_STEPS = 3000
"""Steps of 32 taps over all tiles at most: few enough for the interpreter, and under 1 ms on an H100."""
SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_SIZES = {1: (128, 256, 500, 512, 1024, 4096), 2: (28, 32, 56, 64, 100, 128, 256), 3: (8, 12, 16, 24, 32)}
_MEANINGS = {
    "stride": "Stride of the convolution.",
    "padding": "Padding of the input.",
    "output_padding": "Size added to one side of the output.",
    "dilation": "Spacing between kernel elements.",
    "groups": "Number of groups of channels.",
    "bias": "Whether a bias is added.",
}
_TUPLES = 0.35
"""Share of the layers with defaults, of more than one dimension, whose settings are a number for each dimension."""
_DEFAULTS = {"stride": "1", "padding": "0", "output_padding": "0", "dilation": "1", "groups": "1", "bias": "False"}


@dataclass(frozen=True)
class Layer:
    """A layer's sizes and settings; tuples have one number a dimension."""

    rank: int
    transposed: bool
    batch: int
    channels: int
    out_channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int = 1
    bias: bool = False

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial sizes of the output."""
        parts = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, self.output_padding, strict=True)
        if self.transposed:
            return tuple((n - 1) * s - 2 * p + d * (k - 1) + q + 1 for n, k, s, p, d, q in parts)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in parts)

    @property
    def fits(self) -> bool:
        """True if tensors and work are within bounds, and the output is not empty."""
        if min(self.out_size) < 2:
            return False
        positions = math.prod(self.out_size)
        elements = self.batch * max(self.channels * math.prod(self.size), self.out_channels * positions)
        tiles = self.batch * self.groups * math.ceil(positions / 64)
        tiles *= math.ceil(self.out_channels / self.groups / self.rows)
        steps = tiles * math.ceil(self.channels // self.groups * math.prod(self.kernel) / 32)
        return 2**14 <= elements <= MOST_ELEMENTS and steps <= MOST_STEPS

    @property
    def rows(self) -> int:
        """Tile of output channels that suits the layer."""
        channels = self.out_channels // self.groups
        return 64 if channels >= 64 else 32 if channels >= 32 else 16

    @property
    def text(self) -> Convolution:
        """The kernel that suits the layer."""
        return Convolution(self.rank, self.transposed)

    @property
    def torch_name(self) -> str:
        """Name of the layer's class in torch.nn."""
        return f"Conv{'Transpose' if self.transposed else ''}{self.rank}d"

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """Constants of batch and spatial sizes."""
        sizes = zip(SPATIAL[self.rank], self.size, strict=True)
        return (("batch_size", str(self.batch)), *((name, str(size)) for name, size in sizes))

    @property
    def input(self) -> Input:
        """The argument of `forward`."""
        names = ", ".join(("batch_size", "in_channels", *SPATIAL[self.rank]))
        return Input("x", f"torch.randn({names})", meaning=f"Input tensor of shape ({names}).")


def draw_layer(
    rng: Draw, rank: int, transposed: bool = False, depthwise: bool = False, pointwise: bool = False
) -> Layer:
    """Return a layer with settings of all kinds."""
    while True:
        channels, out_channels = rng.pick(3, 4, 8, 16, 32, 64), rng.pick(3, 8, 16, 24, 32, 64, 64, 128)
        groups = rng.pick(1, 1, 1, 1, 2, 4, 8) if rng.chance(0.5) else 1
        if depthwise:
            channels = rng.pick(3, 8, 16, 32, 64, 128)
            out_channels = groups = channels
        if channels % groups or out_channels % groups:
            continue
        kernel = _numbers(rng, rank, (1,) if pointwise else (2, 3, 3, 3, 5, 7) if rank < 3 else (2, 3, 3, 5), 0.35)
        stride = _numbers(rng, rank, (1,) if pointwise else (1, 1, 2, 2, 3) if rng.chance(0.6) else (1,), 0.3)
        padding = _numbers(rng, rank, (0,) if pointwise else (0, 1, 1, 2) if rng.chance(0.6) else (0,), 0.3)
        dilation = _numbers(rng, rank, (1,) if pointwise else (1, 2, 3) if rng.chance(0.3) else (1,), 0.3)
        room = transposed and rng.chance(0.25) and min(stride) > 1
        layer = Layer(
            rank,
            transposed,
            rng.pick(1, 4, 8, 16, 16, 32),
            channels,
            out_channels,
            _numbers(rng, rank, _SIZES[rank], 0.5),
            kernel,
            stride,
            padding,
            dilation,
            (1,) * rank if room else (0,) * rank,
            groups,
            rng.chance(0.4),
        )
        if layer.fits:
            return layer


def written(values: Sequence[int]) -> str:
    """Return a setting as modules write it: one number if all are equal."""
    return str(values[0]) if len(set(values)) == 1 else f"({', '.join(map(str, values))})"


def layer_module(rng: Draw, layer: Layer, title: str, attribute: str) -> tuple[Module, tuple[Default, ...]]:
    """Return a module that applies the layer, and the defaults of its constructor."""
    used, kernel, standard = _used(layer), written(layer.kernel), _DEFAULTS
    depthwise = 1 < layer.groups == layer.channels == layer.out_channels
    if depthwise:
        del used["groups"]
    arguments = [Argument("in_channels", "in_channels", meaning="Number of input channels.")]
    if not depthwise:
        arguments.append(Argument("out_channels", str(layer.out_channels), meaning="Number of output channels."))
    arguments.append(Argument("kernel_size", kernel, _kind(kernel), "Size of the convolution kernel."))
    if rng.chance(0.6):  # as KernelBench: every setting has a default, and the caller gives as many as it needs
        names = [name for name in _DEFAULTS if name in used or name not in ("output_padding", "groups")]
        last = max((names.index(name) for name in used), default=-1)
        passed, settings = names[: last + 1], {name: name for name in names}
        if layer.rank > 1 and rng.chance(_TUPLES):
            standard, used = _as_tuples(_DEFAULTS, layer.rank), _as_tuples(used, layer.rank)
        defaults = tuple(Default(name, standard[name], _kind(standard[name])) for name in names)
    else:
        names = [name for name in used if name != "bias"]
        passed, defaults = [name for name in names if rng.chance(0.7)], ()
        settings = {name: name if name in passed else used[name] for name in names}
        settings |= {} if layer.bias else {"bias": "False"}
    settings |= {"groups": "in_channels"} if depthwise else {}
    values = standard | used
    arguments += [Argument(name, values[name], _kind(values[name]), _MEANINGS[name]) for name in passed]
    size = "kernel_size"
    if layer.rank > 1 and not kernel.startswith("(") and rng.chance(0.15):
        size = f"({', '.join(['kernel_size'] * layer.rank)})"
    made = ["in_channels", "in_channels" if depthwise else "out_channels", rng.pick("", "kernel_size=") + size]
    made += [f"{name}={value}" for name, value in settings.items()]
    init = (f"self.{attribute} = nn.{layer.torch_name}({', '.join(made)})",)
    constants = (*layer.constants, ("in_channels", str(layer.channels)))
    return Module(title, (layer.input,), (f"return self.{attribute}(x)",), tuple(arguments), init, constants), defaults


def layer_texts(rng: Draw, module: Module, defaults: tuple[Default, ...], kernel: str) -> tuple[str, str]:
    """Return the texts of problem and kernel with the constructor's defaults."""
    problem = with_defaults(problem_text(rng, module), defaults)
    if rng.chance(0.5):
        problem = _documented(rng, problem, module, defaults)
    return problem, with_defaults(kernel, defaults)


def _documented(rng: Draw, problem: str, module: Module, defaults: tuple[Default, ...]) -> str:
    """Return the problem with a class docstring that lists the constructor's arguments."""
    lines = [f"{rng.pick('Performs', 'Performs', 'Applies', 'Computes')} {module.title}.", "", "Args:"]
    optional = {default.name: default for default in defaults}
    named = [argument for argument in module.arguments if argument.name not in optional]
    lines += [f"    {argument.name} ({argument.kind}): {argument.meaning}" for argument in named]
    for name, default in optional.items():
        lines.append(f"    {name} ({default.kind}, optional): {_MEANINGS[name]} Defaults to {default.value}.")
    text = "".join(f"    {line}\n" if line else "\n" for line in ['"""', *lines, '"""'])
    head = "class Model(nn.Module):\n"
    return re.sub(
        head.replace("(", r"\(").replace(")", r"\)") + r'(    """.*?"""\n)?',
        head + text,
        problem,
        count=1,
        flags=re.DOTALL,
    )


def _numbers(rng: Draw, rank: int, options: Sequence[int], uneven: float) -> tuple[int, ...]:
    """Return one number for each dimension, all equal but for a share `uneven` of the draws."""
    if rng.chance(uneven):
        return tuple(rng.choice(options) for _ in range(rank))
    return (rng.choice(options),) * rank


def _as_tuples(settings: dict[str, str], rank: int) -> dict[str, str]:
    """Return the settings with a tuple for each number that is of a dimension."""
    single = {name for name, value in settings.items() if name in ("groups", "bias") or value.startswith("(")}
    return {name: value if name in single else f"({', '.join([value] * rank)})" for name, value in settings.items()}


def _kind(value: str) -> str:
    return "bool" if value in ("True", "False") else "tuple" if value.startswith("(") else "int"


def _used(layer: Layer) -> dict[str, str]:
    """Return the settings that differ from the defaults of KernelBench's modules, in their order."""
    values = {
        "stride": written(layer.stride),
        "padding": written(layer.padding),
        "output_padding": written(layer.output_padding),
        "dilation": written(layer.dilation),
        "groups": str(layer.groups),
        "bias": str(layer.bias),
    }
    return {name: value for name, value in values.items() if value != _DEFAULTS[name]}
