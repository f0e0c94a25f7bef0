"""Input sets: how they go to a candidate, and comparisons of their bytes; the facts of expected outputs."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError
from kernels_eval.reference.inputs import NORMAL, address_of, copied, passed_as, same_bytes, shapes_of
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.tensor_bytes import TensorForm


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "text", (1, 2), [1, [2, "x"]]])
def test_plain_values_are_passed_as_they_are(value: Any) -> None:
    assert passed_as(value) is value


def test_tensors_are_passed_as_their_form() -> None:
    assert passed_as(torch.zeros(2, 3, dtype=torch.float16)) == TensorForm(dtype="float16", shape=(2, 3))


@pytest.mark.parametrize("value", [object(), [torch.zeros(1)], {"a": 1}, np.float32(1), torch.eye(2).to_sparse()])
def test_other_values_are_the_problems_fault(value: Any) -> None:
    with pytest.raises(ReferenceFailedError, match="get_inputs returns a"):
        passed_as(value)


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_bytes_decide_if_two_tensors_are_the_same(first: bytes, second: bytes) -> None:
    tensors = [torch.frombuffer(bytearray(content), dtype=torch.float32) for content in (first, second)]
    assert same_bytes(*tensors) is (first == second)
    assert same_bytes(tensors[0], tensors[0].clone())


def test_nan_equals_itself_and_zeros_differ_by_sign() -> None:
    assert same_bytes(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert same_bytes(torch.empty(0), torch.empty(0))
    assert same_bytes(torch.arange(4).reshape(2, 2).t(), torch.tensor([[0, 2], [1, 3]]))


def test_copies_have_memory_of_their_own() -> None:
    values = [torch.ones(2), 3]
    made = copied(values)
    assert address_of(made[0]) != address_of(values[0])
    assert address_of(made[1]) == 0
    assert shapes_of(made) == [(2,), None]


def expected(forward: str) -> Expected:
    source = (
        "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n"
        f"        return {forward}\ndef get_inputs():\n    return [torch.rand(4, 4)]\ndef get_init_inputs():\n    return []\n"
    )
    return Reference(source, weight_seed=1).expected([torch.rand(4, 4) + 0.5], perturbed=False)


@pytest.mark.parametrize(
    ("forward", "expanded", "aliased", "shared"),
    [
        ("x + 1", (False,), (False,), False),
        ("x", (False,), (True,), False),
        ("x.sum(1, keepdim=True).expand(4, 4)", (True,), (False,), False),
        ("(x.exp(), x.t())", (False, False), (False, True), False),
        ("x.exp().chunk(2)", (False, False), (False, False), True),
    ],
)
def test_how_outputs_lie_in_memory(forward: str, expanded: Any, aliased: Any, shared: bool) -> None:
    found = expected(forward)
    assert (found.expanded, found.aliased, found.shared) == (expanded, aliased, shared)


@pytest.mark.parametrize(("forward", "is_finite"), [("x", True), ("x / 0", False), ("x * float('nan')", False)])
def test_outputs_with_infinities_or_nan_are_not_finite(forward: str, is_finite: bool) -> None:
    assert expected(forward).is_finite is is_finite


@pytest.mark.parametrize("shape", [(8, 6), (16, 300), (2, 40), (3, 5, 7), (9, 1)])
def test_normal_values_have_rows_of_either_sign(shape: tuple[int, ...]) -> None:
    for number in range(8):
        rows = NORMAL(shape, torch.Generator().manual_seed(number)).flatten(1)
        largest, smallest = rows.max(1).values, rows.min(1).values
        assert bool((largest < 0).any()), "the largest value of a row padded with zeros would be 0"
        assert bool((smallest > 0).any())
        if shape[0] >= 8 and shape[1] >= 40:
            assert int(((smallest < 0) & (largest > 0)).sum()) >= shape[0] // 2


def test_a_single_row_and_a_scalar_are_normal() -> None:
    assert NORMAL((1, 500), torch.Generator().manual_seed(0)).min() < 0 < NORMAL((500,), torch.Generator()).max()
    assert NORMAL((), torch.Generator().manual_seed(0)).shape == ()
