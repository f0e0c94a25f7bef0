"""Slots, guards and poison of the memory that tensors pass through."""

import ctypes
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.device.samples import Pieces
from kernels_eval.gpu.device.shared_memory import (
    ALIGNMENT,
    GUARD_BYTES,
    HEAD_BYTES,
    POISON,
    HostTransport,
    IpcTransport,
    MappedMemory,
    apart,
    lay_out,
    view,
)
from kernels_eval.sandbox.tensor_bytes import TensorForm, form_of
from tests.doubles.copy_engine import CopyEngine

forms = st.builds(
    TensorForm,
    dtype=st.sampled_from(["float32", "float16", "int64", "bool"]),
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
)


@given(
    st.lists(st.one_of(forms, st.integers()), max_size=4), st.lists(st.integers(0, 5000), max_size=3), st.integers(1, 5)
)
def test_slots_are_apart(inputs: list[TensorForm | int], outputs: list[int], calls: int) -> None:
    layout = lay_out(inputs, outputs, calls)
    spans: list[tuple[int, int]] = []
    for slots in layout.calls:
        for value, offset in zip(inputs, slots.inputs, strict=True):
            assert (offset is None) == isinstance(value, int)
            if isinstance(value, TensorForm) and offset is not None:
                spans.append((offset, offset + value.nbytes))
        spans += [(offset, offset + size) for offset, size in zip(slots.outputs, outputs, strict=True)]
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(start >= GUARD_BYTES and end + GUARD_BYTES <= layout.nbytes for start, end in spans)
    ordered = sorted(spans)
    assert all(end + GUARD_BYTES <= start for (_, end), (start, _) in pairwise(ordered))


def test_poison_is_no_number() -> None:
    memory = torch.full((4096,), POISON, dtype=torch.uint8)
    for name in ("float16", "bfloat16", "float32", "float64"):
        form = TensorForm(dtype=name, shape=(2, 3))
        assert bool(view(memory, form, 512).isnan().all())
    assert bool((view(memory, TensorForm(dtype="int32", shape=(4,)), 512) == -1).all())


def test_a_view_is_no_copy() -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    view(memory, TensorForm(dtype="float32", shape=(2, 2)), 1024).fill_(1.0)
    assert int(memory.count_nonzero()) == 8
    assert int(memory[1024:1040].count_nonzero()) == 8


def test_an_operator_that_copies_all_of_a_tensors_storage_copies_the_tensor_alone() -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    alone = apart(memory, TensorForm(dtype="float32", shape=(2, 3)), 1024)
    alone.fill_(1.0)
    assert torch.equal(memory[1024:1048].view(torch.float32), torch.ones(6))
    assert int(memory.count_nonzero()) == 12
    written = torch.select_scatter(alone, torch.zeros(2), 1, 0)
    assert written.untyped_storage().nbytes() == 24
    assert torch.equal(written, torch.tensor([[0.0, 1.0, 1.0]] * 2))
    assert apart(memory, TensorForm(dtype="float32", shape=(0, 3)), 1024).shape == (0, 3)


def test_the_reference_has_each_input_in_a_storage_of_its_own(sides: tuple[SharedCalls, MappedMemory]) -> None:
    assert [values[0].untyped_storage().nbytes() for values in sides[0].sets] == [24, 24]


class IdleDriver:
    def synchronize(self) -> None: ...


SETS: list[list[Any]] = [[torch.arange(6.0).reshape(2, 3), 7], [-torch.ones(2, 3), 8]]
FORM = TensorForm(dtype="float32", shape=(2, 3))


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SharedCalls, MappedMemory]]:
    """Two calls of one tensor and one number, as the worker holds them and as the candidate's process maps them."""
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = IdleDriver()
    descriptor = os.memfd_create("device")
    transport = HostTransport(driver, descriptor)
    layout = lay_out([form_of(SETS[0][0]), 7], [FORM.nbytes], len(SETS))
    transport.reserve(layout.nbytes)
    calls = SharedCalls(transport, layout, SETS, [FORM])
    calls.publish()
    mapped = MappedMemory(driver, transport.mapping(), descriptor)
    mapped.pull(calls.nbytes)
    yield calls, mapped
    os.close(descriptor)


def test_inputs_arrive_and_outputs_come_back(sides: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = sides
    calls.complete()
    mapped.pull(calls.nbytes)
    for request, (tensor, number) in zip(calls.requests(), SETS, strict=True):
        given, plain = request["inputs"]
        assert plain == {"value": number}
        arrived = view(mapped.tensor, TensorForm(**given["form"]), given["offset"])
        assert torch.equal(arrived, tensor)
        slot = request["outputs"][0]
        assert slot["nbytes"] == FORM.nbytes
        view(mapped.tensor, FORM, slot["offset"]).copy_(2 * arrived)
    mapped.push(calls.nbytes)
    calls.collect()
    assert all(torch.equal(calls.output(call, 0, FORM), 2 * tensor) for call, (tensor, _) in enumerate(SETS))
    assert calls.changed_inputs() == set()
    assert not calls.has_broken_guards()


def test_a_write_after_the_collection_does_not_count(sides: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = sides
    calls.collect()
    mapped.tensor.fill_(1)
    mapped.push(calls.nbytes)
    assert bool(calls.output(0, 0, FORM).isnan().all())


def test_a_changed_input_shows(sides: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = sides
    calls.complete()
    mapped.pull(calls.nbytes)
    mapped.tensor[calls.requests()[1]["inputs"][0]["offset"]] ^= 1
    mapped.push(calls.nbytes)
    calls.collect()
    assert calls.changed_inputs() == {0}
    assert not calls.has_broken_guards()


@pytest.mark.parametrize("call", [0, 1])
def test_a_write_before_a_slot_shows(sides: tuple[SharedCalls, MappedMemory], call: int) -> None:
    calls, mapped = sides
    mapped.tensor[calls.requests()[call]["outputs"][0]["offset"] - 1] = 0
    mapped.push(calls.nbytes)
    calls.collect()
    assert calls.has_broken_guards()


def test_the_outputs_of_all_calls_are_rows(sides: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = sides
    for request, value in zip(calls.requests(), (3.0, 4.0), strict=True):
        view(mapped.tensor, FORM, request["outputs"][0]["offset"]).fill_(value)
    mapped.push(calls.nbytes)
    calls.collect()
    assert calls.outputs(0).tolist() == [[3.0] * 6, [4.0] * 6]


def test_inputs_are_held_apart_from_the_shared_memory(sides: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = sides
    mapped.tensor.zero_()
    mapped.push(calls.nbytes)
    calls.collect()
    assert torch.equal(calls.sets[0][0], SETS[0][0])
    assert calls.changed_inputs() == {0}
    assert calls.has_broken_guards()


LARGE_FORM = TensorForm(dtype="float32", shape=(40, 25))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SharedCalls, MappedMemory]]:
    """Three calls of a tensor of 63 pieces and one of less than a piece, with an output of 63."""
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = IdleDriver()
    descriptor = os.memfd_create("device")
    transport = HostTransport(driver, descriptor)
    sets: list[list[Any]] = [[torch.randn(40, 25), torch.randn(3)] for _ in range(3)]
    layout = lay_out([form_of(value) for value in sets[0]], [LARGE_FORM.nbytes], len(sets))
    transport.reserve(layout.nbytes)
    calls = SharedCalls(transport, layout, sets, [LARGE_FORM])
    calls.publish()
    yield calls, MappedMemory(driver, transport.mapping(), descriptor)
    os.close(descriptor)


def arrived(calls: SharedCalls, mapped: MappedMemory) -> list[torch.Tensor]:
    mapped.pull(calls.nbytes)
    given = [request["inputs"][0] for request in calls.requests()]
    return [view(mapped.tensor, TensorForm(**item["form"]), item["offset"]) for item in given]


def test_no_input_is_there_before_the_round(large: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = large
    for _ in range(2):
        calls.publish()
        assert all(bool(value.isnan().all()) for value in arrived(calls, mapped))
        calls.complete()
        for value, (right, _) in zip(arrived(calls, mapped), calls.sets, strict=True):
            assert torch.equal(value, right)


def test_samples_of_calls_in_turn_are_those_of_all_at_once(large: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = large
    mapped.pull(calls.nbytes)
    fill(calls, mapped, 1000, 1.5, first=1)
    for call in range(3):
        calls.sample_call(call)
    fill(calls, mapped, 1000, 1.5)
    calls.sample()
    calls.collect()
    assert calls.has_late_writes(), "the first call's outputs came after its sample"


class CopyingDriver(IdleDriver):
    def new_stream(self) -> int:
        return 1

    def copy_to_device(self, device: int, host: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(device, host, nbytes)


def test_the_inputs_of_one_call_arrive_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = CopyingDriver()
    transport = IpcTransport(driver)
    sets: list[list[Any]] = [[torch.randn(40, 25), 3, torch.randn(3)] for _ in range(3)]
    forms = [form_of(value) if isinstance(value, torch.Tensor) else value for value in sets[0]]
    layout = lay_out(forms, [LARGE_FORM.nbytes], len(sets))
    whole = torch.zeros(HEAD_BYTES + layout.nbytes, dtype=torch.uint8)
    memory = whole[HEAD_BYTES:]
    transport._head, transport._tensor, transport._staged = whole.data_ptr(), memory, torch.zeros_like(memory)
    calls = SharedCalls(transport, layout, sets, [LARGE_FORM])
    calls.publish()
    calls.stage()
    for call in (0, 2, 1):
        calls.deliver(call)
        for index in (0, 2):
            offset = layout.calls[call].inputs[index]
            assert offset is not None
            assert torch.equal(view(memory, forms[index], offset), sets[call][index])
        there = [not bool(view(memory, forms[0], each.inputs[0] or 0).isnan().any()) for each in layout.calls]
        assert there == {0: [True, False, False], 2: [True, False, True], 1: [True] * 3}[call]
    assert calls.changed_inputs() == set()
    assert not bool((memory[layout.outputs_from :] != POISON).any()), "outputs are untouched"


def test_what_is_written_before_the_inputs_arrive_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is launched before that: zeros need no input, and take no time."""
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = CopyingDriver()
    transport = IpcTransport(driver)
    layout = lay_out([form_of(value) for value in SETS[0][:1]], [FORM.nbytes], len(SETS))
    transport._tensor = torch.zeros(layout.nbytes, dtype=torch.uint8)
    calls = SharedCalls(transport, layout, [values[:1] for values in SETS], [FORM])
    calls.publish()
    for slots in layout.calls:
        view(transport._tensor, FORM, slots.outputs[0]).zero_()
    calls.complete()
    assert torch.equal(view(transport._tensor, FORM, layout.calls[1].inputs[0] or 0), SETS[1][0])
    calls.collect()
    assert all(bool(calls.output(call, 0, FORM).isnan().all()) for call in range(calls.count))


def test_samples_are_those_of_the_end_that_the_device_tells(
    engine: CopyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = engine
    transport = IpcTransport(driver)
    whole = torch.zeros(HEAD_BYTES + 4096, dtype=torch.uint8)
    transport._head, transport._tensor = whole.data_ptr(), whole[HEAD_BYTES:]
    transport._end = whole[:4].view(torch.int32)

    def queued() -> None:
        transport.clear_end()
        transport.queue_pieces(512, 1024, 2)

    queued()
    whole[HEAD_BYTES:].fill_(2)
    time.sleep(0.02)  # in which a copy would come that waits for something else
    whole[HEAD_BYTES:].fill_(3)
    transport._end.fill_(1)
    engine.work.join()
    whole[HEAD_BYTES:].fill_(4)
    assert transport.pieces(512, 1024, 2).rows.unique().tolist() == [3]
    assert transport.pieces(512, 1024, 2).rows.unique().tolist() == [4], "of none that was queued: as it is now"
    queued()
    transport.forget_pieces()
    engine.work.join()
    whole[HEAD_BYTES:].fill_(5)
    assert transport.pieces(512, 1024, 2).rows.unique().tolist() == [5], "what a failed round has left is gone"

    def refused(word: int, value: int, stream: int) -> None:
        raise CudaError("cuStreamWaitValue32: CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr(engine, "hold_until", refused)
    queued()
    whole[HEAD_BYTES:].fill_(6)
    assert transport.pieces(512, 1024, 2).rows.unique().tolist() == [6]


class Looks:
    """A watch that has seen these pieces once the end was told."""

    def __init__(self, pieces: torch.Tensor) -> None:
        self.pieces = pieces

    def pieces_after_end(self) -> torch.Tensor:
        return self.pieces


@pytest.mark.parametrize(("seen", "is_late"), [([1.5, 1.5], False), ([], False), ([0.0, 1.5], True)])
def test_a_look_after_the_end_that_saw_something_else_than_the_output_shows(
    monkeypatch: pytest.MonkeyPatch, seen: list[float], is_late: bool
) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    driver: Any = CopyingDriver()
    transport = IpcTransport(driver)
    monkeypatch.setattr(transport, "pieces", lambda offset, distance, count: Pieces(rows(1.5, count), 0.0))
    layout = lay_out([form_of(torch.ones(3))], [LARGE_FORM.nbytes], 3)
    transport._tensor = torch.zeros(layout.nbytes, dtype=torch.uint8)
    calls = SharedCalls(transport, layout, [[torch.ones(3)]] * 3, [LARGE_FORM])
    calls.publish()
    watched: list[tuple[int, int]] = []
    pieces = rows(0.0, 0) if not seen else torch.cat([rows(value, 1) for value in seen])
    looks: Any = Looks(pieces)
    monkeypatch.setattr(transport, "watch", lambda offset, group, *_: watched.append((offset, group)) or looks)
    for slots in layout.calls:
        view(transport._tensor, LARGE_FORM, slots.outputs[0]).fill_(1.5)
    for call in range(3):
        watch = calls.watch(call)
        assert watch is not None
        calls.sample_call(call)
        calls.keep_looks(watch)
    calls.sample()
    calls.collect()
    assert [group for _, group in watched] == [1, 2, 3]
    for (offset, _), slots in zip(watched, layout.calls, strict=True):
        assert slots.outputs[0] <= offset < slots.outputs[0] + LARGE_FORM.nbytes
    assert calls.has_late_writes() == is_late


def rows(value: float, count: int) -> torch.Tensor:
    """Return pieces that a tensor of this value has."""
    return torch.full((count, 16), value).view(torch.uint8)


def fill(calls: SharedCalls, mapped: MappedMemory, elements: int, value: float, first: int = 0) -> None:
    for request in calls.requests()[first:]:
        view(mapped.tensor, LARGE_FORM, request["outputs"][0]["offset"]).reshape(-1)[:elements] = value
    mapped.push(calls.nbytes)


def test_outputs_written_in_time_agree_with_the_samples(large: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = large
    mapped.pull(calls.nbytes)
    fill(calls, mapped, 1000, 1.5)
    calls.sample_at_once()
    calls.sample()
    calls.collect()
    assert not calls.has_late_writes()


def test_outputs_of_which_half_is_written_late_do_not(large: tuple[SharedCalls, MappedMemory]) -> None:
    calls, mapped = large
    mapped.pull(calls.nbytes)
    fill(calls, mapped, 500, 1.5)
    calls.sample_at_once()
    calls.sample()
    fill(calls, mapped, 1000, 1.5)
    calls.collect()
    assert calls.has_late_writes()  # that none of 66 samples is in that half has a chance of 1e-20


def test_a_call_made_between_the_end_and_the_change_of_process_is_late(
    large: tuple[SharedCalls, MappedMemory],
) -> None:
    calls, mapped = large
    mapped.pull(calls.nbytes)
    fill(calls, mapped, 1000, 1.5)
    fill(calls, mapped, 1000, 0.0, first=2)
    calls.sample_at_once()
    fill(calls, mapped, 1000, 1.5, first=2)
    calls.sample()
    calls.collect()
    assert calls.has_late_writes()
