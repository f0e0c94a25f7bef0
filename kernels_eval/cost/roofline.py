"""Roofline: the estimated time of a sequence of kernel launches on a GPU that this machine does not have.

For each launch: `launch_s + max(dram / bandwidth, l2 / l2_bandwidth, flops / peak) / occupancy + programs /
program_rate`. The same formula is used for the candidate (counted in the interpreter) and for the eager reference
(counted per operator), hence the ratio is better than the absolute time. It leaves out latencies inside a program,
register pressure and bank conflicts, and is marked `roofline` wherever it is shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kernels_eval.cost.launch import Launch


@dataclass(frozen=True)
class Hardware:
    """Figures of one GPU. Sources: the vendors' data sheets; L2 bandwidth from published microbenchmarks."""

    name: str
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    fp32_flops: float
    half_flops: float
    """Dense tensor-core rate for fp16 and bf16."""
    processors: int
    """Streaming multiprocessors or compute units."""
    launch_s: float = 3e-6
    """Gap between two dependent kernels on a stream."""
    program_s: float = 1e-6
    """Shortest life of one program (one trip to DRAM and back, and its prologue)."""
    programs_per_processor: int = 8
    """Programs that run on one processor at the same time."""


HARDWARE = {
    # NVIDIA H100 SXM5 data sheet: 3.35 TB/s, 67 TFLOPS fp32, 989 TFLOPS bf16; L2 about 5.5 TB/s (Chips and Cheese).
    "h100": Hardware("h100", 3.35e12, 5.5e12, 67e12, 989e12, 132),
    # NVIDIA A100 SXM4 80 GB data sheet: 2.04 TB/s, 19.5 TFLOPS fp32, 312 TFLOPS bf16; L2 about 4.5 TB/s.
    "a100": Hardware("a100", 2.04e12, 4.5e12, 19.5e12, 312e12, 108),
    # AMD MI300X data sheet: 5.3 TB/s, 163.4 TFLOPS fp32, 1307 TFLOPS bf16; Infinity Cache 17 TB/s peak, 11 measured.
    "mi300x": Hardware("mi300x", 5.3e12, 11e12, 163.4e12, 1307e12, 304),
}


def time_of(launch: Launch, hardware: Hardware, half: bool) -> float:
    """Return the seconds of one launch. `half`: its matrix products run at the fp16/bf16 rate."""
    peak = hardware.half_flops if half else hardware.fp32_flops
    busy = max(
        launch.dram_bytes / hardware.dram_bytes_per_s,
        launch.l2_bytes / hardware.l2_bytes_per_s,
        launch.flops / peak,
        launch.vector_flops / hardware.fp32_flops,
    )
    # Fewer programs than processors leave the others idle; one processor alone does not reach more than its share.
    occupancy = min(1.0, max(launch.programs, 1.0) / hardware.processors)
    waves = launch.programs / (hardware.processors * hardware.programs_per_processor)
    return hardware.launch_s + busy / occupancy + hardware.program_s * waves


def total_s(launches: Sequence[Launch], hardware: Hardware, half: bool) -> float:
    """Return the seconds of launches that follow one another."""
    return sum(time_of(launch, hardware, half) for launch in launches)


_COUNTS = ("programs", "dram_bytes", "l2_bytes", "flops", "vector_flops")


def extrapolate(
    small: Sequence[Launch],
    large: Sequence[Launch],
    m1: int,
    m2: int,
    m: int,
    true: Sequence[Launch] = (),
    given: Sequence[int] = (),
) -> list[Launch]:
    """Extend counts at leading sizes m1 < m2 to the full size m; every count is affine in the leading size.

    Launches are paired in order where both runs made the same ones; otherwise (a host loop over rows) the totals are
    extended and shared out over the extended number of launches.

    A kernel that does more at m1 than it has to would flatten the line. If the launches at the full size are known
    (`true`, and `given`, the bytes that each is passed and that no kernel made), no count is below an extension of the
    m2 run alone: each program does what one did there, and each row moves what one moved there, except for reads of
    tensors whose size does not depend on the leading size.
    """

    def at(first: float, second: float) -> float:
        slope = (second - first) / (m2 - m1)
        return max(second + slope * (m - m2), 0.0)

    def combined(first: Launch, second: Launch, share: float) -> Launch:
        return second.model_copy(
            update={name: at(getattr(first, name), getattr(second, name)) / share for name in _COUNTS}
            | {"is_copy": first.is_copy and second.is_copy}
        )

    if [launch.kernel for launch in small] == [launch.kernel for launch in large]:
        estimated = [combined(first, second, 1.0) for first, second in zip(small, large, strict=True)]
        if len(true) != len(large) or len(given) != len(large):
            return estimated
        return [_at_least(*each, m / m2) for each in zip(estimated, large, true, given, strict=True)]
    count = max(1, round(at(len(small), len(large))))
    return [combined(_sum(small), _sum(large), count)] * count


def with_full_grids(estimated: Sequence[Launch], grids: Sequence[Launch]) -> list[Launch]:
    """Replace estimated numbers of programs by those that the candidate launches at the full size, as traced.

    `grids`: the same launches in the same order, with programs and argument types of the full size but no traffic
    (kernels), or counted in full (operators of PyTorch). Other launches are left as estimated.
    """
    if [launch.kernel for launch in estimated] != [launch.kernel for launch in grids]:
        return list(estimated)
    return [
        grid
        if grid.dram_bytes
        else grid.model_copy(
            update={
                "dram_bytes": launch.dram_bytes,
                "l2_bytes": launch.l2_bytes,
                "flops": launch.flops,
                "vector_flops": launch.vector_flops,
                "is_copy": launch.is_copy,
            }
        )
        for launch, grid in zip(estimated, grids, strict=True)
    ]


def _at_least(estimated: Launch, counted: Launch, true: Launch, given: int, rows: float) -> Launch:
    """Raise an estimate to the extension of one run alone. `rows`: the full size over the size of that run."""
    programs = true.programs / counted.programs if counted.programs else rows
    made = (counted.dram_bytes - counted.given_bytes) * rows
    floors = {
        "dram_bytes": made + min(counted.given_bytes * rows, max(float(given), counted.given_bytes)),
        "l2_bytes": counted.l2_bytes * programs,
        "flops": counted.flops * programs,
        "vector_flops": counted.vector_flops * programs,
    }
    return estimated.model_copy(update={name: max(getattr(estimated, name), floor) for name, floor in floors.items()})


def _sum(launches: Sequence[Launch]) -> Launch:
    return Launch(
        kernel="all",
        programs=sum(launch.programs for launch in launches),
        dram_bytes=sum(launch.dram_bytes for launch in launches),
        l2_bytes=sum(launch.l2_bytes for launch in launches),
        flops=sum(launch.flops for launch in launches),
        vector_flops=sum(launch.vector_flops for launch in launches),
    )
