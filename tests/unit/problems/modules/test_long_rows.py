"""Rows and groups too long for one block, and settings of convolutions with a default for each dimension."""

import ast
import math
from typing import Any

import pytest
import torch

from tasks.problems.modules.draw import MOST_ELEMENTS, Draw
from tasks.problems.modules.families import convolutions, norm_layers, reductions, scaling, scans, softmax
from tasks.problems.modules.families import transposed_convolutions as transposed
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.tiles import draw_dimension

LONG = 65536


def drawn(family: Family, count: int) -> list[ModulePair]:
    rng = Draw("long rows")
    return [family.draw(rng, frozenset()) for _ in range(count)]


def inputs_of(source: str) -> tuple[list[Any], list[torch.Tensor]]:
    """Return the values of a problem's constructor and its inputs, after a run on tensors without values."""
    names: dict[str, Any] = {}
    with torch.device("meta"):
        exec(source, names)
        given, inputs = names["get_init_inputs"](), names["get_inputs"]()
        names["Model"](*given)(*inputs)
    return given, inputs


def defaults_of(source: str) -> dict[str, str]:
    constructor = next(node for node in ast.walk(ast.parse(source)) if getattr(node, "name", "") == "__init__")
    assert isinstance(constructor, ast.FunctionDef)
    arguments = constructor.args
    count = len(arguments.defaults)
    return (
        {item.arg: ast.unparse(value) for item, value in zip(arguments.args[-count:], arguments.defaults, strict=True)}
        if count
        else {}
    )


def test_about_one_in_eight_last_dimensions_is_a_long_row():
    rng = Draw("sizes")
    dimensions = [dimension for dimension in (draw_dimension(rng) for _ in range(1500)) if dimension.is_last]
    long = [dimension for dimension in dimensions if dimension.size >= LONG]
    assert 0.08 < len(long) / len(dimensions) < 0.16
    assert max(dimension.shape.elements for dimension in long) <= MOST_ELEMENTS
    assert all(not dimension.fast().fits for dimension in long)


def test_no_row_is_longer_than_what_its_operator_takes():
    rng = Draw("sizes")
    assert max(draw_dimension(rng, 300).size for _ in range(500)) <= 300


@pytest.mark.parametrize(
    "family", [softmax.FAMILY, scaling.FAMILY, reductions.FAMILY, scans.FAMILY], ids=lambda family: family.name
)
def test_long_rows_are_read_in_a_loop(family: Family):
    found = 0
    for pair in drawn(family, 120):
        _, inputs = inputs_of(pair.problem_source)
        if inputs[0].dim() == 2 and inputs[0].shape[-1] >= LONG:
            found += 1
            assert "for start in range(0, R, BLOCK)" in pair.kernel_source
            assert "next_power_of_2" not in pair.kernel_source
    assert found


def test_large_groups_of_a_layer_norm_are_read_in_a_loop():
    sizes = []
    for pair in drawn(norm_layers.FAMILY, 200):
        (shape, *_), (x, *_) = inputs_of(pair.problem_source)
        if pair.operator == "layer_norm" and isinstance(shape, tuple) and math.prod(shape) > 2**17:
            sizes.append(math.prod(shape))
            assert x.numel() <= MOST_ELEMENTS
            assert "for start in range(0, R, BLOCK)" in pair.kernel_source
    assert max(sizes) > 2**20


@pytest.mark.parametrize("family", [convolutions.FAMILY, transposed.FAMILY], ids=lambda family: family.name)
def test_settings_of_a_convolution_may_have_a_default_for_each_dimension(family: Family):
    shares, typed, passed = [], set(), set()
    for pair in drawn(family, 400):
        defaults = defaults_of(pair.problem_source)
        assert defaults_of(pair.kernel_source) == defaults
        settings = {name: value for name, value in defaults.items() if name not in ("groups", "bias")}
        if not settings or "1d" in pair.operator:
            continue
        tuples = {name for name, value in settings.items() if value.startswith("(")}
        assert tuples in (set(), set(settings))
        shares.append(bool(tuples))
        if tuples:
            given, _ = inputs_of(pair.problem_source)
            typed.add("stride: tuple = (1, 1" in pair.problem_source)
            passed.add(any(isinstance(value, tuple) for value in given[3:]))
            assert "stride (int" not in pair.problem_source
    assert 0.2 < sum(shares) / len(shares) < 0.5
    assert typed == passed == {True, False}
