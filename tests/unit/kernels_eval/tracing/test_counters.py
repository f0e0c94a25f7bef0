"""Numbers that host code counts up are found wherever Python keeps them, and nothing else is touched."""

from types import ModuleType
from typing import Any

import pytest

from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.tracing.counters import Counters

CALLS = 8
KEPT = {
    "an attribute": ("self.n = 0", "self.n += 1; return self.n"),
    "a class attribute": ("", "ModelNew.n = getattr(ModelNew, 'n', 0) + 3; return ModelNew.n"),
    "a global": ("", "global n; n += 1; return n"),
    "a dictionary by shape": ("self.d = {}", "self.d[(8, 4)] = self.d.get((8, 4), 0) + 1; return self.d[8, 4]"),
    "a list in a dictionary": ("self.d = {'a': [0, 0]}", "self.d['a'][1] += 1; return self.d['a'][1]"),
    "a closure": ("self.step = closure()", "return self.step()"),
    "the length of a list": ("self.seen = []", "self.seen.append(None); return len(self.seen)"),
    "a list as default": ("", "return by_default()"),
    "a function's attribute": ("", "by_default.n = getattr(by_default, 'n', 0) + 1; return by_default.n"),
    "a number that falls": ("self.left = 9", "self.left -= 1; return -self.left"),
    "uneven steps": ("self.n = 0", "self.n += 1 + self.n % 3; return self.n"),
    "an object of its own": ("self.state = State()", "self.state.n += 1; return self.state.n"),
    "a tensor": ("self.t = torch.zeros(1)", "self.t += 1; return self.t.item()"),
    "a number in a table": ("self.t = torch.zeros(3, 400).t()", "self.t[7, 2] += 2; return self.t[7, 2].item()"),
    "a new tensor in each call": ("self.t = torch.tensor([0])", "self.t = self.t + 1; return self.t.item()"),
    "a tensor in a list": ("self.t = [torch.ones(2)]", "self.t[0].sub_(1); return -self.t[0][1].item()"),
    "an array": ("self.a = np.zeros((2, 2))", "self.a[1, 1] += 1; return self.a[1, 1]"),
    "a number of NumPy": ("self.n = np.int64(0)", "self.n += 1; return self.n"),
    "a module inside": ("self.inner = torch.nn.Module(); self.inner.n = 0", "self.inner.n += 1; return self.inner.n"),
}
SOURCE = """
import numpy as np
import torch

n = 0
constants = [3, 1.5]

class State:
    n = 0

def closure():
    calls = 0
    def step():
        nonlocal calls
        calls += 1
        return calls
    return step

def by_default(seen=[0]):
    seen[0] += 1
    return seen[0]

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-5
        self.width = 64
        self.ring = 0
        {init}

    def forward(self):
        self.ring = (self.ring + 1) % 5
        {body}
"""


def made(init: str, body: str) -> tuple[ModuleType, Any, Counters]:
    module = load_source(SOURCE.format(init=init, body=body))
    model = module.ModelNew()
    return module, model, Counters([module, [model]])


@pytest.mark.parametrize("kept", KEPT)
def test_a_counter_is_advanced_wherever_it_is_kept(kept: str) -> None:
    _, model, counters = made(*KEPT[kept])
    for _ in range(CALLS):
        before = model()
        counters.observe()
    counters.advance(1000)
    assert model() - before >= 1000


def test_constants_and_an_index_into_a_ring_stay_as_they_are() -> None:
    module, model, counters = made("self.n = 0", "self.n += 1")
    for _ in range(3 * CALLS):
        model()
        counters.observe()
    counters.advance(1000)
    assert model.n >= 1000
    assert (model.eps, model.width, module.constants) == (1e-5, 64, [3, 1.5])
    assert 0 <= model.ring < 5


def test_a_number_that_changed_only_a_few_times_is_no_counter() -> None:
    _, model, counters = made("self.n = 0", "self.n = min(self.n + 1, 3)")
    for _ in range(CALLS):
        model()
        counters.observe()
    counters.advance(1000)
    assert model.n == 3


def test_hostile_objects_do_not_raise() -> None:
    source = "import torch\nclass ModelNew(dict):\n    n = 0\n    def __setattr__(self, *_): raise OSError\n"
    source += (
        "    def items(self): raise OSError\n    def __call__(self): type(self).n += 1; vars(self)['m'] = self.n\n"
    )
    module = load_source(source)
    model = module.ModelNew()
    counters = Counters([module, [model]])
    for _ in range(CALLS):
        model()
        counters.observe()
    counters.advance(5)
    assert module.ModelNew.n == CALLS + 5
