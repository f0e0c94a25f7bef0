"""Roofline: the estimated time of a sequence of kernel launches on a GPU that this machine does not have.

The same formula is used for the candidate (counted in the interpreter) and for the eager reference (counted per
operator), hence the ratio is better than the absolute time. It is marked `roofline` wherever it is shown.
"""

import math
from collections.abc import Sequence

from kernels_eval.cost.hardware import Hardware
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.occupancy import Usage, resident_programs


def time_of(launch: Launch, hardware: Hardware, usage: Usage | None = None) -> float:
    """Return the seconds of one launch. `usage`: registers, shared memory and spills, where it was compiled."""
    programs = max(launch.programs, 1.0)
    busy = max(programs * launch.busy_share, 1.0)
    resident = resident_programs(launch.warps, usage, hardware.architecture)
    throughput = max(
        _memory_s(launch, hardware, busy, usage), _compute_s(launch, hardware) * _unevenness(busy, hardware.processors)
    )
    waves = max(1.0, programs / (hardware.processors * resident))
    waits = launch.operations.get("access", 0.0) * hardware.access_s
    waits += launch.operations.get("reduction", 0.0) * hardware.reduction_s
    return hardware.launch_s + throughput + waves * (hardware.program_s + waits / busy)


def total_s(launches: Sequence[Launch], hardware: Hardware, usages: Sequence[Usage | None] = ()) -> float:
    """Return the seconds of launches that follow one another."""
    known = list(usages) or [None] * len(launches)
    return sum(time_of(launch, hardware, usage) for launch, usage in zip(launches, known, strict=True))


def _memory_s(launch: Launch, hardware: Hardware, busy: float, usage: Usage | None) -> float:
    spilled = hardware.spill_factor * usage.spill_bytes * 32 * launch.warps * launch.programs if usage else 0.0
    # A processor alone reaches only a part of the bandwidth: it has too few requests under way.
    share = min(1.0, busy / (hardware.memory_share * hardware.processors))
    dram = launch.dram_bytes / hardware.dram_bytes_per_s
    return max(dram, (launch.l2_bytes + spilled) / hardware.l2_bytes_per_s) / share


def _compute_s(launch: Launch, hardware: Hardware) -> float:
    """Return the seconds for which all processors, evenly loaded, execute its operations."""
    counts = dict(launch.operations)
    counts["integer"] = hardware.integer_share * counts.get("integer", 0.0)
    clocks = {name: counts.get(name, 0.0) / rate for name, rate in hardware.lanes.items()}
    clocks["alu"] += clocks.pop("integer")
    clocks["fp32"] += clocks.pop("dot_fp32")
    clocks["fp64"] += clocks.pop("dot_fp64")
    issued = sum(counts.get(name, 0.0) for name in ("fp32", "alu", "integer", "sfu", "fp64", "exchange"))
    tensor = clocks.pop("dot_half") + clocks.pop("dot_tf32") + clocks.pop("dot_byte")
    most = max(issued / hardware.issue, tensor, *clocks.values())
    return most / (hardware.processors * hardware.clock_hz)


def _unevenness(busy: float, processors: int) -> float:
    """Return the work of the processor with the most programs over the mean of all processors."""
    return math.ceil(busy / processors) * processors / busy
