"""Limits of each architecture that kernels are compiled for.

NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared memory of a block is that
of a processor less 1 KB, opted in). AMD: CDNA 2 and 3 instruction set architecture, and HIP's device properties: 64 KB
of local data share (160 KB on gfx950), 512 vector registers of a lane and SIMD unit, four SIMD units.
"""

from dataclasses import dataclass

GRID = (2**31 - 1, 65535, 65535)
"""Programs in each direction, on all architectures."""


@dataclass(frozen=True)
class Limits:
    """Limits of one architecture."""

    shared_bytes: int
    """Shared memory of a block."""
    processor_shared_bytes: int
    """Shared memory of a processor."""
    processor_warps: int
    processor_blocks: int
    registers: int = 65536
    """32-bit registers of a processor."""
    thread_registers: int = 255
    block_threads: int = 1024
    warp_threads: int = 32
    register_unit: int = 256
    """Registers are given to warps in multiples of this."""
    reserved_bytes: int = 1024
    """Shared memory that the system takes of each block."""


_CDNA_REGISTERS = 4 * 512 * 64
ARCHITECTURES = {
    "cuda:70": Limits(96 << 10, 96 << 10, 64, 32, reserved_bytes=0),
    "cuda:75": Limits(64 << 10, 64 << 10, 32, 16, reserved_bytes=0),
    "cuda:80": Limits(163 << 10, 164 << 10, 64, 32),
    "cuda:86": Limits(99 << 10, 100 << 10, 48, 16),
    "cuda:87": Limits(163 << 10, 164 << 10, 48, 16),
    "cuda:89": Limits(99 << 10, 100 << 10, 48, 24),
    "cuda:90": Limits(227 << 10, 228 << 10, 64, 32),
    "cuda:100": Limits(227 << 10, 228 << 10, 64, 32),
    "cuda:103": Limits(227 << 10, 228 << 10, 64, 32),
    "cuda:120": Limits(99 << 10, 100 << 10, 48, 24),
    "cuda:121": Limits(99 << 10, 100 << 10, 48, 24),
    "hip:gfx90a": Limits(64 << 10, 64 << 10, 32, 32, _CDNA_REGISTERS, 512, 1024, 64, 512, 0),
    "hip:gfx942": Limits(64 << 10, 64 << 10, 32, 32, _CDNA_REGISTERS, 512, 1024, 64, 512, 0),
    "hip:gfx950": Limits(160 << 10, 160 << 10, 32, 32, _CDNA_REGISTERS, 512, 1024, 64, 512, 0),
}
"""Targets whose limits are enforced. Others are compiled for, and their limits are not known."""
