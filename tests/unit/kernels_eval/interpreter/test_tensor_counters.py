"""Numbers that kernels count up in memory that is kept are advanced; other contents are not."""

import pytest
import torch

from kernels_eval.interpreter.tensor_counters import TensorCounters
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT

CALLS = 8


def kept(tensor: torch.Tensor, number: int = FIRST_OWN) -> tuple[TensorStore, torch.Tensor]:
    """Return a store with one storage that a kernel has written, and the numbers in it."""
    store = TensorStore(strict=True)
    store.give(number, tensor, tensor.numel() * tensor.element_size())
    store[number].all_origins()
    store[number].dtype = tensor.dtype
    return store, tensor


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("number", [FIRST_WEIGHT, FIRST_OWN])
def test_a_counter_is_advanced_among_other_values(dtype: torch.dtype, number: int) -> None:
    store, values = kept(torch.zeros(6, dtype=dtype), number)
    counters = TensorCounters(store.kept_values)
    generator = torch.Generator().manual_seed(3)
    for call in range(CALLS):
        counters.observe()
        values[1] += 2
        values[2] = (call * call) % 5
        values[3:5] = (torch.rand(2, generator=generator) * 50).to(dtype)
    counters.observe()
    before = values.clone()
    counters.advance(20)
    assert values[1] - before[1] == 40
    assert torch.equal(values[[0, 2, 3, 4, 5]], before[[0, 2, 3, 4, 5]])


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_an_unsigned_counter_is_advanced(dtype: torch.dtype) -> None:
    store, values = kept(torch.zeros(3, dtype=dtype))
    counters, bits = TensorCounters(store.kept_values), values.numpy()
    for _ in range(CALLS):
        counters.observe()
        bits[1] += 2
    counters.observe()
    counters.advance(20)
    assert bits.tolist() == [0, 2 * CALLS + 40, 0]


def test_a_counter_that_turns_round_is_left_alone() -> None:
    store, values = kept(torch.zeros(1, dtype=torch.int32))
    counters = TensorCounters(store.kept_values)
    for _ in range(3 * CALLS):
        counters.observe()
        values[0] = (values[0] + 1) % 4
    counters.observe()
    counters.advance(1000)
    assert 0 <= int(values[0]) < 4


def test_inputs_and_memory_that_no_kernel_wrote_are_not_looked_at() -> None:
    store, values = kept(torch.zeros(2, dtype=torch.int32), number=0)
    given = torch.zeros(2, dtype=torch.int32)
    store.give(FIRST_WEIGHT, given, 8)
    store[FIRST_WEIGHT].dtype = torch.int32
    counters = TensorCounters(store.kept_values)
    for _ in range(CALLS):
        counters.observe()
        values += 1
        given += 1
    counters.observe()
    counters.advance(1000)
    assert values.tolist() == given.tolist() == [CALLS, CALLS]
