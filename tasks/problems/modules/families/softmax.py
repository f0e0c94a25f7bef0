"""Softmax and its relatives over any dimension."""

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.over_dimension import OverDimension, draw_over_dimension
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.tiles import Along

# A finite first maximum: with -inf, lanes that saw no element would give nan.
_START = (("m", "-1e30"), ("s", "0.0"))
_STEP = ("top = tl.maximum(m, v)", "s = s * tl.exp(m - top) + tl.exp(v - top)", "m = top")
_JOIN = ("top = tl.max(m, 0)", "s = tl.sum(s * tl.exp(m - top), 0)", "m = top")
_ONCE = ("m = tl.max(v, 0)", "s = tl.sum(tl.exp(v - m), 0)")


def _of(result: str, reduced: bool = False) -> Along:
    return Along('-float("inf")', _ONCE, _START, _STEP, _JOIN, result, reduced)


_LOW = (("m", "1e30"), ("s", "0.0"))
_SOFTMIN = Along(
    'float("inf")',
    ("m = tl.min(v, 0)", "s = tl.sum(tl.exp(m - v), 0)"),
    _LOW,
    ("low = tl.minimum(m, v)", "s = s * tl.exp(low - m) + tl.exp(low - v)", "m = low"),
    ("low = tl.min(m, 0)", "s = tl.sum(s * tl.exp(low - m), 0)", "m = low"),
    "tl.exp(m - v) / s",
    reduced=False,
)
OPERATORS = (
    OverDimension(
        "softmax",
        "a softmax",
        ("torch.softmax(x, dim={d})", "F.softmax(x, dim={d})", "x.softmax(dim={d})"),
        _of("tl.exp(v - m) / s"),
        layer="nn.Softmax(dim={d})",
    ),
    OverDimension(
        "log_softmax",
        "a log-softmax",
        ("torch.log_softmax(x, dim={d})", "F.log_softmax(x, dim={d})"),
        _of("v - m - tl.log(s)"),
        layer="nn.LogSoftmax(dim={d})",
    ),
    OverDimension(
        "logsumexp", "a log-sum-exp", ("torch.logsumexp(x, dim={d}{k})",), _of("m + tl.log(s)", reduced=True)
    ),
    OverDimension("softmin", "a softmin", ("F.softmin(x, dim={d})", "torch.softmax(-x, dim={d})"), _SOFTMIN),
)


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one of them."""
    return draw_over_dimension(rng, FAMILY.name, rng.choice(rng.unless(OPERATORS, unseen, lambda item: item.name)))


FAMILY = Family("softmax", tuple(operator.name for operator in OPERATORS), draw)
