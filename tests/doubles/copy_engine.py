"""The copy engine of a GPU, in a thread, on memory of the host: what kernels_eval.gpu.device queues on one stream."""

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from typing import Any


class CopyEngine(threading.Thread):
    """Does what is queued on one stream, in its order; a look takes `period_s`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.period_s = 0.0
        self.work: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self.before_look: Callable[[int], object] = lambda look: None
        self.looks = 0
        self.is_given_up = False
        """Nothing is held any longer: at the end of a test that failed."""
        self.calls: list[Any] = []
        """Whose memory the copies need until they are done."""

    def run(self) -> None:
        while (step := self.work.get()) is not None:
            step()
            self.work.task_done()

    def new_stream(self) -> int:
        return 7

    def finish(self, stream: int) -> None:
        self.work.join()

    def hold_until(self, word: int, value: int, stream: int) -> None:
        there = ctypes.c_uint32.from_address(word)

        def hold() -> None:
            while there.value < value and not self.is_given_up:
                time.sleep(1e-4)
            self.looks = 0

        self.work.put(hold)

    def queue_to_device(self, device: int, host: int, nbytes: int, stream: int) -> None:
        self.work.put(lambda: ctypes.memmove(device, host, nbytes))

    def queue_rows(self, host: int, device: int, distance: int, width: int, rows: int, stream: int) -> None:
        def copy() -> None:
            time.sleep(self.period_s)
            self.before_look(self.looks)
            self.looks += 1
            for row in range(rows):
                ctypes.memmove(host + row * width, device + row * distance, width)

        self.work.put(copy)
