"""CPU worker: times a correct kernel again by what was counted in its run at a larger size.

An estimate extends the counts of two small sizes in a line. A kernel whose every program reads all rows does work that
grows with the square of the rows: at the full size it takes many times as long as the line says.
"""

from collections.abc import Sequence

from kernels_eval.config import JudgeConfig
from kernels_eval.cost.extrapolation import extrapolate, with_least_work, with_traffic
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.roofline import total_s
from kernels_eval.cpu.graded import Graded
from kernels_eval.cpu.largest_size import growth

STEEP = 1.3
"""Exponent of the growth of a kernel's work with the leading size, beyond which a line does not describe it."""
_MUCH = 1.25
"""Ratio of the two times up to which the estimate stays as it is: what was run is drawn, and times should not be."""


def recount(graded: Graded, launches: Sequence[Launch], size: int, full_size: int, config: JudgeConfig) -> None:
    """Raise the estimated time of a correct kernel if its launches at a larger size take much longer than estimated.

    `launches`: as counted at `size`. Below the full size they are extended from there.
    """
    names = [launch.kernel for launch in launches]
    estimated, others = graded.launches[: len(names)], graded.launches[len(names) :]
    verdict = graded.verdict
    if [launch.kernel for launch in estimated] != names or verdict.candidate_ms is None:
        return
    if size < full_size:
        if graded.seen is None or [launch.kernel for launch in graded.counted] != names:
            return
        exponent = growth(graded.counted, launches, size / graded.seen.size)
        line = extrapolate(graded.counted, launches, graded.seen.size, size, full_size)
        launches = with_least_work(line, launches, (full_size / size) ** exponent) if exponent > STEEP else line
    again = [*with_traffic(estimated, launches), *others]
    candidate_ms = 1e3 * total_s(again, HARDWARE[config.roofline_hardware])
    if candidate_ms <= _MUCH * verdict.candidate_ms:
        return
    speedup = None if verdict.reference_ms is None else verdict.reference_ms / candidate_ms
    graded.launches, graded.alternatives = again, []
    graded.verdict = verdict.model_copy(update={"candidate_ms": candidate_ms, "speedup": speedup})
