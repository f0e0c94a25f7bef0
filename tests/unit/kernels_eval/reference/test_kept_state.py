"""A reference that answers the same input differently from call to call is refused, wherever it keeps what decides."""

import pytest

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.reference.reference import Reference

HEADER = "import collections\nimport numpy\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
CELL = (
    "class Cell(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.register_buffer('mean', torch.zeros(8))\n"
    "    def forward(self, x):\n        self.mean.mul_(0.9).add_(0.1 * x.mean(0))\n        return x - self.mean\n"
)
OBJECT = "class Count:\n    def __init__(self):\n        self.n = 0\n"
NORM = "class Norm(nn.BatchNorm1d):\n    def forward(self, x):\n        return super().forward(x) + self.running_mean\n"
BUFFER = "self.register_buffer('seen', torch.zeros(2, 8))"
PARAMETER = "self.weight = nn.Parameter(torch.ones(2, 8))"
NUMBER = "self.register_buffer('n', torch.zeros((), dtype=torch.long))"
KEEPING = {
    "a buffer in place": (BUFFER, "self.seen += x.mean(0); return x - self.seen[0]", "seen changes"),
    "a part of a buffer": (BUFFER, "self.seen[1] = self.seen[1] + 1; return x - self.seen[1]", "seen changes"),
    "data of a buffer": (BUFFER, "self.seen.data[0].add_(1.0); return x - self.seen[0]", "seen changes"),
    "a buffer assigned": (BUFFER, "self.seen = self.seen + 1; return x - self.seen[0]", "seen changes"),
    "a buffer as output": (BUFFER, "torch.add(self.seen, 1, out=self.seen); return x - self.seen[0]", "seen changes"),
    "the last input": (BUFFER, "y = x - self.seen[0]; self.seen[0].copy_(x[0]); return y", "seen changes"),
    "a cache by position": (
        f"{BUFFER}; {NUMBER}",
        "self.seen.index_copy_(0, self.n[None] % 2, x[:1]); self.n.add_(1); return x - self.seen.sum(0)",
        "n, seen change in",
    ),
    "a counter": (NUMBER, "self.n += 1; return x * self.n", "n changes"),
    "a number": ("self.n = 0", "self.n += 1; return x * (2 if self.n > 2 else 1)", "n changes"),
    "modules in a list of modules": (
        "self.cells = nn.ModuleList([Cell(), Cell()])",
        "return self.cells[1](self.cells[0](x))",
        "cells.0.mean, cells.1.mean change",
    ),
    "modules in a plain list": ("self.cells = [Cell()]", "return self.cells[0](x)", "cells.mean changes"),
    "a list that grows": ("self.cache = []", "self.cache.append(x); return sum(self.cache)", "cache changes"),
    "tensors in a list": ("self.h = [torch.zeros(8)]", "self.h[0] += x[0]; return x + self.h[0]", "h changes"),
    "a dictionary": ("self.h = {}", "self.h['h'] = self.h.get('h', 0) + x; return self.h['h'] * 1", "h changes"),
    "a queue": ("self.h = collections.deque(maxlen=2)", "self.h.append(x); return sum(self.h)", "h changes"),
    "a set": ("self.h = set()", "self.h.add(len(self.h)); return x * len(self.h)", "h changes"),
    "an object": ("self.count = Count()", "self.count.n += 1; return x * self.count.n", "count.n changes"),
    "a class": ("Model.n = 0", "Model.n += 1; return x * Model.n", "Model.n changes"),
    "a global variable": ("pass", "global N; N += 1; return x * N", "N changes"),
    "a global list": ("pass", "CALLS.append(1); return x * len(CALLS)", "CALLS changes"),
    "data of a parameter": (PARAMETER, "self.weight.data[0].mul_(0.5); return x * self.weight[0]", "weight changes"),
    "a parameter": (PARAMETER, "self.weight.mul_(0.5); return x * self.weight[0]", "weight changes"),
    "spectral norm": ("self.net = nn.utils.spectral_norm(nn.Linear(8, 8))", "return self.net(x)", r"net\.weight_u"),
    "a running mean that is read": (
        "self.norm = nn.BatchNorm1d(8)",
        "return self.norm(x) + self.norm.running_mean",
        "norm.running_mean",
    ),
    "a normalisation of its own": ("self.norm = Norm(8)", "return self.norm(x)", "norm.running_mean"),
    "a function's running mean": (
        BUFFER,
        "F.batch_norm(x, self.seen[0], self.seen[1] + 1, training=True); return x + self.seen[0]",
        "seen changes",
    ),
    "after reading a value": (BUFFER, "self.seen += float(x[0, 0]) != 7; return x * self.seen[0]", "seen changes"),
    "an iterator": ("self.numbers = iter(range(1, 99))", "return x * next(self.numbers)", "differ between two runs"),
    "an array": ("self.n = numpy.zeros(1)", "self.n += 1; return x * float(self.n[0])", "differ between two runs"),
}
KEPT = {
    "batch norm": ("self.norm = nn.BatchNorm1d(8)", "return self.norm(x)"),
    "batch norm with a cumulative mean": ("self.norm = nn.BatchNorm1d(8, momentum=None)", "return self.norm(x)"),
    "batch norm in evaluation": ("self.norm = nn.BatchNorm1d(8).eval()", "return self.norm(x)"),
    "instance norm": (
        "self.norm = nn.InstanceNorm1d(8, track_running_stats=True)",
        "return self.norm(x[:, :, None] * torch.arange(3.0))",
    ),
    "a function's statistics": (BUFFER, "return F.batch_norm(x, self.seen[0], self.seen[1] + 1, training=True)"),
    "a counter that nobody reads": (NUMBER, "self.n += 1; return x * 2"),
    "scratch memory": (BUFFER, "self.seen.copy_(x[:2] * 2); return x + self.seen[1]"),
    "a weight that is clamped": (PARAMETER, "self.weight.data.clamp_(max=0.5); return x * self.weight[0]"),
    "a table made once": ("self.table = {}", "return x + self.table.setdefault(x.shape[1], torch.arange(8.0))"),
    "a constant made once": (
        "self.t = None",
        "self.t = torch.ones(8) if self.t is None else self.t; return x + self.t",
    ),
}


def problem(init: str, forward: str) -> str:
    """Return a problem from the statements of its constructor and of `forward`, separated by semicolons."""
    made, run = ("".join(f"        {line}\n" for line in text.split("; ")) for text in (init, forward))
    return (
        f"{HEADER}N = 0\nCALLS = []\n{CELL}{OBJECT}{NORM}class Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{made}    def forward(self, x):\n{run}"
        "def get_inputs():\n    return [torch.randn(16, 8)]\ndef get_init_inputs():\n    return []\n"
    )


@pytest.mark.parametrize("way", KEEPING)
def test_a_reference_whose_state_decides_is_refused_by_name(way: str) -> None:
    init, forward, named = KEEPING[way]
    with pytest.raises(ReferenceFailedError, match=named):
        Reference(problem(init, forward), 0)


@pytest.mark.parametrize("way", KEPT)
def test_a_reference_that_answers_alike_in_each_call_is_judged(way: str) -> None:
    Reference(problem(*KEPT[way]), 0)


def test_of_plain_tensors_those_that_the_constructor_draws_are_told_from_constants() -> None:
    reference = Reference(problem("self.h = torch.randn(8); self.one = torch.ones(8)", "return x + self.h"), 0)
    assert reference.constructor.drawn(["h", "one", "none"]) == ["h"]
