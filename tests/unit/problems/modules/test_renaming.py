"""Drawn names of arguments and attributes: the same in problem and kernels, and nowhere else."""

import ast
import re
from contextlib import suppress
from typing import Any

import pytest
import torch

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import chains, long_chains
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.renaming import renamed, with_drawn_names

PROBLEM = '''class Model(nn.Module):
    """A linear layer, a bias addition and scale."""

    def __init__(self, size, bias_shape, scale=2.0):
        """
        Args:
            bias_shape (tuple): Shape of the parameter.
            scale (float): The scale of it.
        """
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.scale = scale

    def forward(self, x):
        return (linear(x, self.linear) + self.bias + self.linear.weight.sum()) * self.scale
'''


def test_names_change_where_they_are_meant_and_nowhere_else():
    new = renamed(PROBLEM, {"bias": "term", "scale": "gain", "self.linear": "stem"})
    assert "def __init__(self, size, term_shape, gain=2.0):" in new
    assert "self.stem = nn.Linear(size, size, bias=False)" in new
    assert "self.term = nn.Parameter(torch.randn(term_shape))" in new
    assert "return (linear(x, self.stem) + self.term + self.stem.weight.sum()) * self.gain" in new
    assert "            gain (float): The scale of it." in new
    assert "A linear layer, a bias addition and scale." in new


def test_pointers_follow_their_parameter():
    assert (
        renamed("x = tl.load(bias_ptr + o) + layer.bias\n", {"bias": "term"})
        == "x = tl.load(term_ptr + o) + layer.bias\n"
    )


def module_of(source: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(source, space)
    return space


@pytest.mark.parametrize("family", [chains.FAMILY, long_chains.FAMILY], ids=lambda family: family.name)
def test_a_renamed_problem_computes_the_same(family: Family) -> None:
    rng, compared = Draw("renamed"), 0
    while compared < 12:
        pair = family.draw(rng, frozenset())
        new = with_drawn_names(rng, pair)
        if new == pair:
            continue
        results = []
        for source in (pair.problem_source, new.problem_source):
            torch.manual_seed(0)
            space = module_of(re.sub(r"(?m)^(batch_size|height|width|depth) = \d+", r"\1 = 4", source))
            model = space["Model"](*space["get_init_inputs"]())
            with suppress(RuntimeError, ValueError):  # too small for the layer
                results.append(model(*space["get_inputs"]()))
        assert len(results) != 1
        if results:
            assert torch.equal(*results)
            compared += 1


def own_attributes(source: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def test_kernels_have_the_problems_names():
    rng, changed = Draw("kernels"), 0
    for _ in range(200):
        pair = long_chains.draw(rng, frozenset())
        new = with_drawn_names(rng, pair)
        ast.parse(new.kernel_source)
        before, after = own_attributes(pair.kernel_source), own_attributes(new.kernel_source)
        assert len(before) == len(after)
        shared = len(before & own_attributes(pair.problem_source))
        assert len(after & own_attributes(new.problem_source)) == shared
        changed += new != pair
    assert 80 < changed < 120


def test_one_name_stands_for_a_number_here_and_for_a_parameter_there():
    kinds: dict[str, set[bool]] = {}
    rng = Draw("kinds")
    for _ in range(2000):
        pair: ModulePair = with_drawn_names(rng, chains.draw(rng, frozenset()))
        for name, value in re.findall(r"(?m)^        self\.(\w+) = (.*)$", pair.problem_source):
            if value == name or value.startswith("nn.Parameter"):
                kinds.setdefault(name, set()).add(value == name)
        if sum(len(found) == 2 for found in kinds.values()) > 20:
            return
    pytest.fail(f"of 2,000 pairs only {[name for name, found in kinds.items() if len(found) == 2]} stand for both")
