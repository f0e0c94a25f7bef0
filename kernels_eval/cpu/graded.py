"""CPU worker: the result of grading one candidate: its verdict, and what further runs and the compiler need."""

from dataclasses import dataclass, field

from kernels_eval.config import JudgeConfig
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.roofline import total_s
from kernels_eval.cpu.largest_size import SeenRun
from kernels_eval.cpu.size_schedule import Sizes, is_library
from kernels_eval.cpu.trials import Errors
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.inspection.figures import Work
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.trace.schema import KernelSource, TraceAnswer
from kernels_eval.verdict import Status, TimingSource, Verdict

_MIN_KERNEL_TIME = 0.3


@dataclass
class Graded:
    """Verdict, and the launches at the full size (the kernels to compile)."""

    verdict: Verdict
    launches: list[Launch] = field(default_factory=list)
    kernels: list[KernelSource] = field(default_factory=list)
    """Sources of the kernels launched."""
    follow_up: Sizes | None = None
    """Sizes to judge again at, because programs did not grow with the rows as expected, or None."""
    needs_follow_up: bool = True
    """True if the verdict cannot be trusted without `follow_up`; False if only its times are less exact."""
    tells_turns: bool = False
    """True if the text tells that programs whose number does not grow with the rows take all rows."""
    executed_size: int | None = None
    """Largest leading size that kernels were run at."""
    seen: SeenRun | None = None
    """Trial to estimate the time of larger ones from; None if the full size was run."""
    is_steep: bool = False
    """True if the work of a kernel that ran at smaller sizes may grow faster than the rows."""
    full_trace: TraceAnswer | None = None
    """Program at the full size."""
    counted: list[Launch] = field(default_factory=list)
    """Launches as counted at the largest size that was run."""
    has_read: bool = False
    """True if host code has read values."""
    alternatives: list[list[Launch]] = field(default_factory=list[list[Launch]])
    """Launches at the full size in other configurations of autotuned kernels, those with the least time first."""
    alternative_kernels: list[KernelSource] = field(default_factory=list)
    work: Work = field(default_factory=Work)
    """Work that the reference cannot do without."""
    is_drawn: bool = True
    """True if secret draws had a part in the verdict or its message: kernels ran, or host code got plain numbers."""
    warnings: tuple[str, ...] = ()
    """Properties that a correct kernel relies on and other devices do not promise."""
    is_certain: bool = False
    """True if a kernel that ran is wrong in the same way whatever is drawn: only its message depends on that."""

    @property
    def is_ended(self) -> bool:
        """True if the judge's time or memory did not suffice."""
        verdict = self.verdict
        return verdict.status is Status.TIMEOUT or verdict.error_category == ErrorCategory.OUT_OF_MEMORY


def timed(
    reference: Reference,
    launches: list[Launch],
    kernels: list[KernelSource],
    config: JudgeConfig,
    errors: Errors,
) -> Graded:
    """Return a correct verdict with its estimated times, or, under `mixed`, a refusal if the library did the work."""
    hardware = HARDWARE[config.roofline_hardware]
    candidate_s = total_s(launches, hardware)
    reference_s = total_s(reference.eager_launches, hardware)
    on_device = [item for item in launches if not item.host_wait]
    own_s = total_s([item for item in on_device if not (is_library(item) or item.is_copy)], hardware)
    device_s = total_s(on_device, hardware)
    if own_s < _MIN_KERNEL_TIME * device_s and config.policy == "mixed":
        failed = CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.LIBRARY_COMPUTE,
            f"own kernels take {own_s / device_s:.0%} of the device time",
        )
        return Graded(failed.verdict(compiled=True))
    verdict = Verdict(
        status=Status.CORRECT,
        compiled=True,
        correct=True,
        speedup=reference_s / candidate_s,
        candidate_ms=1e3 * candidate_s,
        reference_ms=1e3 * reference_s,
        timing_source=TimingSource.ROOFLINE,
        max_abs_error=errors.absolute,
        max_rel_error=errors.relative,
    )
    return Graded(verdict, launches, kernels)
