"""Operators of PyTorch that a GPU runs as several kernels, or slowly."""

from collections.abc import Callable

import pytest
import torch

from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.operators import EagerCounter
from kernels_eval.cost.roofline import total_s

ROWS, COLUMNS = 16384, 1024


def seconds_of(call: Callable[[torch.Tensor], object]) -> float:
    x = torch.empty(ROWS, COLUMNS, device="meta")
    with EagerCounter() as counter:
        call(x)
    return total_s(counter.launches, HARDWARE["h100"])


@pytest.mark.parametrize(
    ("call", "measured_us"),
    [
        (lambda x: torch.relu(x), 50), (lambda x: torch.logsumexp(x, 1), 190), (lambda x: x.cumsum(1), 181),
        (lambda x: torch.nn.functional.layer_norm(x, (COLUMNS,)), 69), (lambda x: torch.softmax(x, 1), 51),
    ],
)  # fmt: skip
def test_large_operators_take_what_an_h100_takes(call: Callable[[torch.Tensor], object], measured_us: float) -> None:
    """Medians of docs/estimates.md's measurement, within a factor of 4/3."""
    assert 3 / 4 < 1e6 * seconds_of(call) / measured_us < 4 / 3


def test_a_copy_of_a_transposed_tensor_is_slower_than_a_plain_one() -> None:
    assert seconds_of(lambda x: x.t().clone(memory_format=torch.contiguous_format)) > 2 * seconds_of(torch.clone)


def test_batch_norm_in_training_reads_its_input_for_its_statistics() -> None:
    def norm(is_training: bool) -> Callable[[torch.Tensor], object]:
        mean, var = torch.zeros(COLUMNS, device="meta"), torch.ones(COLUMNS, device="meta")
        return lambda x: torch.nn.functional.batch_norm(x, mean, var, training=is_training)

    assert seconds_of(norm(True)) > 1.3 * seconds_of(norm(False))


def test_each_kernel_reads_what_the_one_before_left() -> None:
    x = torch.empty(ROWS, COLUMNS, device="meta")
    with EagerCounter() as counter:
        torch.logsumexp(x, 1)
    first, *later = counter.launches
    assert (first.again_bytes, first.dram_bytes) == (0.0, 4.0 * ROWS * COLUMNS)
    assert all(launch.again_bytes == launch.dram_bytes - launch.written_bytes for launch in later)
