"""Limits of each architecture that kernels are compiled for.

NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared memory of a block is that
of a processor less 1 KB, opted in). AMD: CDNA 2 and 3 instruction set architecture, and HIP's device properties: 64 KB
of local data share (160 KB on gfx950), 512 vector registers of a lane and SIMD unit, four SIMD units.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kernels_eval.cost.launch import AMD_OPTIONS, Launch
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.verdict import Resources

GRID = (2**31 - 1, 65535, 65535)
"""Programs in each direction, on all architectures."""
_LARGEST_INT32 = 2**31 - 1
_LARGEST_SEEN = 2**30
"""Indices at reduced sizes are far below this; lanes that are masked off may hold the largest integer."""
_GROWS = 1.5
"""Least growth of an index between two sizes of which one is twice the other. Values that are data do not grow."""


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
    block_threads: int = 1024
    warp_threads: int = 32
    register_unit: int = 256
    """Registers are given to warps in multiples of this."""
    reserved_bytes: int = 1024
    """Shared memory that the system takes of each block."""
    processors: int | None = None
    """Of the largest device; None: not known."""
    cluster: int = 1
    """Most blocks of a cluster (`num_ctas`)."""


_CDNA_REGISTERS = 4 * 512 * 64
ARCHITECTURES = {
    "cuda:70": Limits(96 << 10, 96 << 10, 64, 32, reserved_bytes=0),
    "cuda:75": Limits(64 << 10, 64 << 10, 32, 16, reserved_bytes=0),
    "cuda:80": Limits(163 << 10, 164 << 10, 64, 32, processors=108),
    "cuda:86": Limits(99 << 10, 100 << 10, 48, 16),
    "cuda:87": Limits(163 << 10, 164 << 10, 48, 16),
    "cuda:89": Limits(99 << 10, 100 << 10, 48, 24),
    "cuda:90": Limits(227 << 10, 228 << 10, 64, 32, processors=132, cluster=16),
    "cuda:100": Limits(227 << 10, 228 << 10, 64, 32, processors=148, cluster=16),
    "cuda:103": Limits(227 << 10, 228 << 10, 64, 32, cluster=16),
    "cuda:120": Limits(99 << 10, 100 << 10, 48, 24),
    "cuda:121": Limits(99 << 10, 100 << 10, 48, 24),
    "hip:gfx90a": Limits(64 << 10, 64 << 10, 32, 32, _CDNA_REGISTERS, 1024, 64, 512, 0),
    "hip:gfx942": Limits(64 << 10, 64 << 10, 32, 32, _CDNA_REGISTERS, 1024, 64, 512, 0),
    "hip:gfx950": Limits(160 << 10, 160 << 10, 32, 32, _CDNA_REGISTERS, 1024, 64, 512, 0),
}
"""Targets whose limits are enforced. Others are compiled for, and their limits are not known."""


class Exceeded(NamedTuple):
    """A limit of the device, as an error category and a message."""

    category: str
    message: str


def limit_of_launch(launch: Launch, targets: Iterable[str]) -> Exceeded | None:
    """Return the limit that a launch exceeds on one of the targets: by its grid, its warps, or its options."""
    for direction, size, most in zip("xyz", launch.grid or (), GRID, strict=False):
        if size > most:
            message = f"{launch.kernel}: a grid of {size} programs in {direction}, a GPU takes {most}"
            return Exceeded(ErrorCategory.GRID_LIMIT, message)
    for target in targets:
        limits = ARCHITECTURES.get(target)
        if limits is not None and launch.warps * limits.warp_threads > limits.block_threads:
            threads = launch.warps * limits.warp_threads
            found = f"num_warps={launch.warps} are {threads} threads of a program"
            return Exceeded(
                ErrorCategory.THREAD_LIMIT, f"{launch.kernel}: {found}, {target} takes {limits.block_threads}"
            )
        refused = _refused_options(launch, target, limits)
        if refused is not None:
            return Exceeded(ErrorCategory.EXCEPTION, f"{launch.kernel}: {refused}")
    return None


def _refused_options(launch: Launch, target: str, limits: Limits | None) -> str | None:
    """Return why a target takes no launch with these options."""
    foreign = next((name for name in launch.options if name in AMD_OPTIONS), None)
    if foreign is not None and target.startswith("cuda:"):
        return f"Triton's launcher takes the option {foreign} on AMD's devices alone, and raises a KeyError on {target}"
    if limits is None:
        return None
    blocks = launch.options.get("num_ctas", 1)
    if blocks > limits.cluster:
        return f"num_ctas={blocks}: a cluster has at most {limits.cluster} blocks on {target}"
    if launch.options.get("launch_cooperative_grid") and limits.processors is not None:
        together = limits.processors * min(limits.processor_blocks, limits.processor_warps // launch.warps)
        if launch.programs * blocks > together:
            found = f"{launch.programs * blocks:.0f} blocks of {launch.warps} warps"
            return f"a cooperative launch of {found}: {target} holds {together} at once at most"
    return None


def limit_of_code(resources: Iterable[Resources]) -> Exceeded | None:
    """Return the limit that compiled kernels exceed: shared memory of a program."""
    for used in resources:
        limits = ARCHITECTURES.get(used.architecture)
        if limits is not None and (used.shared_bytes or 0) > limits.shared_bytes:
            found = f"{used.shared_bytes} bytes of shared memory a program"
            message = f"{used.kernel}: {found}, {used.architecture} has {limits.shared_bytes}"
            return Exceeded(
                ErrorCategory.SHARED_MEMORY_LIMIT, f"{message}; smaller tiles or fewer num_stages need less"
            )
    return None


def limit_of_index(small: Launch, large: Launch, full: Launch) -> Exceeded | None:
    """Return the limit of 32-bit indices if those of two runs, extended to the full size, exceed it."""
    grows = _GROWS * small.largest_index <= large.largest_index < _LARGEST_SEEN
    if full.largest_index <= _LARGEST_INT32 or not grows:
        return None
    found = f"an int32 offset reaches {full.largest_index:.0f} at the problem's size and overflows at {_LARGEST_INT32}"
    return Exceeded(
        ErrorCategory.OFFSET_OVERFLOW, f"{full.kernel}: {found}; compute it in int64, as in program_id(0).to(tl.int64)"
    )
