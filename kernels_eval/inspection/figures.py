"""Figures of one call of a kernel, from the counts of its launches and what the compiler says. Times are estimates.

The estimate is that of verdicts (kernels_eval.cost.roofline); a spill or a strided access costs here what it costs
there.
"""

import math
from collections.abc import Sequence

from kernels_eval.cost.hardware import Hardware
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.limits import ARCHITECTURES
from kernels_eval.cost.occupancy import Limiter, Usage, occupancy
from kernels_eval.cost.roofline import Bound, LaunchTime, launch_times, total_s
from kernels_eval.frozen import FrozenModel

LEAST_SHARE = 0.1
"""Share of the call's time from which on a launch is looked at."""
_TENSOR = ("dot_half", "dot_tf32", "dot_byte")


class Work(FrozenModel):
    """Work of a problem that no kernel can do without."""

    bytes: float = 0.0
    """Inputs, weights and outputs, each read or written once."""
    matrix_flops: float = 0.0
    """Floating-point operations of the reference's matrix products."""


class LaunchFigures(FrozenModel):
    """One launch of a candidate's kernel. Shares are of what the device reaches at its best."""

    kernel: str
    line: int
    """Line of the source that launches it; 0: not known."""
    microseconds: float
    """Estimated, with the gap before it."""
    share: float
    """Share of the call's time."""
    bound_by: Bound
    programs: float
    warps: int
    """Of a program."""
    waves: float
    """Programs over those that the device holds at a time."""
    gigabytes_per_s: float
    """From and to DRAM."""
    gigaflops_per_s: float
    """Of matrix products."""
    roofline_share: float
    """Time that its traffic and its products need at the device's peak rates, over its own."""
    sector_share: float
    """Bytes that lanes asked for, over those of the 32-byte sectors that their accesses touch; 1 at most."""
    lane_share: float
    """Lanes that took part in loads and stores, over all; the others were masked off."""
    lane_bytes: float
    """Bytes that one thread loads and stores for each of its loads."""
    occupancy: float
    """Warps that a processor holds of it, over those that it can hold."""
    limited_by: Limiter
    registers: int | None = None
    """Of a thread; None: not compiled. Shared memory and spills likewise."""
    shared_bytes: int | None = None
    spill_bytes: int | None = None


class CallFigures(FrozenModel):
    """One call."""

    launches: tuple[LaunchFigures, ...]
    microseconds: float
    gaps_share: float
    """Share of the time that passes between launches, where the device waits for the host, and at the call's start."""
    library_share: float
    """Share of the time that operators of PyTorch take."""
    moved_bytes: float
    """Read and written by all launches, each address once a launch."""
    needed: Work
    computed_flops: float
    """Of the matrix products of the candidate's own kernels."""
    tensor_share: float
    """Share of them that ran on tensor cores; 1 without any."""
    hardware: str

    @property
    def moved_share(self) -> float:
        """Bytes that are moved over those needed."""
        return self.moved_bytes / self.needed.bytes if self.needed.bytes else 1.0


def figures_of(
    launches: Sequence[Launch], usages: Sequence[Usage | None], needed: Work, hardware: Hardware
) -> CallFigures:
    """Return the figures of a call. `usages`: of each launch, as far as it was compiled."""
    known = list(usages) or [None] * len(launches)
    total = total_s(launches, hardware, known)
    times = launch_times(launches, hardware, known)
    own = [each for each in zip(launches, known, times, strict=True) if each[0].kernel_number >= 0]
    found = tuple(_figures(launch, usage, time, total, hardware) for launch, usage, time in own)
    flops = math.fsum(launch.matrix_flops for launch, *_ in own)
    gaps = [
        time.seconds if launch.host_wait else hardware.launch_s for launch, time in zip(launches, times, strict=True)
    ]
    of_library = (
        time for launch, time in zip(launches, times, strict=True) if launch.kernel_number < 0 and not launch.host_wait
    )
    library_s = math.fsum(time.seconds for time in of_library)
    return CallFigures(
        launches=found,
        microseconds=1e6 * total,
        gaps_share=(hardware.call_s + math.fsum(gaps)) / total,
        library_share=library_s / total,
        moved_bytes=math.fsum(launch.dram_bytes for launch in launches),
        needed=needed,
        computed_flops=flops,
        tensor_share=math.fsum(_tensor_flops(launch) for launch, *_ in own) / flops if flops else 1.0,
        hardware=hardware.name,
    )


def _tensor_flops(launch: Launch) -> float:
    return math.fsum(launch.operations.get(name, 0.0) for name in _TENSOR)


def _figures(
    launch: Launch, usage: Usage | None, time: LaunchTime, total_s: float, hardware: Hardware
) -> LaunchFigures:
    held = occupancy(launch.warps, usage, hardware.architecture)
    lanes = launch.lane_bytes * launch.programs
    threads = launch.warps * ARCHITECTURES[hardware.architecture].warp_threads
    accesses = launch.operations.get("access", 0.0) / max(launch.programs, 1.0)
    ideal_s = max(time.dram_bytes / hardware.dram_bytes_per_s, launch.matrix_flops / hardware.half_flops)
    return LaunchFigures(
        kernel=launch.kernel,
        line=launch.line,
        microseconds=1e6 * time.seconds,
        share=time.seconds / total_s,
        bound_by=time.bound_by,
        programs=launch.programs,
        warps=launch.warps,
        waves=launch.programs / (hardware.processors * held.programs),
        gigabytes_per_s=time.dram_bytes / time.seconds / 1e9,
        gigaflops_per_s=launch.matrix_flops / time.seconds / 1e9,
        roofline_share=min(1.0, ideal_s / time.seconds),
        sector_share=min(1.0, launch.asked_bytes / launch.l2_bytes) if launch.l2_bytes else 1.0,
        lane_share=min(1.0, launch.asked_bytes / lanes) if lanes else 1.0,
        lane_bytes=launch.lane_bytes / max(accesses, 1.0) / threads,
        occupancy=held.share,
        limited_by=held.limited_by,
        registers=usage.registers if usage else None,
        shared_bytes=usage.shared_bytes if usage else None,
        spill_bytes=usage.spill_bytes if usage else None,
    )
