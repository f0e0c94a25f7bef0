"""Occupancy: programs of a kernel that one processor holds at a time, from registers, shared memory and warps."""

from dataclasses import dataclass

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


def resident_programs(warps: int, usage: Usage | None, architecture: str) -> int:
    """Return the programs that one processor holds at a time, at least 1."""
    limits = ARCHITECTURES[architecture]
    usage = usage or Usage()
    by_shared = limits.processor_blocks
    if usage.shared_bytes:
        by_shared = limits.processor_shared_bytes // (usage.shared_bytes + limits.reserved_bytes)
    by_warps = limits.processor_warps // warps
    return max(1, min(limits.processor_blocks, by_warps, by_shared, _by_registers(warps, usage, limits)))


def _by_registers(warps: int, usage: Usage, limits: Limits) -> int:
    each = max(usage.registers or _UNKNOWN_REGISTERS, 1) * limits.warp_threads
    rounded = -(-each // limits.register_unit) * limits.register_unit
    return limits.registers // (rounded * warps)
