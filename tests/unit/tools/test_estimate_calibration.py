"""Cases that calibrate the estimate, loaded and rehearsed without a GPU."""

import sys
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[3] / "tools" / part) for part in ("gpu", ".")]

from estimate_calibration import build, rehearse  # noqa: E402  # pyright: ignore[reportMissingImports]
from estimate_cases import Case, all_cases  # noqa: E402  # pyright: ignore[reportMissingImports]

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, x):
        return self.linear(x) + @MORE@
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.named_otherwise = nn.Linear(8, 8)
    def forward(self, x):
        return self.named_otherwise(x)
"""


def case(more: str) -> Case:
    return Case("honest", "linear", "own", PROBLEM.replace("@MORE@", more), KERNEL)


@pytest.mark.parametrize(
    "name",
    [
        "lookup_table_made_on_the_host", "index_add_by_atomics_into_zeros", "block_sparse_columns_by_an_index",
        "int4_weights_unpacked_in_the_product", "ragged_rows_summed_by_offsets",
        "variable_length_sequences_by_offsets", "dropout_by_a_hash_of_offsets_and_a_given_shift",
    ],
)  # fmt: skip
def test_what_a_reference_makes_in_its_call_is_on_the_device(name: str) -> None:
    (found,) = (each for each in all_cases() if each.kernel_name == name)
    assert rehearse(found) is None


def test_a_rehearsal_names_the_error_of_a_call() -> None:
    assert rehearse(case("torch.zeros(8)")) is None
    assert "RuntimeError" in (rehearse(case("torch.zeros(9)")) or "")


def test_parameters_of_other_names_are_drawn_alike() -> None:
    reference, candidate = build(case("torch.zeros(8)"), "cpu")
    assert torch.equal(reference(), candidate())
