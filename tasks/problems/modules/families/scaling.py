"""Normalisation along one dimension without parameters: by the L1, L2 or RMS norm, the mean, the largest magnitude."""

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.over_dimension import OverDimension, draw_over_dimension
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.tiles import Along


def _by_sum(value: str, result: str) -> Along:
    once, step = (f"s = tl.sum({value}, 0)",), (f"s += {value}",)
    return Along("0.0", once, (("s", "0.0"),), step, ("s = tl.sum(s, 0)",), result, reduced=False)


def _by_spread(result: str) -> Along:
    once = ("mean = tl.sum(v, 0) / R", "d = tl.where(mask, v - mean, 0.0)", "var = tl.sum(d * d, 0) / R")
    join = ("mean = tl.sum(total, 0) / R", "var = tl.sum(s, 0) / R - mean * mean")
    return Along("0.0", once, (("total", "0.0"), ("s", "0.0")), ("total += v", "s += v * v"), join, result, False)


_BY_MAGNITUDE = Along(
    "0.0",
    ("m = tl.max(tl.abs(v), 0)",),
    (("m", "0.0"),),
    ("m = tl.maximum(m, tl.abs(v))",),
    ("m = tl.max(m, 0)",),
    "v / (m + 1e-6)",
    reduced=False,
)
OPERATORS = (
    OverDimension(
        "l1_norm",
        "an L1 normalization",
        ("x / torch.sum(torch.abs(x), dim={d}, keepdim=True)", "F.normalize(x, p=1, dim={d})"),
        _by_sum("tl.abs(v)", "v / s"),
    ),
    OverDimension(
        "l2_norm",
        "an L2 normalization",
        (
            "x / torch.norm(x, p=2, dim={d}, keepdim=True)",
            "norm = torch.norm(x, p=2, dim={d}, keepdim=True)\nx / norm",
            "x / x.norm(dim={d}, keepdim=True)",
            "F.normalize(x, dim={d})",
            "F.normalize(x, p=2, dim={d})",
        ),
        _by_sum("v * v", "v / tl.sqrt(s)"),
    ),
    OverDimension(
        "rms_norm",
        "an RMS normalization",
        (
            "x / torch.sqrt(torch.mean(x ** 2, dim={d}, keepdim=True) + 1e-5)",
            "x * torch.rsqrt(x.pow(2).mean(dim={d}, keepdim=True) + 1e-5)",
            "rms = torch.sqrt(torch.mean(x ** 2, dim={d}, keepdim=True) + 1e-5)\nx / rms",
            "square = x.pow(2).mean(dim={d}, keepdim=True)\nx * torch.rsqrt(square + 1e-5)",
        ),
        _by_sum("v * v", "v * tl.rsqrt(s / R + 1e-5)"),
    ),
    OverDimension(
        "mean_subtraction",
        "a subtraction of the mean",
        (
            "x - x.mean(dim={d}, keepdim=True)",
            "x - torch.mean(x, dim={d}, keepdim=True)",
            "mean = torch.mean(x, dim={d}, keepdim=True)\nx - mean",
        ),
        _by_sum("v", "v - s / R"),
    ),
    OverDimension(
        "max_scaling",
        "a division by the largest magnitude",
        (
            "x / (torch.amax(torch.abs(x), dim={d}, keepdim=True) + 1e-6)",
            "largest = torch.amax(torch.abs(x), dim={d}, keepdim=True)\nx / (largest + 1e-6)",
        ),
        _BY_MAGNITUDE,
    ),
    OverDimension(
        "standardization",
        "a standardization",
        (
            "(x - x.mean(dim={d}, keepdim=True)) / torch.sqrt(x.var(dim={d}, keepdim=True, unbiased=False) + 1e-5)",
            "(x - x.mean(dim={d}, keepdim=True)) * torch.rsqrt(x.var(dim={d}, keepdim=True, unbiased=False) + 1e-5)",
            "mean = x.mean(dim={d}, keepdim=True)\n"
            "var = x.var(dim={d}, keepdim=True, unbiased=False)\n"
            "(x - mean) / torch.sqrt(var + 1e-5)",
        ),
        _by_spread("(v - mean) * tl.rsqrt(var + 1e-5)"),
    ),
)


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one of them."""
    return draw_over_dimension(rng, FAMILY.name, rng.choice(rng.unless(OPERATORS, unseen, lambda item: item.name)))


FAMILY = Family("scaling", tuple(operator.name for operator in OPERATORS), draw)
