"""Watch on a call: the copy engine looks again and again at its outputs, and at the word that tells its end.

The end's kernel sets a word in device memory, then the host's (kernels_eval.gpu.device.gate). A candidate can set both
too early. A look is one copy of two rows: the word, then a secret piece of the outputs. A look that finds the word set
finds the piece final: the end's kernel runs after the last one that writes. And the word is found set soon after the
host was told.
"""

import ctypes
import random
import time

import torch

from kernels_eval.gpu.device.cuda_driver import CudaDriver

LOOKS = 64
"""Looks at a call. One that takes longer than all of them gains little by an end that is told early."""
PIECE_BYTES = 64
"""Bytes of a row."""
MAX_DISTANCE = 2**31 - 1
"""Largest distance of rows that the driver takes."""
_LOOK = 2 * PIECE_BYTES // 4
"""Words of a look."""
_PATIENCE_S = 0.2
_RANDOM = random.SystemRandom()


class Watch:
    """Looks at one call after another. Raises CudaError from the constructor if the driver cannot hold a stream."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._stream = driver.new_stream()
        self._rows = torch.empty((LOOKS, 2, PIECE_BYTES), dtype=torch.uint8, pin_memory=True)
        self._words = (ctypes.c_uint32 * (LOOKS * _LOOK)).from_address(self._rows.data_ptr())
        self._start = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._started = ctypes.c_uint32.from_address(self._start.data_ptr())
        self._turn = self._group = 0
        self._place = 0
        """Of the word of the first look that has not come yet, or has found the end told."""
        self._mark = 0
        """Stands where no look has come yet: secret, and no number of a group."""
        driver.hold_until(self._start.data_ptr(), 0, self._stream)
        driver.finish(self._stream)  # else the word could change before the stream has seen it

    def queue(self, inputs: tuple[int, int, int], word: int, piece: int, group: int) -> None:
        """Queue the copy of a call's inputs and all looks behind it. Nothing of it begins before `begin`.

        `inputs`: device's address, host's address in pinned memory, and bytes; `word`, `piece`: addresses on the
        device, the word first. Until `begin` this process must not wait for the device.
        """
        self._mark, self._group, self._place = 1 << 31 | _RANDOM.getrandbits(31), group, 0
        for place in range(0, len(self._words), _LOOK):
            self._words[place] = self._mark
        self._turn += 1
        self._driver.hold_until(self._start.data_ptr(), self._turn, self._stream)
        if inputs[2]:
            self._driver.queue_to_device(*inputs, self._stream)
        rows = self._rows.data_ptr()
        for look in range(LOOKS):
            here = rows + 2 * PIECE_BYTES * look
            self._driver.queue_rows(here, word, piece - word, PIECE_BYTES, 2, self._stream)

    def begin(self) -> None:
        """Let the inputs go; returns when they have arrived, and the first look has been made."""
        self._started.value = self._turn
        deadline = time.perf_counter() + _PATIENCE_S
        while self._words[0] == self._mark:
            if time.perf_counter() > deadline:
                self._driver.finish(self._stream)  # raises if the device has failed
                break

    def follow(self) -> None:
        """Go past a look that has come, unless it has found the end told: called again and again."""
        if self._place < len(self._words):
            found = self._words[self._place]
            if found != self._mark and found < self._group:
                self._place += _LOOK

    def wait_until_told(self) -> float | None:
        """Wait until a look has found the end told, or none is left; returns the clock then.

        None if there was none left before: the call takes longer than all looks.
        """
        if self._place >= len(self._words):
            return None
        deadline = time.perf_counter() + _PATIENCE_S
        while self._place < len(self._words) and time.perf_counter() < deadline:
            found = self._words[self._place]
            if found != self._mark:
                if found >= self._group:
                    break
                self._place += _LOOK
        return time.perf_counter()

    @property
    def is_told(self) -> bool:
        """True if a look has found the end told; False where none has yet, or none is left."""
        found = self._words[self._place] if self._place < len(self._words) else self._mark
        return found != self._mark and found >= self._group

    def pieces_after_end(self) -> torch.Tensor:
        """Return what each look saw of the outputs that found the end told: (looks, PIECE_BYTES) bytes."""
        self._driver.finish(self._stream)
        told = torch.tensor([found >= self._group for found in self._words[::_LOOK]])
        return self._rows[told, 1].clone()
