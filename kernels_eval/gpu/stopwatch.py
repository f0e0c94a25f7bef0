"""Stopwatch of one round of calls by device events, in the candidate's process and in the judge's worker.

The same code times the candidate, the reference, and the round without any calls. For each call: the L2 cache is
flushed, the device pauses until the host has enqueued the call, an event is recorded, the call made, another event
recorded, and the outputs are copied to where the judge will read them. With `synchronised` the host instead waits for
the whole device before each call, and after it first for the default stream, then for the device again: for candidates
that use side streams, whose work could otherwise start before the first event or go on after the last. Everything used
here is bound when the object is made, since a candidate can replace attributes of torch.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaDriver

_DEFAULT_STREAM = 0
_MIN_FLUSH_BYTES = 64 << 20
MAX_CALLS = 64
PAUSE_KERNEL = "kernels_eval_pause"
PAUSE_PROGRAM = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry {PAUSE_KERNEL}(.param .u64 nanoseconds)
{{
    .reg .u64 %wanted, %begun, %now;
    .reg .u32 %turns;
    .reg .pred %waits;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u32 %turns, 0;
    mov.u64 %begun, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    add.u32 %turns, %turns, 1;
    setp.lt.u64 %waits, %now, %wanted;
    setp.lt.and.u32 %waits, %turns, 10000000, %waits;
    @%waits bra again;
    ret;
}}
"""
"""PTX, for any GPU since Volta, of a kernel that keeps the device busy for a given time and touches no memory.

It reads the device's clock of nanoseconds: `torch.cuda._sleep` counts cycles, whose length changes by a quarter as the
device warms up. A round holds 20 pauses, beside which calls of a few microseconds would not show. Turns are counted:
a timer that stands still cannot hang the device.
"""


@dataclass
class TimedRound:
    """Measurements of one round."""

    device_ms: list[float]
    """Each call by device events, in the order of the calls."""
    enqueue_s: float
    """Median host time of a call alone."""
    unjoined_s: float
    """Median time for which side streams went on after the default stream was done; 0 unless `synchronised`."""


class Stopwatch:
    """Needs a CUDA context; holds events and a buffer larger than the L2 cache."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._synchronize = driver.synchronize
        self._record = driver.record
        self._wait_for = driver.wait_for
        self._elapsed = driver.elapsed_ms
        self._starts = [driver.new_event() for _ in range(MAX_CALLS)]
        self._ends = [driver.new_event() for _ in range(MAX_CALLS)]
        properties: Any = torch.cuda.get_device_properties(0)
        cache_bytes = int(getattr(properties, "L2_cache_size", 0)) or 50 << 20
        self.flush_bytes = max(_MIN_FLUSH_BYTES, 5 * cache_bytes // 2)
        self._scratch = torch.zeros(self.flush_bytes // 4, dtype=torch.int32, device=cuda_driver.DEVICE)
        self._fill: Any = torch.Tensor.fill_
        self._launch = driver.launch
        self._pause_kernel = driver.load(PAUSE_PROGRAM, PAUSE_KERNEL)
        self._set_stream: Any = torch.cuda.set_stream
        self._stream = torch.cuda.default_stream()
        self._now = time.perf_counter
        self.flush()
        self.pause(1e-6)
        self._synchronize()

    def flush(self) -> None:
        """Overwrite the L2 cache."""
        self._fill(self._scratch, 1)

    def pause(self, seconds: float) -> None:
        """Keep the device busy without touching memory."""
        if seconds > 0:
            self._launch(self._pause_kernel, int(1e9 * seconds), _DEFAULT_STREAM)

    def run(
        self, calls: Sequence[Callable[[], Any]], after: Callable[[int, Any], None], pause_s: float, synchronised: bool
    ) -> TimedRound:
        """Make every call once, in order; `after(index, result)` copies its outputs. Returns with the device idle."""
        enqueue: list[float] = []
        unjoined: list[float] = []
        now, record, synchronize = self._now, self._record, self._synchronize
        self._set_stream(self._stream)
        synchronize()
        for index, call in enumerate(calls):
            self.flush()
            if synchronised:
                synchronize()
            else:
                self.pause(pause_s)
            record(self._starts[index], _DEFAULT_STREAM)
            before = now()
            result = call()
            enqueue.append(now() - before)
            self._set_stream(self._stream)
            record(self._ends[index], _DEFAULT_STREAM)
            if synchronised:
                self._wait_for(self._ends[index])
                before = now()
                synchronize()
                unjoined.append(now() - before)
            after(index, result)
            del result  # its memory is reused: a round of calls must not ask the driver for more
        synchronize()
        times = [self._elapsed(self._starts[index], self._ends[index]) for index in range(len(calls))]
        return TimedRound(times, median(enqueue), median(unjoined) if unjoined else 0.0)
