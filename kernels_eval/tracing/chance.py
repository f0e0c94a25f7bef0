"""Tracing process: clocks, numbers of processes, random numbers and hashes, which tell each call something else.

Host code whose launches depend on one of them launches other kernels in some of the calls that are traced. Python's and
NumPy's generators begin each call with one of their extremes. Not covered: the operating system's own random numbers,
clocks of modules written in C (`datetime`), and hashes that are not asked for by `hash` or only when the module loads.
"""

import os
import random
import time
from typing import Any

import numpy as np

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_LONGEST_JUMP_S = 1e5
_HASH_BITS = 60
_EXTREME = 0.005
"""Distance from 0 or 1 of the first random number of a call."""


class Chance:
    """Values that host code may ask for and that differ between runs."""

    def __init__(self) -> None:
        self._generator = random.Random(os.urandom(16))
        self._passed_s = 0.0
        """Seconds by which the clocks are ahead."""
        self._salt = 0
        """Changes the hash of all but numbers, which a process would never change."""
        self._calls = 0
        self._kept: list[object] = []
        """Objects that change the addresses of later ones."""

    def install(self) -> None:
        """Replace clocks and the number of the process, in this process."""
        module: Any = time
        for name in _CLOCKS:
            setattr(module, name, self._ahead(getattr(time, name), 1.0))
            setattr(module, f"{name}_ns", self._ahead(getattr(time, f"{name}_ns"), 1e9))
        process = os.getpid
        os.getpid = lambda: process() + self._calls

    def next_call(self) -> None:
        """Begin another forward call: time has passed, and random numbers begin at an extreme."""
        self._calls += 1
        self._salt = self._generator.getrandbits(_HASH_BITS)
        self._passed_s += self._generator.uniform(1.0, _LONGEST_JUMP_S)
        self._kept += [object() for _ in range(self._generator.randrange(4))]
        random.seed(_SEEDS[self._calls % len(_SEEDS)])
        np.random.seed(self._generator.getrandbits(32))

    def hash_of(self, value: Any) -> int:
        """Return another hash of a value in each call: of strings, each process has its own."""
        plain = hash(value)
        return plain if isinstance(value, int | float) else plain ^ self._salt

    def _ahead(self, clock: Any, units: float) -> Any:
        return lambda: clock() + type(clock())(units * self._passed_s)


def _seed_of(is_low: bool) -> int:
    """Return a seed whose first number is close to 0 or to 1."""
    while True:
        seed = int.from_bytes(os.urandom(8), "big")
        first = random.Random(seed).random()
        if first < _EXTREME if is_low else first > 1 - _EXTREME:
            return seed


_SEEDS = _seed_of(is_low=True), _seed_of(is_low=False)
"""Found once, where processes are forked from."""
