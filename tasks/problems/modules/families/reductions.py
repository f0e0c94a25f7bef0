"""Reductions over one dimension or over the whole tensor, and positions of extremes.

Whole tensors in two launches: a partial result of each block, then the result of these.
"""

from dataclasses import dataclass

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.over_dimension import OverDimension, draw_over_dimension
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import Input, Module, kernel_text, problem_text
from tasks.problems.modules.tiles import Along

_LOW, _HIGH = '-float("inf")', 'float("inf")'


@dataclass(frozen=True)
class Reduction(OverDimension):
    """A reduction over a dimension, and perhaps over the whole tensor."""

    whole: tuple[str, ...] = ()
    """Forms over the whole tensor."""
    total: str = ""
    """The result over the whole tensor, of `acc` and the number of elements `n`."""


def _sum(value: str, end: str) -> Along:
    once, step = (f"acc = tl.sum({value}, 0)",), (f"acc += {value}",)
    return Along("0.0", once, (("acc", "0.0"),), step, ("acc = tl.sum(acc, 0)",), end)


def _extreme(which: str, pad: str) -> Along:
    step = (f"acc = tl.{which}imum(acc, v)",)
    return Along(pad, (f"acc = tl.{which}(v, 0)",), (("acc", pad),), step, (f"acc = tl.{which}(acc, 0)",), "acc")


def _arg(which: str, pad: str, sign: str) -> Along:
    step = (f"better = v {sign} best", "index = tl.where(better, {place}, index)", "best = tl.where(better, v, best)")
    join = (f"top = tl.{which}(best, 0)", "index = tl.min(tl.where(best == top, index, R), 0)")
    return Along(pad, (f"index = tl.arg{which}(v, 0)",), (("best", pad), ("index", "0")), step, join, "index")


def _spread(end: str) -> Along:
    once = (
        "mean = tl.sum(v, 0) / R",
        "d = tl.where(mask, v - mean, 0.0)",
        "acc = tl.sum(d * d, 0)",
    )
    join = ("total = tl.sum(total, 0)", "acc = tl.sum(acc, 0) - total * total / R")
    return Along("0.0", once, (("total", "0.0"), ("acc", "0.0")), ("total += v", "acc += v * v"), join, end)


_PRODUCT = "def multiply(a, b):\n    return a * b"
_PROD = Along(
    "1.0",
    ("acc = tl.reduce(v, 0, multiply)",),
    (("acc", "1.0"),),
    ("acc = acc * v",),
    ("acc = tl.reduce(acc, 0, multiply)",),
    "acc",
    helper=_PRODUCT,
)
REDUCTIONS = (
    Reduction(
        "sum",
        "a sum reduction",
        ("torch.sum(x, dim={d}{k})", "x.sum(dim={d}{k})"),
        _sum("v", "acc"),
        whole=("torch.sum(x)", "x.sum()"),
        total="acc",
    ),
    Reduction(
        "mean",
        "a mean reduction",
        ("torch.mean(x, dim={d}{k})", "x.mean(dim={d}{k})"),
        _sum("v", "acc / R"),
        whole=("torch.mean(x)", "x.mean()"),
        total="acc / n",
    ),
    Reduction(
        "max",
        "a maximum reduction",
        ("torch.max(x, dim={d}{k})[0]", "torch.amax(x, dim={d}{k})", "torch.max(x, dim={d}{k}).values"),
        _extreme("max", _LOW),
        whole=("torch.max(x)", "x.max()"),
        total="acc",
    ),
    Reduction(
        "min_reduction",
        "a minimum reduction",
        ("torch.min(x, dim={d}{k})[0]", "torch.amin(x, dim={d}{k})", "torch.min(x, dim={d}{k}).values"),
        _extreme("min", _HIGH),
        whole=("torch.min(x)", "x.min()"),
        total="acc",
    ),
    Reduction(
        "prod",
        "a product reduction",
        ("torch.prod(x, dim={d}{k})", "x.prod(dim={d}{k})"),
        _PROD,
        made="torch.rand({}) + 0.5",
        largest=300,
    ),
    Reduction(
        "var",
        "the variance",
        ("torch.var(x, dim={d}{k})", "x.var(dim={d}{k})"),
        _spread("acc / (R - 1)"),
    ),
    Reduction(
        "std",
        "the standard deviation",
        ("torch.std(x, dim={d}{k})", "x.std(dim={d}{k})"),
        _spread("tl.sqrt(acc / (R - 1))"),
    ),
    Reduction(
        "biased_var",
        "the biased variance",
        ("torch.var(x, dim={d}, unbiased=False{k})", "x.var(dim={d}, unbiased=False{k})"),
        _spread("acc / R"),
    ),
    Reduction(
        "norm",
        "the Euclidean norm",
        ("torch.norm(x, p=2, dim={d}{k})", "torch.linalg.vector_norm(x, dim={d}{k})", "x.norm(dim={d}{k})"),
        _sum("v * v", "tl.sqrt(acc)"),
        whole=("torch.norm(x)", "x.norm()"),
        total="tl.sqrt(acc)",
    ),
    Reduction(
        "sum_of_squares",
        "a sum of squares",
        ("torch.sum(x ** 2, dim={d}{k})", "(x * x).sum(dim={d}{k})"),
        _sum("v * v", "acc"),
        whole=("torch.sum(x ** 2)", "(x * x).sum()"),
        total="acc",
    ),
    Reduction(
        "mean_of_squares",
        "a mean of squares",
        ("torch.mean(x ** 2, dim={d}{k})", "x.pow(2).mean(dim={d}{k})"),
        _sum("v * v", "acc / R"),
        whole=("torch.mean(x ** 2)", "x.pow(2).mean()"),
        total="acc / n",
    ),
    Reduction(
        "sum_of_magnitudes",
        "a sum of absolute values",
        ("torch.sum(torch.abs(x), dim={d}{k})", "x.abs().sum(dim={d}{k})"),
        _sum("tl.abs(v)", "acc"),
        whole=("torch.sum(torch.abs(x))",),
        total="acc",
    ),
    Reduction(
        "argmax",
        "the index of the maximum value",
        ("torch.argmax(x, dim={d}{k})", "x.argmax(dim={d}{k})"),
        _arg("max", _LOW, ">"),
        integer=True,
    ),
    Reduction(
        "argmin",
        "the index of the minimum value",
        ("torch.argmin(x, dim={d}{k})", "x.argmin(dim={d}{k})"),
        _arg("min", _HIGH, "<"),
        integer=True,
    ),
)


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a reduction over a dimension; one in eight is over the whole tensor."""
    reduction = rng.choice(rng.unless(REDUCTIONS, unseen, lambda item: item.name))
    if reduction.whole and rng.chance(0.15):
        return _whole(rng, reduction)
    return draw_over_dimension(rng, FAMILY.name, reduction)


def _whole(rng: Draw, reduction: Reduction) -> ModulePair:
    shape = rng.shape()
    module = Module(
        title=f"{reduction.title} over all elements",
        inputs=(Input("x", shape.made(rng.tensor())),),
        forward=(f"return {rng.choice(reduction.whole)}",),
        constants=shape.constants,
    )
    return ModulePair(
        family=FAMILY.name,
        operator=reduction.name,
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=_two_launches(module, reduction),
        style="fast",
    )


def _two_launches(module: Module, reduction: Reduction) -> str:
    along = reduction.along
    value = along.once[0].removeprefix("acc = ")
    joined = along.join[0].replace("acc = ", "").replace("(acc,", "(v,")
    partial = (
        "def partial_kernel(x_ptr, part_ptr, n, BLOCK: tl.constexpr):\n"
        "    pid = tl.program_id(0)\n"
        "    offsets = pid * BLOCK + tl.arange(0, BLOCK)\n"
        f"    v = tl.load(x_ptr + offsets, mask=offsets < n, other={along.pad})\n"
        f"    tl.store(part_ptr + pid, {value})"
    )
    final = (
        "def final_kernel(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):\n"
        "    offsets = tl.arange(0, BLOCK)\n"
        f"    v = tl.load(part_ptr + offsets, mask=offsets < parts, other={along.pad})\n"
        f"    acc = {joined}\n"
        f"    tl.store(out_ptr, {reduction.total})"
    )
    host = ["x = x.contiguous()", "n = x.numel()", "parts = triton.cdiv(n, 4096)"]
    host += ["part = torch.empty(parts, device=x.device)", "out = torch.empty((), device=x.device)"]
    host += ["partial_kernel[(parts,)](x, part, n, BLOCK=4096)"]
    host += ["final_kernel[(1,)](part, out, parts, n, BLOCK=triton.next_power_of_2(parts))", "return out"]
    return kernel_text([partial, final], module, host)


FAMILY = Family("reductions", tuple(reduction.name for reduction in REDUCTIONS), draw)
