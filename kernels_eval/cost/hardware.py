"""Hardware: rates and sizes of the GPUs whose speed is estimated."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernels_eval.cost.launch import Operation


@dataclass(frozen=True)
class Hardware:
    """Figures of one GPU. Those with a default are fitted to an H100's times (docs/estimates.md) and used for all."""

    name: str
    architecture: str
    """Target whose resources (registers, shared memory) set the occupancy."""
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    half_flops: float
    """Dense rate of matrix products in fp16 and bf16."""
    processors: int
    """Streaming multiprocessors or compute units."""
    clock_hz: float
    issue: float
    """Instructions of one lane that a processor issues in a clock, over all pipes."""
    lanes: Mapping[Operation, float]
    """Operations that one processor completes in a clock."""
    cache_bytes: float
    """Others' data in the L2 cache that a call has to write back first: 0.38 of its size, fitted for the H100."""
    call_s: float = 2.2e-6
    """Start of a call."""
    launch_s: float = 2.3e-6
    """Gap between two dependent kernels on a stream."""
    program_s: float = 0.76e-6
    """Shortest life of one program (one trip to DRAM and back, and its prologue)."""
    access_s: float = 0.15e-6
    """Time for which one load keeps a program waiting."""
    turn_s: float = 0.45e-6
    """Time for which a program waits beyond `access_s` in each turn of a loop in which it loads: by an H200's time of
    eight programs for 2048 rows, 0.62 us a row with its load and its reduction (docs/lab/2026-11-29-8.json)."""
    reduction_s: float = 0.022e-6
    """Time for which one reduction keeps a program waiting."""
    read_s: float = 25e-6
    """A value that host code reads: the wait for it, and for the launch that follows it."""
    synchronise_s: float = 15e-6
    """Another synchronisation, likewise."""
    upload_s: float = 30e-6
    """An upload of what host code made in the call, without its bytes."""
    made_bytes_per_s: float = 100e6
    """Rate at which host code makes and uploads them: 40 ns for a float32."""
    atomic_s: float = 1.76e-9
    """Time between two atomics on one address, or of two warps on one sector."""
    spill_factor: float = 1.4
    """Times that each spilled byte is written or read."""
    memory_share: float = 0.36
    """Share of the processors that keeps the DRAM busy."""
    reuse_bytes: float = 30e6
    """Bytes that a launch can move before the next one finds nothing in the cache."""
    kept_caches: float = 2.05
    """Bytes that programs which run at a time find again, over `cache_bytes`: 0.78 of the L2 cache's size,
    by an H200's times for rows of 64 KB to 1 MB that are read twice (docs/estimates.md)."""
    busy_warps: float = 20.0
    """Warps that keep the units of one processor busy."""
    overlap: float = 2.5
    """Exponent by which memory, arithmetic and waiting overlap: 1 is their sum, a large one the longest of them."""
    integer_share: float = 0.07
    """Integer additions and comparisons that remain after the compiler merged addresses of neighbours."""


def _lanes(fp32: float, alu: float, fp64: float, half: float) -> dict[Operation, float]:
    """Return rates by unit. `half`: operations of products in half precision."""
    return {
        "fp32": fp32, "alu": alu, "integer": alu, "sfu": 16.0, "fp64": fp64, "exchange": 32.0, "atomic": 2.0,
        "dot_half": half, "dot_tf32": half / 2, "dot_byte": 2 * half, "dot_fp32": 2 * fp32, "dot_fp64": 2 * fp64,
    }  # fmt: skip


# Instructions in a clock: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" (8.0 and 9.0).
HARDWARE = {
    # NVIDIA H100 SXM5 data sheet: 3.35 TB/s, 67 TFLOPS fp32, 989 TFLOPS bf16, 50 MB of L2; L2 about 5.5 TB/s (Chips
    # and Cheese). 67 TFLOPS are 2 x 128 lanes x 132 processors at 1.98 GHz.
    "h100": Hardware(
        "h100", "cuda:90", 3.35e12, 5.5e12, 989e12, 132, 1.98e9, 128, _lanes(128, 64, 64, 989e12 / 132 / 1.98e9), 19e6
    ),
    # NVIDIA A100 SXM4 80 GB data sheet: 2.04 TB/s, 19.5 TFLOPS fp32, 312 TFLOPS bf16, 40 MB of L2; L2 about 4.5 TB/s.
    "a100": Hardware(
        "a100", "cuda:80", 2.04e12, 4.5e12, 312e12, 108, 1.41e9, 128, _lanes(64, 64, 32, 312e12 / 108 / 1.41e9), 15e6
    ),
    # AMD MI300X data sheet: 5.3 TB/s, 163.4 TFLOPS fp32 (packed), 1307 TFLOPS bf16; Infinity Cache 256 MB, 17 TB/s
    # peak, 11 measured. Transcendental functions run at a quarter of the rate of 64 lanes (CDNA 3 ISA).
    "mi300x": Hardware(
        "mi300x", "hip:gfx942", 5.3e12, 11e12, 1307e12, 304, 2.1e9, 128,
        _lanes(128, 64, 64, 1307e12 / 304 / 2.1e9), 97e6,
    ),
}  # fmt: skip
