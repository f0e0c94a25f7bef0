"""Formulas say the same in both languages; chains and reductions have them, unless they are left out."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from tasks.problems.modules.corpus import draw_pairs
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.expressions import draw_formula
from tasks.problems.modules.families import formulas

TRITON = SimpleNamespace(
    abs=torch.abs,
    cos=torch.cos,
    erf=torch.erf,
    exp=torch.exp,
    log=torch.log,
    maximum=lambda x, y: torch.maximum(x, torch.as_tensor(y, dtype=x.dtype)),
    minimum=lambda x, y: torch.minimum(x, torch.as_tensor(y, dtype=x.dtype)),
    rsqrt=torch.rsqrt,
    sigmoid=torch.sigmoid,
    sin=torch.sin,
    sqrt=torch.sqrt,
    where=torch.where,
)
"""Triton's functions, by PyTorch's in float64."""


def computed(statements, x):
    space = {"torch": torch, "F": F, "tl": TRITON, "x": x}
    exec("\n".join(statements), space)
    return space["x"]


def test_both_languages_compute_the_same():
    rng, x = Draw("same"), torch.linspace(-6, 6, 241, dtype=torch.float64)
    for _ in range(400):
        formula = draw_formula(rng)
        torch.testing.assert_close(computed(formula.triton, x), computed(formula.torch, x), msg=str(formula))


def test_formulas_vary_and_are_finite():
    rng, x = Draw("vary"), torch.linspace(-20, 20, 101, dtype=torch.float64)
    drawn = [draw_formula(rng) for _ in range(400)]
    assert len({formula.torch for formula in drawn}) > 350
    assert all(torch.isfinite(computed(formula.torch, x)).all() for formula in drawn)
    assert not any("/ (1 + torch.abs" in line for formula in drawn for line in formula.torch)  # softsign has a name
    assert 0.25 < sum(len(formula.torch) == 2 for formula in drawn) / 400 < 0.55


@pytest.mark.parametrize("unseen", [frozenset(), frozenset({"sum", "mean", "max"})])
def test_some_formulas_are_reduced_unless_no_reduction_is_left(unseen):
    rng = Draw("reduced")
    pairs = [formulas.FAMILY.draw(rng, unseen) for _ in range(100)]
    reduced = [pair for pair in pairs if pair.operators[-1] != "formula"]
    assert bool(reduced) is not bool(unseen)
    assert all(pair.operators[0] == "formula" and "tl.where(mask, " in pair.kernel_source for pair in reduced)


def test_a_formula_that_is_left_out_is_in_no_pair():
    pairs = list(draw_pairs(600, 3, frozenset({"formula"}), long_chains=0.3))
    assert not any("formula" in pair.operators for pair in pairs)
    others = list(draw_pairs(600, 3, long_chains=0.3))
    of_chains = [pair for pair in others if pair.family in ("chains", "long_chains")]
    assert sum("formula" in pair.operators for pair in of_chains) > len(of_chains) / 10
