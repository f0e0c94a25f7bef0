"""Roofline: the estimated time of a sequence of kernel launches on a GPU that this machine does not have.

The same formula is used for the candidate (counted in the interpreter) and for the eager reference (counted per
operator), hence the ratio is better than the absolute time. It is marked `roofline` wherever it is shown. Its constants
are fitted to measured kernels (docs/estimates.md).

Its sums are those of `math.fsum`: `sum` rounds floats otherwise since Python 3.12, and with that digests would differ.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from kernels_eval.cost.hardware import Hardware
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.limits import ARCHITECTURES
from kernels_eval.cost.occupancy import Usage, resident_programs

_MOST_WARPS = 8
"""Warps of a program beyond which the cache keeps no more for it."""
_UNITS_OF_ISSUE = ("fp32", "alu", "integer", "sfu", "fp64", "exchange")
Bound = Literal["memory", "arithmetic", "waiting"]


class LaunchTime(NamedTuple):
    """Estimated time of one launch within a call."""

    seconds: float
    bound_by: Bound
    """The part of it that takes longest."""
    dram_bytes: float
    """Bytes moved from and to DRAM, less those found in the cache."""


class _Cache:
    """The L2 cache during one call. It begins full of others' data, as where a benchmark flushes it."""

    def __init__(self, hardware: Hardware) -> None:
        self._size = hardware.cache_bytes
        self._reach = hardware.reuse_bytes
        self._kept = hardware.kept_caches * hardware.cache_bytes
        self._filled = self._written = self._largest = 0.0

    def traffic(self, launch: Launch, together: float) -> float:
        """Return the bytes that a launch moves from and to DRAM, among them others' data that it evicts.

        What an earlier launch touched is found in the cache if no launch so far moved more than it holds. What a
        program reads again is, as far as the cache holds what all that run at a time (`together`) read in between.
        """
        missed = launch.again_bytes * _share_missed(self._largest / self._reach)
        between = together * launch.reread_reach
        missed += launch.reread_bytes * (1.0 - min(1.0, self._kept / between) if between else 0.0)
        fresh = max(launch.dram_bytes - launch.written_bytes - launch.again_bytes, 0.0) + missed
        new = fresh + launch.written_bytes
        evicted = min(new, max(self._size - self._filled, 0.0))
        self._filled += new
        self._written += launch.written_bytes
        self._largest = max(self._largest, launch.dram_bytes)
        own = (new - evicted) * self._written / self._filled if self._filled else 0.0
        return fresh + evicted + own


def _share_missed(size: float) -> float:
    """Return the share of reused data that is no longer there. `size`: bytes since, over those that the cache keeps."""
    return min(1.0, size**4 / (1 + size**4))


def total_s(launches: Sequence[Launch], hardware: Hardware, usages: Sequence[Usage | None] = ()) -> float:
    """Return the seconds of launches that follow one another."""
    return hardware.call_s + math.fsum(time.seconds for time in launch_times(launches, hardware, usages))


def launch_times(
    launches: Sequence[Launch], hardware: Hardware, usages: Sequence[Usage | None] = ()
) -> list[LaunchTime]:
    """Return the time of each of the launches that follow one another; the start of the call is in none of them."""
    cache = _Cache(hardware)
    known = list(usages) or [None] * len(launches)
    return [
        _launch_time(launch, hardware, usage, cache.traffic(launch, _at_a_time(launch, hardware)))
        for launch, usage in zip(launches, known, strict=True)
    ]


def time_of(launch: Launch, hardware: Hardware) -> float:
    """Return the seconds of one launch."""
    return total_s([launch], hardware)


def _at_a_time(launch: Launch, hardware: Hardware) -> float:
    """Return how many programs of a launch run at a time, whatever registers and shared memory they need, and as many
    as of eight warps at least: a kernel that needs more of any must not seem to read less. On an H200 rows of 256 KB
    took as long with 32 warps as with 8.
    """
    least = ARCHITECTURES[hardware.architecture].processor_warps // _MOST_WARPS
    resident = max(resident_programs(launch.warps, None, hardware.architecture), least)
    return min(max(launch.programs, 1.0), hardware.processors * resident)


def _launch_time(launch: Launch, hardware: Hardware, usage: Usage | None, traffic: float) -> LaunchTime:
    if launch.host_wait is not None:
        return LaunchTime(_host_s(launch, hardware), "waiting", 0.0)
    programs = max(launch.programs, 1.0)
    busy = max(programs * launch.busy_share, 1.0)
    resident = resident_programs(launch.warps, usage, hardware.architecture)
    warps = launch.warps * min(busy / hardware.processors, resident)
    reached = min(1.0, busy / (hardware.memory_share * hardware.processors))
    parts: dict[Bound, float] = {
        "memory": _memory_s(launch, hardware, usage, traffic) / reached,
        "arithmetic": _compute_s(launch, hardware) * _slowdown(warps, hardware.busy_warps),
        "waiting": _waiting_s(launch, hardware, programs, resident),
    }
    seconds = hardware.launch_s + _together(list(parts.values()), hardware.overlap)
    return LaunchTime(seconds, max(parts, key=lambda name: parts[name]), traffic)


def _host_s(launch: Launch, hardware: Hardware) -> float:
    """Return the seconds for which the device waits for the host."""
    if launch.host_wait == "upload":
        return hardware.upload_s + launch.given_bytes / hardware.made_bytes_per_s
    return hardware.read_s if launch.host_wait == "read" else hardware.synchronise_s


def _slowdown(warps: float, busy_warps: float) -> float:
    """Return the time of arithmetic over the time that all units need when none waits.

    `warps`: those that one processor holds, on average; fewer than `busy_warps` cannot hide each other's latency. The
    exponent is that of a kernel measured with 66 to 2112 programs (docs/estimates.md).
    """
    return (1 + (busy_warps / warps) ** 3) ** (1 / 3)


def _waiting_s(launch: Launch, hardware: Hardware, programs: float, resident: int) -> float:
    """Return the longest program's life, or those of all programs, so many at a time, if that is longer.

    Atomics on the busiest sector follow one another, whatever the programs do meanwhile.
    """
    accesses, reductions = launch.operations.get("access", 0.0), launch.operations.get("reduction", 0.0)
    waits = hardware.access_s * accesses + hardware.reduction_s * reductions
    longest = hardware.access_s * launch.most_accesses + hardware.reduction_s * launch.most_reductions
    longest += hardware.turn_s * max(launch.most_turns - 1, 0.0)  # a trip to DRAM is in `program_s`
    together = hardware.processors * resident
    lives = max(hardware.program_s + longest, (hardware.program_s * programs + waits) / together)
    return lives + hardware.atomic_s * launch.contention


def _together(parts: Sequence[float], overlap: float) -> float:
    """Return the time of parts that overlap: their sum with an `overlap` of 1, the longest of them with a large one."""
    largest = max(parts)
    return largest * math.fsum((part / largest) ** overlap for part in parts) ** (1 / overlap) if largest else 0.0


def _memory_s(launch: Launch, hardware: Hardware, usage: Usage | None, traffic: float) -> float:
    spilled = hardware.spill_factor * usage.spill_bytes * 32 * launch.warps * launch.programs if usage else 0.0
    through_l2 = launch.l2_bytes * (1.0 + launch.lone_share) + spilled
    return max(traffic / hardware.dram_bytes_per_s, through_l2 / hardware.l2_bytes_per_s)


def _compute_s(launch: Launch, hardware: Hardware) -> float:
    """Return the seconds for which all processors, evenly loaded, execute its operations."""
    counts = {name: launch.operations.get(name, 0.0) for name in hardware.lanes}
    counts["integer"] *= hardware.integer_share
    clocks = {name: counts[name] / rate for name, rate in hardware.lanes.items()}
    clocks["alu"] += clocks.pop("integer")
    clocks["fp32"] += clocks.pop("dot_fp32")
    clocks["fp64"] += clocks.pop("dot_fp64")
    tensor = clocks.pop("dot_half") + clocks.pop("dot_tf32") + clocks.pop("dot_byte")
    issued = math.fsum(counts[name] for name in _UNITS_OF_ISSUE) / hardware.issue
    return max(issued, tensor, *clocks.values()) / (hardware.processors * hardware.clock_hz)
