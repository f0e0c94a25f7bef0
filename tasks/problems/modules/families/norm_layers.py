"""Layers that normalise: layer, group, instance and batch norm, and RMS norm with weights.

A program has one group of neighbours in memory. A group of one dimension is in one block where it fits; otherwise, and
for a group of several dimensions, whatever their sizes, a loop is run twice. Batch norm begins with a launch for
partial sums. Slower: the loop with small blocks, or far too many warps for a group.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tasks.problems.modules.draw import Draw, Shape
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.slow_forms import with_warps
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text

_LARGEST = 16384
_LARGE_GROUPS = 0.2
"""Share of the layer norms whose groups have up to 4 million elements."""
_SMALL_BLOCK = 128
_SHORTEST = 1024
"""Elements of a group from which on a loop with small blocks is slow."""
_Written = tuple[Module, str, tuple[str, ...]]
"""A layer's module, its kernel, and slower ones."""


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one of the layers."""
    name = rng.choice([name for name in _LAYERS if name not in unseen])
    module, kernel, slower = _LAYERS[name](rng)
    return ModulePair(
        family=FAMILY.name,
        operator=name,
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel,
        style="fast",
        slower=slower,
    )


@dataclass(frozen=True)
class _Groups:
    """A kernel's way to its group and to the group's weights."""

    size: int
    """Elements of a group."""
    scalars: str = ""
    """Further arguments of the kernel, with a comma before them."""
    channel: str = ""
    """Expression of the index of an element's weight; none: no weights."""
    bias: bool = True
    block: int = 0
    """Elements of a group at a time; 0: all where they fit."""
    several: bool = False
    """The group has several dimensions: one text serves all of their sizes."""

    @property
    def fits(self) -> bool:
        return not self.block and not self.several and self.size <= _LARGEST

    def written(self, kernel_of: "Callable[[_Groups], str]") -> tuple[str, tuple[str, ...]]:
        """Return the kernel, and slower ones; `kernel_of`: writes it for this way to a group or another one."""
        kernel = kernel_of(self)
        if self.size < _SHORTEST:
            return kernel, (with_warps(kernel, 32),) if self.fits else ()
        return kernel, (kernel_of(replace(self, block=_SMALL_BLOCK)),)

    @property
    def sizes(self) -> str:
        """Return the launch's keyword arguments."""
        if self.block:
            return f"BLOCK={self.block}"
        if not self.fits:
            return "BLOCK=4096, num_warps=8"
        return "BLOCK=triton.next_power_of_2(R)" + (", num_warps=8" if self.size > 2048 else "")

    def kernel(self, rms: bool = False) -> str:
        """Return the kernel: `g` is the group, `cols` the element in it."""
        pointers = "x_ptr, " + ("w_ptr, " if self.channel else "") + ("b_ptr, " if self.channel and self.bias else "")
        head = f"def norm_kernel({pointers}out_ptr, R{self.scalars}, eps, BLOCK: tl.constexpr):\n"
        head += "    g = tl.program_id(0)\n"
        load = ["mask = cols < R", "v = tl.load(x_ptr + g * R + cols, mask=mask, other=0.0)"]
        y = "v * scale" if rms else "(v - mean) * scale"
        end = [f"y = {y}"]
        if self.channel:
            end += [] if self.channel == "cols" else [f"c = {self.channel}"]
            place = "cols" if self.channel == "cols" else "c"
            masked = ", mask=mask, other=0.0" if "cols" in self.channel else ""
            w, b = (f"tl.load({name}_ptr + {place}{masked})" for name in "wb")
            end.append(f"y = y * {w} + {b}" if self.bias else f"y = y * {w}")
        end.append("tl.store(out_ptr + g * R + cols, y, mask=mask)")
        lines = self._once(rms, load, end) if self.fits else self._loop(rms, load, end)
        return head + "\n".join(f"    {line}" for line in lines)

    def _once(self, rms: bool, load: list[str], end: list[str]) -> list[str]:
        if rms:
            middle = ["scale = tl.rsqrt(tl.sum(v * v, 0) / R + eps)"]
        else:
            middle = ["mean = tl.sum(v, 0) / R", "d = tl.where(mask, v - mean, 0.0)"]
            middle.append("scale = tl.rsqrt(tl.sum(d * d, 0) / R + eps)")
        return ["cols = tl.arange(0, BLOCK)", *load, *middle, *end]

    def _loop(self, rms: bool, load: list[str], end: list[str]) -> list[str]:
        inside = ["cols = start + tl.arange(0, BLOCK)", *load]
        sums = ["squares += v * v"] if rms else ["total += v", "squares += v * v"]
        accumulators = ["squares"] if rms else ["total", "squares"]
        lines = [f"{name} = tl.zeros((BLOCK,), tl.float32)" for name in accumulators]
        lines += ["for start in range(0, R, BLOCK):", *(f"    {line}" for line in [*inside, *sums])]
        lines += [] if rms else ["mean = tl.sum(total, 0) / R"]
        lines.append(f"scale = tl.rsqrt(tl.sum(squares, 0) / R {'' if rms else '- mean * mean '}+ eps)")
        return [*lines, "for start in range(0, R, BLOCK):", *(f"    {line}" for line in [*inside, *end])]


def _layer(title: str, rng: Draw, shape: Shape, attribute: str, layer: str, arguments: tuple[Argument, ...]) -> Module:
    """Return the problem of a layer of torch.nn; its arguments' values may be names of the shape."""
    constants = shape.constants
    return Module(
        title=title,
        inputs=(Input("x", shape.made(rng.tensor())),),
        forward=(f"return self.{attribute}(x)",),
        arguments=arguments,
        init=(f"self.{attribute} = {layer}",),
        constants=constants,
    )


def _image(rng: Draw, ranks: tuple[int, ...] = (4,)) -> Shape:
    return rng.shape(rng.choice(ranks), least=2**16)


def _layer_norm(rng: Draw) -> _Written:
    large = rng.chance(_LARGE_GROUPS)
    rank = 4 if large else rng.pick(2, 3, 3, 4)
    shape = rng.shape(rank, most=2**23)
    covered = 3 if large else rng.pick(1, rank - 1)
    if large:
        shape = replace(shape, sizes=(4, rng.pick(16, 32, 64, 64), *rng.choices((128, 192, 256), k=2)))
    names, sizes = shape.names[-covered:], shape.sizes[-covered:]
    value = names[0] if covered == 1 else f"({', '.join(names)})"
    kind = "int" if covered == 1 else "tuple"
    argument = Argument("normalized_shape", value, kind, "Shape of the part to be normalized.")
    attribute = rng.pick("ln", "norm", "layer_norm")
    layer = rng.pick("nn.LayerNorm(normalized_shape)", "nn.LayerNorm(normalized_shape=normalized_shape)")
    module = _layer("Layer Normalization", rng, shape, attribute, layer, (argument,))
    groups = _Groups(math.prod(sizes), channel="cols", several=covered > 1)
    ln = f"self.{attribute}"

    def kernel_of(groups: _Groups) -> str:
        host = ["x = x.contiguous()", "out = torch.empty_like(x)", f"R = {ln}.weight.numel()"]
        launch = f"norm_kernel[(x.numel() // R,)](x, {ln}.weight, {ln}.bias, out, R, {ln}.eps, {groups.sizes})"
        return kernel_text([groups.kernel()], module, [*host, launch, "return out"])

    return module, *groups.written(kernel_of)


def _group_norm(rng: Draw) -> _Written:
    shape = _image(rng, (3, 4, 4, 5))
    channels = shape.sizes[1]
    count = rng.choice([count for count in (2, 4, 8) if channels % count == 0])
    arguments = (
        Argument("num_features", shape.names[1], "int", "Number of channels."),
        Argument("num_groups", str(count), "int", "Number of groups."),
    )
    attribute = rng.pick("gn", "norm", "group_norm")
    layer = rng.pick(
        "nn.GroupNorm(num_groups=num_groups, num_channels=num_features)", "nn.GroupNorm(num_groups, num_features)"
    )
    module = _layer("Group Normalization", rng, shape, attribute, layer, arguments)
    groups = _Groups(
        shape.elements // (shape.sizes[0] * count),
        ", spatial, per_group, G",
        "(g % G) * per_group + cols // spatial",
        several=True,
    )
    gn = f"self.{attribute}"
    host = ["x = x.contiguous()", "out = torch.empty_like(x)", f"B, C, G = x.shape[0], x.shape[1], {gn}.num_groups"]
    host += ["spatial = x.numel() // (B * C)", "R = C // G * spatial"]
    launch = f"norm_kernel[(B * G,)](x, {gn}.weight, {gn}.bias, out, R, spatial, C // G, G, {gn}.eps, "

    def kernel_of(groups: _Groups) -> str:
        return kernel_text([groups.kernel()], module, [*host, f"{launch}{groups.sizes})", "return out"])

    return module, *groups.written(kernel_of)


def _instance_norm(rng: Draw) -> _Written:
    shape = _image(rng, (3, 4, 4, 5))
    layer = f"nn.InstanceNorm{shape.rank - 2}d"
    affine = rng.chance(0.25)
    given = rng.pick("num_features=num_features", "num_features") + (", affine=True" if affine else "")
    attribute = rng.pick("inorm", "norm", "instance_norm")
    argument = Argument("num_features", shape.names[1], "int", "Number of channels.")
    module = _layer("Instance Normalization", rng, shape, attribute, f"{layer}({given})", (argument,))
    size = shape.elements // (shape.sizes[0] * shape.sizes[1])
    several = shape.rank > 3
    groups = _Groups(size, ", C", "g % C", several=several) if affine else _Groups(size, several=several)
    norm = f"self.{attribute}"
    host = [
        "x = x.contiguous()",
        "out = torch.empty_like(x)",
        "B, C = x.shape[0], x.shape[1]",
        "R = x.numel() // (B * C)",
    ]
    weights, extra = (f"{norm}.weight, {norm}.bias, ", ", C") if affine else ("", "")
    launch = f"norm_kernel[(B * C,)](x, {weights}out, R{extra}, {norm}.eps, "

    def kernel_of(groups: _Groups) -> str:
        return kernel_text([groups.kernel()], module, [*host, f"{launch}{groups.sizes})", "return out"])

    return module, *groups.written(kernel_of)


def _weighted_rms_norm(rng: Draw) -> _Written:
    shape = rng.shape(rng.pick(2, 3), most=2**23)
    name = shape.names[-1]
    form = rng.pick(
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight",
        "return x / torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + self.eps) * self.weight",
    )
    module = Module(
        title="RMS Normalization with a weight",
        inputs=(Input("x", shape.made()),),
        forward=(form,),
        arguments=(
            Argument("hidden_size", name, "int", "Size of the last dimension."),
            Argument("eps", rng.pick("1e-5", "1e-6"), "float", "Added to the mean square."),
        ),
        init=("self.eps = eps", f"self.weight = nn.Parameter({rng.pick('torch.ones', 'torch.randn')}(hidden_size))"),
        constants=shape.constants,
    )
    groups = _Groups(shape.sizes[-1], channel="cols", bias=False)
    host = ["x = x.contiguous()", "out = torch.empty_like(x)", "R = x.shape[-1]"]

    def kernel_of(groups: _Groups) -> str:
        launch = f"norm_kernel[(x.numel() // R,)](x, self.weight, out, R, self.eps, {groups.sizes})"
        return kernel_text([groups.kernel(rms=True)], module, [*host, launch, "return out"])

    return module, *groups.written(kernel_of)


_BATCH_SUMS = """def sums_kernel(x_ptr, part_ptr, R, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, R, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + g * R + cols, mask=cols < R, other=0.0)
        total += v
        squares += v * v
    tl.store(part_ptr + 2 * g, tl.sum(total, 0))
    tl.store(part_ptr + 2 * g + 1, tl.sum(squares, 0))"""
_BATCH_NORM = """def norm_kernel(
    x_ptr, part_ptr, w_ptr, b_ptr, out_ptr, R, C, B, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    g = tl.program_id(0)
    c = g % C
    rows = tl.arange(0, ROWS)
    place = part_ptr + 2 * (rows * C + c)
    mean = tl.sum(tl.load(place, mask=rows < B, other=0.0), 0) / (B * R)
    square = tl.sum(tl.load(place + 1, mask=rows < B, other=0.0), 0) / (B * R)
    scale = tl.rsqrt(square - mean * mean + eps) * tl.load(w_ptr + c)
    b = tl.load(b_ptr + c)
    for start in range(0, R, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + g * R + cols, mask=cols < R, other=0.0)
        tl.store(out_ptr + g * R + cols, (v - mean) * scale + b, mask=cols < R)"""


def _batch_norm(rng: Draw) -> _Written:
    shape = _image(rng, (3, 4, 4, 5))
    attribute = rng.pick("bn", "norm", "batch_norm")
    given = rng.pick("num_features=num_features", "num_features")
    argument = Argument("num_features", shape.names[1], "int", "Number of channels.")
    layer = f"nn.BatchNorm{shape.rank - 2}d({given})"
    module = _layer("Batch Normalization", rng, shape, attribute, layer, (argument,))
    bn = f"self.{attribute}"
    host = [
        "x = x.contiguous()",
        "out = torch.empty_like(x)",
        "B, C = x.shape[0], x.shape[1]",
        "R = x.numel() // (B * C)",
    ]
    host += ["part = torch.empty((B, C, 2), device=x.device)", "sums_kernel[(B * C,)](x, part, R, BLOCK=1024)"]
    host += [
        f"norm_kernel[(B * C,)](x, part, {bn}.weight, {bn}.bias, out, R, C, B, {bn}.eps, "
        "ROWS=triton.next_power_of_2(B), BLOCK=1024)",
        "return out",
    ]
    return module, kernel_text([_BATCH_SUMS, _BATCH_NORM], module, host), ()


_LAYERS: dict[str, Callable[[Draw], _Written]] = {
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    "weighted_rms_norm": _weighted_rms_norm,
}
FAMILY = Family("norm_layers", tuple(_LAYERS), draw)
