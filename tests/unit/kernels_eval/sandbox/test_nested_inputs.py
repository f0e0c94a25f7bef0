"""Inputs in collections are a flat list for the judge, and the collections again for a model."""

import copy
from typing import Any

import pytest
import torch

from kernels_eval.sandbox.nested_inputs import nest_inputs_of, nested, unnested

A, B, C = torch.ones(2), torch.zeros(3), torch.ones(1)


@pytest.mark.parametrize(
    ("inputs", "leaves"),
    [
        ([[A, B], C], [A, B, C]),
        ([{"a": A, "rest": (B, {"c": C, "flag": True})}, 2], [A, B, C, True, 2]),
        ([[A, [1, 2], None]], [A, [1, 2], None]),
    ],
)
def test_leaves_are_put_back_where_they_were(inputs: list[Any], leaves: list[Any]) -> None:
    found, nesting = unnested(inputs)
    assert str(found) == str(leaves)
    assert str(nested(nesting, found)) == str(inputs)


def test_inputs_without_tensors_in_collections_stay_as_they_are() -> None:
    assert unnested([A, [1, 2], {"a": 3}, "text"]) == ([A, [1, 2], {"a": 3}, "text"], None)


class _Taking(torch.nn.Module):
    def forward(self, values: list[torch.Tensor], more: dict[str, torch.Tensor]) -> torch.Tensor:
        return values.pop() + more["b"]


def test_a_model_and_its_copies_get_new_collections_in_each_call() -> None:
    leaves, nesting = unnested([[C, A], {"b": A}])
    model = _Taking()
    nest_inputs_of(model, nesting)
    for each in (model, model, copy.deepcopy(model)):
        assert torch.equal(each(*leaves), torch.tensor([2.0, 2.0]))
