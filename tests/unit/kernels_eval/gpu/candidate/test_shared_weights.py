"""Weights on their way through the shared memory."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.gpu.candidate.shared_weights import WeightTaker, in_batches, publish_weights
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.shared_memory import ALIGNMENT, HostTransport, MappedMemory

ROOM = 4 * ALIGNMENT


@given(st.lists(st.integers(0, 6 * ALIGNMENT), max_size=6), st.integers(ALIGNMENT, 9 * ALIGNMENT))
def test_batches_hold_each_weight_once_and_in_order(sizes: list[int], room: int) -> None:
    named = {str(number): size for number, size in enumerate(sizes)}
    come: Counter[str] = Counter()
    for batch in in_batches(named, room):
        end = 0
        for piece in batch:
            assert piece.start == come[piece.name]
            come[piece.name] += piece.nbytes
            assert piece.offset >= end
            assert piece.offset % ALIGNMENT == 0
            end = piece.offset + piece.nbytes
        assert 0 < end <= room
    assert come == Counter(named)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HostTransport, MappedMemory]]:
    """Shared memory of `ROOM` bytes, as the worker has it and as the candidate's process maps it."""
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = type("IdleDriver", (), {"synchronize": lambda _: None})()
    descriptor = os.memfd_create("device")
    transport = HostTransport(driver, descriptor)
    transport.reserve(ROOM)
    yield transport, MappedMemory(driver, transport.mapping(), descriptor)
    os.close(descriptor)


def test_weights_arrive_whatever_their_size_type_and_layout(sides: tuple[HostTransport, MappedMemory]) -> None:
    transport, mapped = sides
    weights = {
        "large": torch.randn(70, 31),  # more than the memory holds
        "transposed": torch.randn(40, 33),
        "half": torch.randn(7, dtype=torch.bfloat16),
        "mask": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5),
        "counter": torch.tensor(3),
        "empty": torch.empty(0, 4),
    }
    weights["from a slice"] = torch.randn(9, 8)[:, ::2]
    state = {name: torch.zeros_like(value, memory_format=torch.contiguous_format) for name, value in weights.items()}
    state["transposed"] = torch.zeros(33, 40).t()
    taker = WeightTaker(mapped, state)
    batches = 0
    weights["wider in the candidate"] = torch.randn(50, 21).bfloat16()
    state["wider in the candidate"] = torch.zeros(50, 21, dtype=torch.float64)
    dtypes = {name: value.dtype for name, value in state.items()}
    sizes = {name: value.nbytes for name, value in state.items()}
    for pieces in in_batches(sizes, transport.nbytes):
        taker.take([vars(piece) for piece in pieces], publish_weights(transport, weights, dtypes, pieces))
        batches += 1
    assert batches > 6
    for name, value in weights.items():
        assert torch.equal(state[name], value.to(state[name].dtype)), name
    assert not state["transposed"].is_contiguous()
