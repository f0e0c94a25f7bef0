"""Tracing process: clocks, numbers of processes, random numbers and hashes, which tell each call something else.

Host code whose launches depend on one of them launches other kernels in some of the calls that are traced. Generators
of Python and NumPy, and bytes of the operating system, begin most calls with one of their extremes. The device
of random bytes, which PyTorch draws its own seeds from, cannot be opened (kernels_eval.sandbox.landlock). Not covered:
generators of modules written in C, times of files and those of the process in `/proc`, and hashes that are not asked
for by `hash` or only when the module loads.
"""

import datetime
import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_CALENDARS = ("localtime", "gmtime", "ctime")
_EXTREME_BYTES = 4
"""Of a read of the system's random bytes: the rest are random, since they may name something."""
_LONGEST_JUMP_S = 1e5
_HASH_BITS = 60
_EXTREME = 0.005
"""Distance from 0 or 1 of the first random number of a call."""
_SEEDS_OF_A_KIND = 4
_EXTREME_DRAWS = 4
"""Reads of the system's random bytes in a call that begin at an extreme. Rejection sampling ends after them."""
_BYTES = (b"\x00", b"\xff", None)
"""First bytes of those reads, one call after the other; None: as they are."""


class Chance:
    """Values that host code may ask for and that differ between runs."""

    def __init__(self) -> None:
        self._generator = random.Random(os.urandom(16))
        self._passed_s = 0.0
        """Seconds by which the clocks are ahead."""
        self._salt = 0
        """Changes the hash of all but numbers, which a process would never change."""
        self._calls = 0
        self._draws = 0
        """Reads of the system's random bytes in this call."""
        self._kept: list[object] = []
        """Objects that change the addresses of later ones."""

    def install(self) -> None:
        """Replace clocks, sources of random numbers and the number of the process, in this process."""
        self._install_clocks()
        process = os.getpid
        os.getpid = lambda: process() + self._calls
        os.urandom = self._drawn(os.urandom)
        os.getrandom = lambda size, flags=0: os.urandom(size)
        module: Any = random
        module._urandom = os.urandom  # of SystemRandom, which `secrets` asks
        module.Random, module.seed = self._generators(random.Random, random.seed)
        generator = np.random.default_rng
        np.random.default_rng = lambda seed=None: generator(self._seed(_NUMPY_SEEDS) if seed is None else seed)

    def _install_clocks(self) -> None:
        module: Any = time
        for name in _CLOCKS:
            setattr(module, name, self._ahead(getattr(time, name), 1.0))
            setattr(module, f"{name}_ns", self._ahead(getattr(time, f"{name}_ns"), 1e9))
        module.clock_gettime = self._ahead(time.clock_gettime, 1.0)
        module.clock_gettime_ns = self._ahead(time.clock_gettime_ns, 1e9)
        for name in _CALENDARS:
            setattr(module, name, _of_now(getattr(time, name)))
        plain, text = time.strftime, time.asctime
        module.asctime = lambda given=None: text(time.localtime() if given is None else given)
        module.strftime = lambda form, given=None: plain(form, time.localtime() if given is None else given)
        dates: Any = datetime
        dates.datetime, dates.date = self._dates()

    def next_call(self) -> None:
        """Begin another forward call: time has passed, and random numbers begin at an extreme."""
        self._calls += 1
        self._draws = 0
        self._salt = self._generator.getrandbits(_HASH_BITS)
        self._passed_s += self._generator.uniform(1.0, _LONGEST_JUMP_S)
        self._kept += [object() for _ in range(self._generator.randrange(4))]
        random.seed(self._seed(_SEEDS))
        np.random.seed(self._seed(_LEGACY_SEEDS))

    def hash_of(self, value: Any) -> int:
        """Return another hash of a value in each call: of strings, each process has its own."""
        plain = hash(value)
        return plain if isinstance(value, int | float) else plain ^ self._salt

    def _ahead(self, clock: Any, units: float) -> Any:
        def ahead(*which: Any) -> Any:
            now = clock(*which)
            return now + type(now)(units * self._passed_s)

        return ahead

    def _seed(self, seeds: tuple[list[int], list[int]]) -> int:
        """Return the seed of a generator that is given none in this call: one of `seeds`, or any."""
        kind = self._calls % 3
        return self._generator.choice(seeds[kind]) if kind < len(seeds) else self._generator.getrandbits(32)

    def _drawn(self, draw: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return the system's random bytes, at an extreme in the first reads of most calls."""

        def drawn(size: int) -> bytes:
            self._draws += 1
            each = _BYTES[self._calls % len(_BYTES)] if self._calls and self._draws <= _EXTREME_DRAWS else None
            if each is None:
                return draw(size)
            return each * min(size, _EXTREME_BYTES) + draw(max(0, size - _EXTREME_BYTES))

        return drawn

    def _generators(self, plain: type[random.Random], plain_seed: Callable[..., None]) -> tuple[type, Any]:
        """Return Python's generator and its `seed`, both with this call's seed if none is given."""
        seed_of_call = self._seed

        class Random(plain, metaclass=_standing_for(plain)):
            def seed(self, a: Any = None, version: int = 2) -> None:
                super().seed(seed_of_call(_SEEDS) if a is None else a, version)

        return _named_as(Random, plain), lambda a=None, version=2: plain_seed(
            self._seed(_SEEDS) if a is None else a, version
        )

    def _dates(self) -> tuple[type, type]:
        """Return `datetime` and `date` by this process's clocks."""
        plain_time, plain_date = datetime.datetime, datetime.date

        def passed() -> datetime.timedelta:
            return datetime.timedelta(seconds=self._passed_s)

        class Datetime(plain_time, metaclass=_standing_for(plain_time)):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Any:
                return super().now(tz) + passed()

            @classmethod
            def utcnow(cls) -> Any:
                return super().now(datetime.UTC).replace(tzinfo=None) + passed()

            @classmethod
            def today(cls) -> Any:
                return cls.now()

        class Date(plain_date, metaclass=_standing_for(plain_date)):
            @classmethod
            def today(cls) -> Any:
                return cls.fromtimestamp(time.time())

        return _named_as(Datetime, plain_time), _named_as(Date, plain_date)


def _standing_for(plain: type) -> type:
    """Return the metaclass of a class in whose place `plain` was: objects of that one are its objects too."""

    class StandingFor(type):
        def __instancecheck__(cls, value: object) -> bool:
            return super().__instancecheck__(value) or (plain in cls.__bases__ and isinstance(value, plain))

        def __subclasscheck__(cls, given: type) -> bool:
            return super().__subclasscheck__(given) or (plain in cls.__bases__ and issubclass(given, plain))

    return StandingFor


def _named_as(made: type, plain: type) -> type:
    """Give a class the name of another one, by which its objects are pickled."""
    made.__module__, made.__qualname__, made.__name__ = plain.__module__, plain.__qualname__, plain.__name__
    return made


def _of_now(calendar: Any) -> Any:
    """Return a function of `time` whose default is this process's clock."""
    return lambda seconds=None: calendar(time.time() if seconds is None else seconds)


def _seeds_of(first_of: Callable[[int], float]) -> tuple[list[int], list[int]]:
    """Return seeds of a generator whose first number is close to 0, and such whose first is close to 1."""
    low: list[int] = []
    high: list[int] = []
    while min(len(low), len(high)) < _SEEDS_OF_A_KIND:
        seed = int.from_bytes(os.urandom(4), "big")
        first = first_of(seed)
        low += [seed] * (first < _EXTREME)
        high += [seed] * (first > 1 - _EXTREME)
    return low, high


def _first_of_legacy(seed: int) -> float:
    _LEGACY.seed(seed)  # a new generator for each seed would take 0.1 s in all
    return _LEGACY.random_sample()


_LEGACY = np.random.RandomState(0)
_SEEDS = _seeds_of(lambda seed: random.Random(seed).random())
_LEGACY_SEEDS = _seeds_of(_first_of_legacy)
_NUMPY_SEEDS = _seeds_of(lambda seed: np.random.default_rng(seed).random())
"""Found once, where processes are forked from: of Python's generator, NumPy's common one, and its new one."""
