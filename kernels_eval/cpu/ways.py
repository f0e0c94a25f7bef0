"""CPU worker: ways to launch autotuned kernels: one configuration for each autotuner, and what is known of it."""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernels_eval.cost.hardware import Hardware
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.roofline import time_of, total_s
from kernels_eval.cpu.full_size import other_launches
from kernels_eval.trace.continuation import Leaf, leaves
from kernels_eval.trace.schema import LaunchKernel, TraceAnswer, Tuned

MOST_RUNS = 32
"""Configurations that are run at most. Which ones follows from the candidate's text, and only these can be taken."""
_LEAST_GAIN = 0.01
"""Estimated times closer than this are equal."""


@dataclass
class Way:
    """One configuration for each autotuner, and what is known of the candidate with it."""

    configurations: dict[int, int]
    trace: TraceAnswer | None = None
    """Program at the full size."""
    true: list[Launch] = field(default_factory=list[Launch])
    """Its launches."""
    launches: list[Launch] = field(default_factory=list[Launch])
    """Its launches with counts; none if it did not run."""
    size: int | None = None
    """Leading size to run at; None: the full size."""
    is_steady: bool = True
    """True if its program at the full size continues those at that size and a half of it."""

    @property
    def programs(self) -> float:
        """Programs of all launches."""
        return sum(launch.programs for launch in self.true)


def autotuners(trace: TraceAnswer | None) -> dict[int, Tuned]:
    """Return the first launch's configuration of each autotuner, by its number."""
    found: dict[int, Tuned] = {}
    for command in trace.commands if trace else ():
        if isinstance(command, LaunchKernel) and command.tuned is not None and not command.tuned.is_trial:
            found.setdefault(command.tuned.tuner, command.tuned)
    return found


def ways_of(tuners: Mapping[int, Tuned], source: str) -> list[dict[int, int]]:
    """Return combinations in which each configuration occurs once; the first is the one that `tuners` were seen in."""
    drawn = random.Random(hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest())
    orders: dict[int, list[int]] = {}
    for number, tuned in tuners.items():
        others = sorted({*tuned.kept} - {tuned.used})
        orders[number] = [tuned.used, *drawn.sample(others, len(others))]
    count = min(max(map(len, orders.values()), default=0), MOST_RUNS + 1)
    return [{number: order[index % len(order)] for number, order in orders.items()} for index in range(count)]


def pattern(way: Way) -> tuple[Leaf, ...]:
    """Return a way's program at the full size without the options of the compiler."""
    return tuple(leaves(way.trace)) if way.trace else ()


def fastest(ways: Sequence[Way], hardware: Hardware) -> dict[int, int]:
    """Return the configurations with the least estimated times. The first way's stay if none is clearly faster."""
    best: dict[int, tuple[float, int]] = {}
    for way in ways:
        for number, seconds in _times(way, hardware).items():
            if number not in best or seconds < (1 - _LEAST_GAIN) * best[number][0]:
                best[number] = seconds, way.configurations[number]
    return {number: best[number][1] if number in best else place for number, place in ways[0].configurations.items()}


def ranked(ways: Sequence[Way], hardware: Hardware) -> list[Way]:
    """Return the ways that ran and whose run speaks for the full size, the one with the least estimated time first."""
    known = (way for way in ways if way.launches and way.is_steady)
    return sorted(known, key=lambda way: total_s(way.launches, hardware))


def _times(way: Way, hardware: Hardware) -> dict[int, float]:
    """Return the time of each autotuner's launches."""
    seconds: dict[int, float] = {}
    tags = list(tags_of(way.trace)) if way.trace else []
    for tag, launch in zip(tags, way.launches, strict=False):
        if tag is not None:
            seconds[tag.tuner] = seconds.get(tag.tuner, 0.0) + time_of(launch, hardware)
    return seconds


def tags_of(trace: TraceAnswer) -> Iterator[Tuned | None]:
    """Yield the configuration of each launch of a program, None for what no autotuner launched."""
    for command in trace.commands:
        if isinstance(command, LaunchKernel):
            yield command.tuned
        else:
            yield from [None] * len(other_launches(command))


def last_launches(counted: Sequence[Launch], wanted: Sequence[Launch]) -> list[Launch] | None:
    """Return the last launches of the wanted kernels and operators in their order, or None if there are none.

    Those before them belong to the autotuner's hooks.
    """
    left, found = list(counted), list[Launch]()
    for launch in reversed(wanted):
        while left and left[-1].kernel != launch.kernel:
            left.pop()
        if not left:
            return None
        found.append(left.pop())
    return found[::-1]
