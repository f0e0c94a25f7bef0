"""Operators of PyTorch that a GPU runs as several kernels, or slowly."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels_eval.cost.eager_kernels import kernels_of
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
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


@pytest.mark.parametrize("call", [torch.softmax, torch.log_softmax], ids=["softmax", "log_softmax"])
def test_a_softmax_reads_long_rows_three_times_and_short_ones_once(call: Callable[..., object]) -> None:
    def launch_of(rows: int, columns: int, dimension: int, *inner: int) -> Launch:
        with EagerCounter() as counter:
            call(torch.empty(rows, columns, *inner, device="meta"), dimension)
        (launch,) = counter.launches
        return launch

    long = launch_of(512, 65536, 1)
    assert (long.reread_bytes, long.reread_reach) == (2 * 512 * 65536 * 4, 65536 * 4)
    assert long.programs == 512
    assert launch_of(512, 65536, -1) == long
    assert launch_of(512, 65536, 1, 1, 1) == long
    assert launch_of(512, 65536, 1, 2).reread_bytes == 0
    assert [launch_of(4096, 12288, 1).reread_bytes, launch_of(65536, 64, 0).reread_bytes] == [0, 0]
    once = total_s([long.model_copy(update={"reread_bytes": 0})], HARDWARE["h100"])
    assert total_s([long], HARDWARE["h100"]) > 1.3 * once


@pytest.mark.parametrize("name", ["logsumexp", "native_layer_norm", "native_group_norm", "mse_loss", "sort"])
def test_operations_and_first_reads_are_counted_once(name: str) -> None:
    """Of an operator that runs as several kernels: the first computes, later ones read what was there before."""
    func = SimpleNamespace(overloadpacket=SimpleNamespace(__name__=name))
    launch = Launch(kernel=f"aten.{name}", programs=64, dram_bytes=2e6, again_bytes=0.0, operations={"fp32": 1e6})
    made = kernels_of(launch, func, (), 1e6)
    assert len(made) > 1
    assert sum(each.operations.get("fp32", 0.0) for each in made) == 1e6
    assert made[0].again_bytes == 0
    assert all(each.again_bytes == each.dram_bytes - each.written_bytes for each in made[1:])
    assert all(each.l2_bytes == each.dram_bytes for each in made)


def test_any_other_operator_is_one_launch_as_it_is() -> None:
    func = SimpleNamespace(overloadpacket=SimpleNamespace(__name__="relu"))
    launch = Launch(kernel="aten.relu", programs=64, dram_bytes=2e6, l2_bytes=2e6)
    assert kernels_of(launch, func, (), 1e6) == [launch]


def test_a_copy_into_a_transposed_tensor_is_as_slow_as_one_of_it() -> None:
    into = seconds_of(lambda x: torch.empty_like(x).t().copy_(x.view(x.shape[::-1])))
    plain = seconds_of(lambda x: torch.empty_like(x).copy_(x))
    assert into > 2 * plain
    assert seconds_of(lambda x: torch.empty_like(x).t().copy_(x.t())) == plain


COUNTED: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "mask": (lambda x: x[x > 0], 1),
    "mask that is written to": (lambda x: torch.zeros_like(x).index_put_((x > 0,), x[0, :2]), 1),
    "nonzero": (torch.nonzero, 1),
    "masked_select": (lambda x: torch.masked_select(x, x > 0), 1),
    "unique": (torch.unique, 1),
    "bincount": (lambda x: torch.bincount((x[0] > 0).long()), 1),
    "repeat_interleave": (lambda x: x.repeat_interleave((x[0] > 0).long(), dim=1), 1),
    "repeat_interleave of a known length": (lambda x: x.repeat_interleave((x[0] > 0).long(), dim=1, output_size=2), 0),
    "item": (lambda x: x.sum().item(), 1),
    "a condition": (lambda x: x if x.sum() > 0 else -x, 1),
    "tolist": (lambda x: x.tolist(), 1),
    "numbers of the host": (lambda x: [torch.tensor(x.shape).prod().item(), torch.tensor([1, 2]).tolist()], 0),
    "indices": (lambda x: x[torch.tensor([0, 1])], 0),
    "one value for a mask": (lambda x: torch.zeros_like(x).index_put_((x > 0,), torch.tensor(1.0)), 0),
}


@pytest.mark.parametrize(("call", "waits"), COUNTED.values(), ids=list(COUNTED))
def test_host_code_waits_for_values_that_it_reads(call: Callable[[torch.Tensor], Any], waits: int) -> None:
    given = torch.tensor([[1.0, 2.0, -1.0, -3.0], [-1.0, -2.0, -5.0, -1.0]])
    with EagerCounter() as counter:
        call(given)
    assert [launch.host_wait for launch in counter.launches].count("read") == waits
