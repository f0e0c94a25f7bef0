"""Samples by the copy engine, now or when the device tells the end, on memory of the host."""

import threading
import time
from typing import Any

import pytest
import torch

from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.device.samples import MAX_PIECES, Samples
from kernels_eval.gpu.device.watch import PIECE_BYTES
from tests.doubles.copy_engine import CopyEngine

DISTANCE = 4 * PIECE_BYTES


class Outputs:
    """The word that tells the end, and outputs of three calls, of which the first piece is sampled."""

    def __init__(self, engine: Any) -> None:
        self.word = torch.zeros(1, dtype=torch.int32)
        self.memory = torch.zeros((3, DISTANCE), dtype=torch.uint8)
        engine.calls.append(self)
        self.samples = Samples(engine)

    def queue(self, at_end: bool = True) -> None:
        self.word.zero_()
        self.samples.queue(self.memory.data_ptr(), DISTANCE, 3, self.word.data_ptr() if at_end else None)

    def tell(self) -> None:
        self.word.fill_(1)


def never() -> None:
    raise AssertionError("the end was told")


def test_samples_are_taken_when_the_end_is_told(engine: CopyEngine) -> None:
    outputs = Outputs(engine)
    for value in (5, 6):
        outputs.queue()
        assert outputs.samples.are_queued
        outputs.memory.fill_(value)
        outputs.tell()
        engine.work.join()
        outputs.memory.fill_(9)  # later: no sample has it
        found, _ = outputs.samples.wait(never)
        assert found.shape == (3, PIECE_BYTES)
        assert bool((found == value).all())
        assert not outputs.samples.are_queued


def test_they_are_waited_for(engine: CopyEngine) -> None:
    outputs = Outputs(engine)
    outputs.queue()
    outputs.memory.fill_(5)
    told = threading.Timer(0.05, outputs.tell)
    told.start()
    started = time.perf_counter()
    found, came_s = outputs.samples.wait(never)
    assert came_s - started > 0.04
    assert bool((found == 5).all())


def test_the_clock_is_read_before_the_drivers_own_wait(engine: CopyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = Outputs(engine)
    finished: list[float] = []

    def finish(stream: int) -> None:
        time.sleep(0.05)
        finished.append(time.perf_counter())

    monkeypatch.setattr(engine, "finish", finish)
    outputs.queue(at_end=False)
    _, came_s = outputs.samples.wait(never)
    assert came_s < finished[0] - 0.04


def test_without_a_word_they_are_taken_at_once(engine: CopyEngine) -> None:
    outputs = Outputs(engine)
    outputs.memory.fill_(7)
    outputs.queue(at_end=False)
    assert bool((outputs.samples.wait(never).rows == 7).all())


def test_no_more_are_taken_than_there_is_room_for(engine: CopyEngine) -> None:
    outputs = Outputs(engine)
    outputs.memory = torch.full((MAX_PIECES + 5, PIECE_BYTES), 4, dtype=torch.uint8)
    outputs.samples.queue(outputs.memory.data_ptr(), PIECE_BYTES, MAX_PIECES + 5)
    found, _ = outputs.samples.wait(never)
    assert found.shape == (MAX_PIECES, PIECE_BYTES)
    assert bool((found == 4).all())


def test_an_end_that_is_never_told_holds_nobody_up(engine: CopyEngine) -> None:
    """A candidate can tell the host alone. What the samples took then counts as its time."""
    outputs = Outputs(engine)
    outputs.queue()
    outputs.memory.fill_(5)
    started = time.perf_counter()
    found, came_s = outputs.samples.wait(outputs.tell)
    assert bool((found == 5).all())
    assert came_s - started > 0.1


def test_an_end_that_is_taken_back_is_told_again(engine: CopyEngine) -> None:
    """A candidate can do that as long as it lives."""
    outputs = Outputs(engine)
    outputs.queue()
    outputs.memory.fill_(5)
    told: list[int] = []

    def tell() -> None:
        told.append(1)
        if len(told) > 1:
            outputs.tell()

    found, _ = outputs.samples.wait(tell)
    assert bool((found == 5).all())
    assert len(told) == 2


def test_a_slow_sample_without_a_word_tells_no_end(engine: CopyEngine) -> None:
    """The looks at the next call would find it told."""
    outputs = Outputs(engine)
    engine.period_s = 0.3
    outputs.memory.fill_(5)
    outputs.queue(at_end=False)
    assert bool((outputs.samples.wait(never).rows == 5).all())


def test_a_copy_that_cannot_be_queued_is_not_waited_for(engine: CopyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise CudaError("cuMemcpy2DAsync: CUDA_ERROR_INVALID_VALUE")

    monkeypatch.setattr(engine, "queue_rows", refused)
    outputs = Outputs(engine)
    with pytest.raises(CudaError):
        outputs.queue(at_end=False)
    assert not outputs.samples.are_queued


def test_a_driver_that_holds_no_stream_takes_none_at_the_end(
    engine: CopyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(word: int, value: int, stream: int) -> None:
        raise CudaError("cuStreamWaitValue32: CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr(engine, "hold_until", refused)
    outputs = Outputs(engine)
    with pytest.raises(CudaError, match="NOT_SUPPORTED"):
        outputs.queue()
    assert not outputs.samples.are_queued
