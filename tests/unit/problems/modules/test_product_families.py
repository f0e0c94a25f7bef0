"""Families of products, convolutions, poolings, attention and chains: what is drawn, without a judge."""

import ast
import re
from typing import Any

import pytest
import torch

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import (
    attention,
    chains,
    convolutions,
    pooling,
    products,
    transposed_convolutions,
)
from tasks.problems.modules.pair import Family, ModulePair

FAMILIES = (
    products.FAMILY,
    pooling.FAMILY,
    convolutions.FAMILY,
    transposed_convolutions.FAMILY,
    attention.FAMILY,
    chains.FAMILY,
)
COUNT = 40
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def drawn(family: Family, count: int = COUNT, unseen: frozenset[str] = frozenset()) -> list[ModulePair]:
    rng = Draw("test")
    return [family.draw(rng, unseen) for _ in range(count)]


def constructor(source: str, name: str) -> list[tuple[str, str]]:
    """Return names and defaults of a class's constructor."""
    (found,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    inits = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if not inits:
        return []
    arguments = inits[0].args
    defaults = [""] * (len(arguments.args) - len(arguments.defaults)) + [
        ast.unparse(item) for item in arguments.defaults
    ]
    return [(item.arg, default) for item, default in zip(arguments.args, defaults, strict=True)][1:]


@EACH
def test_the_same_seed_gives_the_same_pairs(family: Family) -> None:
    assert drawn(family, 10) == drawn(family, 10)


@EACH
def test_every_operator_named_is_one_of_the_family(family: Family) -> None:
    pairs = drawn(family)
    assert {pair.family for pair in pairs} == {family.name}
    assert {name for pair in pairs for name in pair.operators} <= set(family.operators)


@EACH
def test_texts_are_short_enough_to_learn(family: Family) -> None:
    for pair in drawn(family):
        assert len(pair.kernel_source) <= chains.LONGEST, pair.kernel_source
        assert len(pair.problem_source) <= 2900, pair.problem_source


@EACH
def test_problem_and_kernel_have_the_same_constructor(family: Family) -> None:
    for pair in drawn(family):
        assert constructor(pair.kernel_source, "ModelNew") == constructor(pair.problem_source, "Model"), pair


@EACH
def test_problems_run(family: Family) -> None:
    """On tensors without values: shapes and arguments agree."""
    for pair in drawn(family):
        namespace: dict[str, Any] = {}
        with torch.device("meta"):
            exec(compile(pair.problem_source, "problem", "exec"), namespace)
            result = namespace["Model"](*namespace["get_init_inputs"]())(*namespace["get_inputs"]())
        assert result.numel() > 0, pair.problem_source


@EACH
def test_an_unseen_operator_is_in_no_pair(family: Family) -> None:
    unseen = frozenset({drawn(family, 1)[0].operators[0], "gelu", "softmax", "bias_add"}) & set(family.operators)
    for pair in drawn(family, unseen=unseen):
        assert not unseen & set(pair.operators)


@pytest.mark.parametrize("family", FAMILIES[:5], ids=lambda family: family.name)
def test_every_operator_is_drawn(family: Family) -> None:
    """Families of which each draw has one operator."""
    assert {pair.operator for pair in drawn(family, 250)} == set(family.operators)


def test_the_kernel_of_a_convolution_does_not_depend_on_numbers() -> None:
    """Sizes, stride and padding come from the layer: the text differs with what the layer has, and with the tile."""
    pairs = [pair for pair in drawn(convolutions.FAMILY, 200) if pair.operator == "conv2d"]
    texts = {pair.kernel_source.split("class ModelNew")[0] for pair in pairs}
    assert len({pair.problem_source for pair in pairs}) > 40
    assert len(texts) <= 3 * 2**3  # tiles; bias, groups, dilation


def test_a_reduction_over_channels_is_in_the_kernel_of_the_convolution() -> None:
    kept = re.compile(r"softmax\(x, dim=1\)|logsumexp\(x, dim=1, keepdim=True\)")
    pairs = [pair for pair in drawn(chains.FAMILY, 400) if kept.search(pair.problem_source)]
    fused = [pair for pair in pairs if "conv" in pair.operators[0] and pair.style == "plain"]
    assert fused
    for pair in fused:
        assert pair.kernel_source.count("@triton.jit") == 1


def test_an_optional_argument_that_the_problem_leaves_out_has_its_default_in_the_kernel() -> None:
    pairs = [pair for pair in drawn(convolutions.FAMILY, 120) if "stride=1" in pair.kernel_source]
    left_out = [pair for pair in pairs if "return [in_channels, out_channels, kernel_size]" in pair.problem_source]
    assert left_out
    for pair in left_out:
        assert ("bias", "False") in constructor(pair.kernel_source, "ModelNew")
