"""Occupancy: programs of a kernel that one processor holds at a time, from registers, shared memory and warps."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kernels_eval.cost.limits import ARCHITECTURES, Limits

_UNKNOWN_REGISTERS = 64
"""Registers of a thread where a kernel was not compiled."""


@dataclass(frozen=True)
class Usage:
    """Resources of one compiled kernel."""

    registers: int | None = None
    """Of a thread."""
    shared_bytes: int | None = None
    spill_bytes: int = 0
    """Local memory of a thread."""


Limiter = Literal["warps", "blocks", "registers", "shared memory"]


class Occupancy(NamedTuple):
    """Programs that one processor holds at a time."""

    programs: int
    """At least 1."""
    share: float
    """Their warps over those that a processor can hold."""
    limited_by: Limiter
    """Resource that allows the fewest; `warps` and `blocks` are the processor's own limits."""


def resident_programs(warps: int, usage: Usage | None, architecture: str) -> int:
    """Return the programs that one processor holds at a time, at least 1."""
    return occupancy(warps, usage, architecture).programs


def occupancy(warps: int, usage: Usage | None, architecture: str) -> Occupancy:
    """Return what one processor holds at a time of programs of so many warps."""
    limits = ARCHITECTURES[architecture]
    usage = usage or Usage()
    allowed: dict[Limiter, int] = {
        "warps": limits.processor_warps // warps,
        "blocks": limits.processor_blocks,
        "registers": _by_registers(warps, usage, limits),
    }
    if usage.shared_bytes:
        allowed["shared memory"] = limits.processor_shared_bytes // (usage.shared_bytes + limits.reserved_bytes)
    limiter = min(allowed, key=lambda name: allowed[name])
    programs = max(1, allowed[limiter])
    return Occupancy(programs, min(1.0, programs * warps / limits.processor_warps), limiter)


def register_share(registers: int, architecture: str) -> float:
    """Return the warps for which a processor has registers, over those that it can hold; 1 of unknown architectures."""
    limits = ARCHITECTURES.get(architecture)
    if limits is None:
        return 1.0
    return min(1.0, _by_registers(1, Usage(registers=registers), limits) / limits.processor_warps)


def _by_registers(warps: int, usage: Usage, limits: Limits) -> int:
    each = max(usage.registers or _UNKNOWN_REGISTERS, 1) * limits.warp_threads
    rounded = -(-each // limits.register_unit) * limits.register_unit
    return limits.registers // (rounded * warps)
