"""Samples of a round's outputs, by the copy engine: when this process asks for them, or when the device tells an end.

The second are queued before the round, behind a wait on the word that tells its end (kernels_eval.gpu.device.gate).
In 200 rounds on an idle H200 the copy engine read 3 to 11 µs after that; where the host asks once it has seen the end,
10 to 102. What is read later than usual counts as the candidate's time, so the clock is read when a sample has come.
The driver's own wait for it returns up to 0.1 ms later.
"""

import ctypes
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from kernels_eval.gpu.device.cuda_driver import CudaDriver
from kernels_eval.gpu.device.watch import PIECE_BYTES

MAX_PIECES = 512
_PATIENCE_S = 0.2
_RANDOM = random.SystemRandom()


class Pieces(NamedTuple):
    """Pieces of device memory: (count, PIECE_BYTES) bytes on the host, and the clock when they had come."""

    rows: torch.Tensor
    came_s: float


class Samples:
    """Samples of one round after another."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._stream = driver.new_stream()
        self._rows = torch.empty((MAX_PIECES, PIECE_BYTES), dtype=torch.uint8, pin_memory=True)
        self._words = (ctypes.c_uint64 * (MAX_PIECES * PIECE_BYTES // 8)).from_address(self._rows.data_ptr())
        self._count = 0
        """Pieces that are queued; 0: none."""
        self._is_held = False
        self._mark = 0
        """Stands where the last piece has yet to come."""

    def queue(self, device: int, distance: int, count: int, word: int | None = None) -> None:
        """Queue the copy of pieces at equal distances: at once, or for when the word at a device address is not 0.

        Until then this process must not wait for all of the device. Raises CudaError if the driver cannot hold it.
        """
        count = min(count, MAX_PIECES)
        if word is not None:
            self._driver.hold_until(word, 1, self._stream)
        self._mark = _RANDOM.getrandbits(64)
        self._words[_last(count)] = self._mark
        self._driver.queue_rows(self._rows.data_ptr(), device, distance, PIECE_BYTES, count, self._stream)
        self._count, self._is_held = count, word is not None

    @property
    def are_queued(self) -> bool:
        """True from `queue` to `wait`."""
        return self._count > 0

    def wait(self, tell: Callable[[], object]) -> Pieces:
        """Wait until all have come.

        `tell`: sets the word, which a candidate may keep from being set. It is called again and again, since a
        candidate can take the word back as long as it lives: its time limit ends that.
        """
        deadline = time.perf_counter() + _PATIENCE_S
        while self._words[_last(self._count)] == self._mark:
            if time.perf_counter() > deadline:
                if not self._is_held:
                    break  # `finish` waits, and raises if the device has failed
                tell()
                deadline = time.perf_counter() + _PATIENCE_S
        came_s = time.perf_counter()
        self._driver.finish(self._stream)
        count, self._count = self._count, 0
        return Pieces(self._rows[:count].clone(), came_s)


def _last(count: int) -> int:
    """Return the place of the first word of the last of so many pieces."""
    return (count - 1) * PIECE_BYTES // 8
