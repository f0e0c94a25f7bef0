"""Differences that a fingerprint forgets, and those that it must not forget."""

import ast
import keyword

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.problems.contamination import fingerprint_of

BLOCK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, channels, scale=2.0):
        super().__init__()
        self.projection = nn.Linear(channels, channels * 4, bias=False)
        self.scale = scale

    def forward(self, x):
        hidden = F.gelu(self.projection(x), approximate="tanh")
        return self.mix(hidden) * self.scale

    def mix(self, hidden):
        return torch.softmax(hidden, dim=-1)

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block = Block(channels=channels)

    def forward(self, x):
        for index in range(3):
            x = self.block(x) + index
        return x

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [16]
"""

SAME = [
    ("hidden", "mixed"),
    ("self.projection", "self.linear"),
    ("channels", "width"),
    ("Block", "Layer"),
    ("index", "step"),
    ("mix", "blend"),
    ("scale=2.0", "scale=0.5"),
    ("range(3)", "range(12)"),
    ("dim=-1", "dim=1"),
    ("return [16]", "return [64]"),
    ("torch.randn(8, 16)", "torch.rand(4, 4)"),
    ("class Model(nn.Module):", 'class Model(nn.Module):\n    """Says something."""\n'),
    ("import torch.nn.functional as F", "import torch.nn.functional as F\nimport math\nN = 3"),
    ("def forward(self, x):\n        hidden", "def forward(self, x: torch.Tensor) -> torch.Tensor:\n        hidden"),
    ("hidden = F", "hidden: torch.Tensor = F"),
    ("# nothing", "# a comment"),
]
OTHER = [
    ("torch.softmax", "torch.log_softmax"),
    ('approximate="tanh"', 'approximate="none"'),
    ("bias=False", "bias=True"),
    ("* self.scale", "+ self.scale"),
    ("return self.mix(hidden)", "return hidden"),
    ("nn.Linear", "nn.LazyLinear"),
    ("x = self.block(x)", "x = x + self.block(x)"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_names_numbers_and_layout_do_not_count(old, new):
    changed = BLOCK.replace(old, new)
    ast.parse(changed)
    assert fingerprint_of(changed) == fingerprint_of(BLOCK)


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_what_is_computed_counts(old, new):
    assert old in BLOCK
    assert fingerprint_of(BLOCK.replace(old, new)) != fingerprint_of(BLOCK)


def test_swapped_operands_count():
    one = "class Model:\n    def forward(self, a, b):\n        return a - b\n"
    assert fingerprint_of(one) != fingerprint_of(one.replace("a - b", "b - a"))


@pytest.mark.parametrize("source", ["def", "", "\x00", "class Model:\n    ''", "(" * 500, "x = [1"])
def test_source_that_does_not_parse_has_a_shape_too(source):
    assert isinstance(fingerprint_of(source), str)


names = st.from_regex(r"[a-z_]{2,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in {"self", "torch", "relu", "forward"}
)


@settings(max_examples=100, deadline=None)
@given(st.lists(names, min_size=3, max_size=3, unique=True), st.integers(0, 10**6), st.floats(0, 1e6))
def test_every_renaming_has_one_shape(chosen, whole, real):
    def program(x, y, attribute, a, b):
        return (
            f"class Model:\n    def __init__(self):\n        self.{attribute} = {a}\n"
            f"    def forward(self, {x}):\n        {y} = torch.relu({x}) * {b}\n        return {y} + self.{attribute}\n"
        )

    assert fingerprint_of(program(*chosen, whole, real)) == fingerprint_of(program("x", "y", "scale", 1, 2.0))
