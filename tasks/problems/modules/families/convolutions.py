"""Convolutions of one to three dimensions, as one implicit matrix product; depthwise and separable ones.

plain: the taps of all input channels are the product's inner dimension, gathered from the input in the loop.
"""

from dataclasses import replace

from tasks.problems.modules.convolution_problems import Layer, draw_layer, layer_module, layer_texts
from tasks.problems.modules.convolution_texts import depthwise
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import Argument, kernel_text

_WEIGHTS = {
    "conv1d": 3,
    "conv2d": 6,
    "conv3d": 4,
    "pointwise_conv2d": 1,
    "depthwise_conv1d": 0.5,
    "depthwise_conv2d": 2,
    "separable_conv2d": 1,
}


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one convolution layer, or of a depthwise and a pointwise one."""
    names = rng.unless(FAMILY.operators, unseen, str)
    operator = rng.choices(names, [_WEIGHTS[name] for name in names])[0]
    rank = int(operator[-2])
    if operator == "separable_conv2d":
        return _separable(rng)
    is_depthwise = operator.startswith("depthwise")
    layer = draw_layer(rng, rank, depthwise=is_depthwise, pointwise=operator.startswith("pointwise"))
    attribute = rng.pick(f"conv{rank}d", f"conv{rank}d", "conv", "conv_layer")
    module, defaults = layer_module(rng, layer, title_of(operator, layer), attribute)
    host, text = "conv", layer.text.text
    if is_depthwise:
        host, text = "depthwise", depthwise(rank)
    kernel = kernel_text([text], module, [f"return {host}(x, self.{attribute})"])
    problem, kernel = layer_texts(rng, module, defaults, kernel)
    return _pair(operator, module.title, problem, kernel)


def title_of(operator: str, layer: Layer) -> str:
    """Return the problem in a few words."""
    kind = "standard" if operator.startswith("conv") else operator.split("_")[0]
    name = f"{kind} {layer.rank}D convolution"
    kernel = "an asymmetric" if len(set(layer.kernel)) > 1 else "a square"
    return f"a {name} with {kernel} kernel" if layer.rank > 1 and max(layer.kernel) > 1 else f"a {name}"


def _separable(rng: Draw) -> ModulePair:
    layer = draw_layer(rng, 2, depthwise=True)
    made, defaults = layer_module(rng, layer, "a depthwise-separable 2D convolution", "depthwise")
    bias = next((part for part in ("bias=bias", "bias=False") if part in made.init[0]), "")
    out = Argument("out_channels", str(rng.pick(16, 32, 64)), meaning="Number of output channels.")
    pointwise = f"self.pointwise = nn.Conv2d(in_channels, out_channels, kernel_size=1{bias and ', ' + bias})"
    module = replace(
        made,
        forward=("x = self.depthwise(x)", "x = self.pointwise(x)", "return x"),
        arguments=(made.arguments[0], out, *made.arguments[1:]),
        init=(*made.init, pointwise),
    )
    kernel = kernel_text([layer.text.text], module, ["return conv(conv(x, self.depthwise), self.pointwise)"])
    problem, kernel = layer_texts(rng, module, defaults, kernel)
    return _pair("separable_conv2d", module.title, problem, kernel)


def _pair(operator: str, title: str, problem: str, kernel: str) -> ModulePair:
    return ModulePair(
        family=FAMILY.name,
        operator=operator,
        title=title,
        problem_source=problem,
        kernel_source=kernel,
        style="plain",
    )


FAMILY = Family("convolutions", tuple(_WEIGHTS), draw)
