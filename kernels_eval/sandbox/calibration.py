"""Calibration of the machine: the factor by which the interpreter's kind of work is slower than on a usual core.

Limits on a candidate's time are multiplied by it. CPU time is measured: other work on the machine does not count, but
what makes each second of it worth less does (a slow core, a busy sibling thread, a cache that others fill).
"""

import time
from functools import cache

import numpy as np

_USUAL_S = 0.003
"""CPU time of `_work` up to which a core counts as usual: twice what one core of two in a cloud takes."""
_ROUNDS = 3
MOST = 4.0
"""Largest factor."""


@cache
def slowness() -> float:
    """Return the factor for limits on time, from 1 to `MOST`. Measured once in a process, in some 10 ms of CPU time."""
    return factor_of(min(_measured() for _ in range(_ROUNDS)))


def factor_of(work_s: float) -> float:
    """Return the factor for a measured CPU time of the work."""
    return min(max(work_s / _USUAL_S, 1.0), MOST)


def _measured() -> float:
    began = time.process_time()
    _work()
    return time.process_time() - began


def _work() -> None:
    """Do what interpreting a kernel is made of: Python between operations on small arrays."""
    lanes = np.arange(256, dtype=np.float32)
    total: dict[int, float] = {}
    for step in range(400):
        lanes = np.where(lanes > step, lanes * 0.5, lanes + 1.0).astype(np.float32)
        total[step % 7] = total.get(step % 7, 0.0) + float(lanes[step % 256])
