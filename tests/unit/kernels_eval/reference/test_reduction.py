"""Inputs at other leading sizes: if there are any, how rows follow, and that `get_inputs` decides what does not."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.reduction import Reduction
from kernels_eval.sandbox.tensor_bytes import form_of


def reduction(forward: str, inputs: str) -> Reduction:
    code = ProblemCode(
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n"
        f"    def forward(self, x, y=None, *rest):\n        return {forward}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n"
    )
    return Reduction(code, code.model(0))


def shapes(values: list[Any]) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]


@settings(max_examples=25)
@given(rows=st.integers(100, 5000), columns=st.integers(1, 9), size=st.integers(1, 90))
def test_rows_follow_the_size_and_nothing_else_does(rows: int, columns: int, size: int) -> None:
    found = reduction("x * y + 1", f"[torch.randn({rows}, {columns}), torch.randn({columns})]")
    assert (found.is_possible, found.full_size) == (True, rows)
    assert shapes(found.inputs(size)) == [(size, columns), (columns,)]
    assert shapes(found.inputs(None)) == [(rows, columns), (columns,)]


@settings(max_examples=25)
@given(size=st.integers(1, 60))
def test_forms_are_those_of_the_inputs_that_are_drawn(size: int) -> None:
    """They are derived from the forms at the full size, without a run of `get_inputs` where rows alone follow."""
    for inputs in (
        "[torch.rand(1000, 4), torch.randn(1000, 1), 0.5]",
        "[torch.zeros(1000, 3, dtype=torch.int64), torch.rand(7)]",
    ):
        found = reduction("x * 2.0", inputs)
        drawn = found.inputs(size)
        assert found.forms(size) == [form_of(value) if isinstance(value, torch.Tensor) else value for value in drawn]
        assert found.forms(None) == found.full_forms


@pytest.mark.parametrize(
    ("forward", "inputs", "is_possible"),
    [
        ("x.relu()", "[torch.randn(1000, 4)]", True),
        ("x.sum(0)", "[torch.randn(1000, 4)]", True),  # an output that does not follow may stay as it is
        ("x @ x.T", "[torch.randn(1000, 4)]", True),
        ("torch.cat([x, x[:1]])", "[torch.randn(1000, 4)]", False),  # a row more, at any size
        ("x[:500]", "[torch.randn(1000, 4)]", False),
        ("x.reshape(10, 100, 4)", "[torch.randn(1000, 4)]", False),
        ("x + 1", "[torch.randn(())]", False),
        ("x", "[3]", False),
    ],
)
def test_the_outputs_say_if_a_problem_can_be_reduced(forward: str, inputs: str, is_possible: bool) -> None:
    assert reduction(forward, inputs).is_possible == is_possible


def test_indices_that_follow_the_size_stay_within_it() -> None:
    found = reduction("x[y]", "[torch.randn(1000, 4), torch.randint(0, 1000, (1000,))]")
    assert found.is_possible
    values, places = found.inputs(40)
    assert (len(values), len(places)) == (40, 40)
    assert int(places.max()) < 40


def test_one_input_follows_where_another_of_the_same_size_must_not() -> None:
    """A product of square matrices: rows of the first follow, the inner size does not."""
    found = reduction("x @ y", "[torch.randn(512, 512), torch.randn(512, 512)]")
    assert found.is_possible
    assert shapes(found.inputs(64)) == [(64, 512), (512, 512)]


def test_a_few_long_rows_are_enough() -> None:
    assert reduction("x * 2", "[torch.randn(64, 1 << 17)]").has_long_rows
    assert not reduction("x * 2", "[torch.randn(64, 1 << 10)]").has_long_rows


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("[torch.randn(int(torch.randint(1, 1000, ())), 4)]", True),
        ("[torch.randn(int(torch.full((), 30)), 4)]", False),
        ("[torch.randn(30, 4), torch.randint(0, 30, (9,))]", False),
    ],
)
def test_shapes_that_differ_from_draw_to_draw_are_noticed(inputs: str, expected: bool) -> None:
    assert reduction("x * 2", inputs).draws_shapes is expected
