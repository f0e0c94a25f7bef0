"""A watch on a call, with a thread in the place of the copy engine, and on memory of the host."""

import ctypes
import threading
import time
from typing import Any

import pytest
import torch

from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.device.gate import GatePage, new_page
from kernels_eval.gpu.device.watch import LOOKS, PIECE_BYTES, Watch
from tests.doubles.copy_engine import CopyEngine

ELSEWHERE = 1 << 12
"""Distance of the word from the piece."""


class Call:
    """A call's inputs, piece and word in memory of the host, and its watch."""

    def __init__(self, engine: Any) -> None:
        self.memory = torch.full((ELSEWHERE + PIECE_BYTES,), 0xFF, dtype=torch.uint8)
        self.memory[:PIECE_BYTES] = 0
        self.inputs, self.staged = torch.zeros(8, dtype=torch.uint8), torch.arange(8, dtype=torch.uint8)
        engine.calls.append(self)
        self.watch = Watch(engine)
        self.page = GatePage(new_page())

    def queue(self, group: int) -> None:
        here = self.memory.data_ptr()
        self.watch.queue((self.inputs.data_ptr(), self.staged.data_ptr(), 8), here, here + ELSEWHERE, group)

    def write(self) -> None:
        self.memory[ELSEWHERE:] = 5

    def tell(self, group: int) -> None:
        """Tell the end as its kernel does: on the device first."""
        self.memory[:4].view(torch.int32).fill_(group)
        ctypes.c_uint32.from_address(self.page.address + 4 * 32).value = group

    def until_told(self, group: int) -> float | None:
        """Wait for the end as a session does."""
        self.watch.begin()
        self.page.wait_for_end(lambda: False, group, self.watch.follow)
        return self.watch.wait_until_told()


def test_the_inputs_arrive_when_it_begins_and_not_before(engine: CopyEngine) -> None:
    call = Call(engine)
    call.queue(1)
    time.sleep(0.01)
    assert not call.inputs.any()
    call.watch.begin()
    assert torch.equal(call.inputs, call.staged)


def test_looks_after_an_honest_end_see_final_outputs_alone(engine: CopyEngine) -> None:
    call = Call(engine)
    for group in (1, 2, 3):
        call.memory[ELSEWHERE:] = 0xFF
        call.queue(group)
        engine.before_look = lambda look, group=group: (look == 9 and call.write(), look == 11 and call.tell(group))
        assert call.until_told(group) is not None
        assert call.watch.is_told
        pieces = call.watch.pieces_after_end()
        assert pieces.shape == (LOOKS - 11, PIECE_BYTES)
        assert bool((pieces == 5).all())


def test_an_end_that_is_told_before_the_outputs_are_final_shows(engine: CopyEngine) -> None:
    call = Call(engine)
    call.queue(1)
    engine.before_look = lambda look: (look == 9 and call.tell(1), look == 11 and call.write())
    assert call.until_told(1) is not None
    pieces = call.watch.pieces_after_end()
    assert [bool((piece == 5).all()) for piece in pieces[:4]] == [False, False, True, True]


def test_an_end_that_only_the_host_is_told_early_is_seen_late(engine: CopyEngine) -> None:
    call = Call(engine)
    engine.period_s = 2e-3
    call.queue(1)
    host = ctypes.c_uint32.from_address(call.page.address + 4 * 32)

    noted = threading.Event()

    def before_look(look: int) -> None:
        if look == 3:
            host.value = 1
            noted.wait(60)
        if look == 23:
            call.tell(1)

    engine.before_look = before_look
    call.watch.begin()
    call.page.wait_for_end(lambda: False, 1, call.watch.follow)
    ended = time.perf_counter()
    noted.set()
    told = call.watch.wait_until_told()
    assert told is not None
    assert told - ended >= 15 * engine.period_s


def test_an_end_that_the_device_is_never_told_is_waited_for_until_no_look_is_left(engine: CopyEngine) -> None:
    call = Call(engine)
    engine.period_s = 1e-3
    call.queue(1)
    noted = threading.Event()
    engine.before_look = lambda look: look == 3 and noted.wait(60)
    call.watch.begin()
    ctypes.c_uint32.from_address(call.page.address + 4 * 32).value = 1
    call.page.wait_for_end(lambda: False, 1, call.watch.follow)
    ended = time.perf_counter()
    noted.set()
    told = call.watch.wait_until_told()
    assert told is not None
    assert told - ended >= (LOOKS - 10) * engine.period_s
    assert not call.watch.is_told
    assert len(call.watch.pieces_after_end()) == 0


def test_nothing_is_known_of_a_call_that_outlasts_the_looks(engine: CopyEngine) -> None:
    call = Call(engine)
    call.queue(1)
    call.watch.begin()
    engine.finish(7)
    for _ in range(LOOKS + 1):
        call.watch.follow()
    call.write()
    call.tell(1)
    assert call.until_told(1) is None
    assert not call.watch.is_told
    assert len(call.watch.pieces_after_end()) == 0


def test_a_driver_that_holds_no_stream_has_no_watch(engine: CopyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CudaError("cuStreamWaitValue32: the driver is too old")

    monkeypatch.setattr(engine, "hold_until", refuse)
    with pytest.raises(CudaError):
        Watch(engine)  # pyright: ignore[reportArgumentType]
