"""Numbers that host code counts up are found wherever Python keeps them, and nothing else is touched."""

from types import ModuleType
from typing import Any

import pytest

from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.tracing.counters import Counters
from kernels_eval.tracing.kept_values import kept_values

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
    "a tuple made anew": ("self.t = (0, ('a', 0))", "self.t = 0, ('a', self.t[1][1] + 1); return self.t[1][1]"),
    "a list made anew": ("self.t = [0]", "self.t = [self.t[0] + 1]; return self.t[0]"),
    "a named tuple": ("self.t = Pair(0, 1)", "self.t = self.t._replace(first=self.t.first + 1); return self.t.first"),
    "a slot": ("self.s = Slotted()", "self.s.n += 1; return self.s.n"),
    "a namespace": ("self.s = types.SimpleNamespace(n=0)", "self.s.n += 1; return self.s.n"),
    "a value of this thread": ("self.s = threading.local(); self.s.n = 0", "self.s.n += 1; return self.s.n"),
    "a value of a context": (
        "self.s = ContextVar('n', default=0)",
        "self.s.set(self.s.get() + 1); return self.s.get()",
    ),
    "a function's default": ("", "counted.__defaults__ = (counted() + 1,); return counted()"),
    "arguments of a partial function": (
        "self.p = partial(dict, n=0)",
        "self.p.keywords['n'] += 1; return self.p()['n']",
    ),
    "a class that names another module": ("self.s = Elsewhere()", "self.s.n += 1; return self.s.n"),
    "a subclass of a number": ("self.n = Whole(0)", "self.n = Whole(self.n + 1); return self.n"),
    "a fraction": ("self.n = Fraction(0)", "self.n += 1; return self.n"),
    "an array of Python's": ("self.a = array('i', [0, 0])", "self.a[1] += 1; return self.a[1]"),
    "digits": ("self.n = '0'", "self.n = str(int(self.n) + 1); return int(self.n)"),
    "the length of a text": ("self.n = ''", "self.n += 'x'; return len(self.n)"),
    "the length of bytes": ("self.n = bytearray()", "self.n += b'x'; return len(self.n)"),
    "the size of a set": ("self.n = set()", "self.n.add(len(self.n)); return len(self.n)"),
    "the size of a dictionary": ("self.n = {}", "self.n[len(self.n)] = 0; return len(self.n)"),
    "the length of a queue": ("self.n = deque()", "self.n.append(0); return len(self.n)"),
    "a generator": ("self.g = generated()", "return next(self.g)"),
    "a generator in a closure": ("self.g = drawing(generated())", "return self.g()"),
    "an endless count": ("self.g = itertools.count()", "return next(self.g)"),
    "a bound method of a count": ("self.g = itertools.count().__next__", "return self.g()"),
    "an iterator over a range": ("self.g = iter(range(10**6))", "return next(self.g)"),
    "a list on a tensor": ("self.t = torch.ones(2); self.t.n = [0]", "self.t.n[0] += 1; return self.t.n[0]"),
    "the length of a list on a tensor": (
        "self.t = torch.ones(2); self.t.n = []",
        "self.t.n.append(0); return len(self.t.n)",
    ),
    "a module inside": ("self.inner = torch.nn.Module(); self.inner.n = 0", "self.inner.n += 1; return self.inner.n"),
}
SOURCE = """
import itertools
import threading
import types
from array import array
from collections import deque, namedtuple
from contextvars import ContextVar
from fractions import Fraction
from functools import partial

import numpy as np
import torch

n = 0
constants = [3, 1.5]

class Slotted:
    __slots__ = ("n",)
    def __init__(self):
        self.n = 0

class Elsewhere:
    __module__ = "os"
    n = 0

class Whole(int):
    pass

Pair = namedtuple("Pair", "first second")

def counted(n=0):
    return n

def generated():
    n = 0
    while True:
        yield (n := n + 1)

def drawing(items):
    return lambda: next(items)

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


def test_the_search_does_not_go_through_functions_to_what_other_modules_have() -> None:
    module, model, _ = made("", "return closure()")
    modules = [kept.value for kept in kept_values([module, [model]]) if "__loader__" in _names_of(kept.value)]
    assert modules == []


def _names_of(value: Any) -> set[Any]:
    return set(value) if type(value) is dict else set()


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
