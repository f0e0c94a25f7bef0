"""Average and maximum pooling of one to three dimensions.

plain: one kernel, a block of outputs a program, a loop over the window.
"""

import math

from tasks.problems.modules.convolution_problems import SPATIAL
from tasks.problems.modules.defaults import Default, with_defaults
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.pooling_texts import Kind, pooling
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text

MOST_READS = 2**22
"""Elements of all windows together at most: few enough for the interpreter."""
_SIZES = {1: (128, 512, 1000, 4096), 2: (32, 56, 64, 128, 256), 3: (16, 24, 32, 64)}
_LAYERS = {"average": ("AvgPool", ("avg_pool", "avgpool", "pool")), "max": ("MaxPool", ("maxpool", "max_pool", "pool"))}
_FLAGS = ("return_indices", "ceil_mode")
"""Settings of maximum pooling that a module may hand on and nobody sets."""
_WITH_FLAGS = 0.35
_MEANINGS = {
    "kernel_size": "Size of the pooling window.",
    "stride": "Stride of the window.",
    "padding": "Padding of the input.",
    "dilation": "Spacing between elements of the window.",
}


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one pooling layer."""
    operator = rng.choice(rng.unless(FAMILY.operators, unseen, str))
    kind: Kind = "max" if operator.startswith("max") else "average"
    rank = int(operator[-2])
    shape = _shape(rng, rank)
    kernel = rng.pick(2, 2, 3, 3, 4, 5) if rank < 3 else rng.pick(2, 2, 3)
    stride = rng.pick(None, None, 1, 2, 2, 3)
    padding = rng.pick(0, 0, *range(1, kernel // 2 + 1))
    dilation = rng.pick(1, 1, 2, 3) if kind == "max" else 1
    outputs = math.prod(shape) // (stride or kernel) ** rank
    if min(shape[2:]) + 2 * padding < dilation * (kernel - 1) + 2 or outputs * kernel**rank > MOST_READS:
        return draw(rng, unseen)
    settings = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    module, defaults = _module(rng, kind, rank, shape, settings)
    attribute = module.init[0].split(" ")[0]
    source = kernel_text([pooling(kind, rank)], module, [f"return {kind}_pool(x, {attribute})"])
    return ModulePair(
        family=FAMILY.name,
        operator=operator,
        title=module.title,
        problem_source=with_defaults(problem_text(rng, module), defaults),
        kernel_source=with_defaults(source, defaults),
        style="plain",
    )


def _shape(rng: Draw, rank: int) -> tuple[int, ...]:
    """Return batch, channels and spatial sizes."""
    while True:
        size = rng.choice(_SIZES[rank])
        spatial = (size,) * rank if rng.chance(0.6) else tuple(rng.choice(_SIZES[rank]) for _ in range(rank))
        shape = (rng.pick(1, 4, 8, 16, 16, 32), rng.pick(3, 16, 32, 32, 64), *spatial)
        if 2**15 <= math.prod(shape) <= 2**22:
            return shape


def _module(
    rng: Draw, kind: Kind, rank: int, shape: tuple[int, ...], settings: dict[str, int | None]
) -> tuple[Module, tuple[Default, ...]]:
    standard: dict[str, int | None] = {"stride": None, "padding": 0, "dilation": 1}
    used = [name for name in standard if settings[name] != standard[name]]
    name, attributes = _LAYERS[kind]
    attribute = rng.choice(attributes)
    names = [item for item in standard if item != "dilation" or kind == "max"]
    defaults: tuple[Default, ...] = ()
    if rng.chance(0.5):
        last = max((names.index(item) for item in used), default=-1)
        passed = names[: last + 1]
        defaults = tuple(Default(item, str(standard[item])) for item in names)
    else:
        passed = names = used
    values = ["kernel_size", *names]
    made = rng.pick(
        ", ".join(f"{item}={item}" for item in values), "kernel_size" + "".join(f", {i}={i}" for i in names)
    )
    if kind == "max" and rng.chance(_WITH_FLAGS):
        made += "".join(f", {flag}={flag}" for flag in _FLAGS)
        defaults += tuple(Default(flag, "False", "bool") for flag in _FLAGS)
    arguments = [Argument("kernel_size", str(settings["kernel_size"]), meaning=_MEANINGS["kernel_size"])]
    arguments += [Argument(item, str(settings[item]), meaning=_MEANINGS[item]) for item in passed]
    channels = rng.pick("channels", "in_channels")
    dims = ("batch_size", channels, *SPATIAL[rank])
    constants = tuple((dim, str(size)) for dim, size in zip(dims, shape, strict=True))
    listed = ", ".join(dims)
    title = f"{kind} pooling {rank}D" if rng.chance(0.5) else f"a {rank}D {kind} pooling"
    given = Input("x", f"torch.randn({listed})", meaning=f"Input tensor of shape ({listed}).")
    init = (f"self.{attribute} = nn.{name}{rank}d({made})",)
    return Module(title, (given,), (f"return self.{attribute}(x)",), tuple(arguments), init, constants), defaults


FAMILY = Family("pooling", tuple(f"{kind}_pool{rank}d" for kind in ("average", "max") for rank in (1, 2, 3)), draw)
