"""Verdict: the judge's result for one kernel. It is data: stored, cached, shown to the model, and rewarded."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from kernels_eval.frozen import FrozenModel
from kernels_eval.plain_text import plain_text

Plain = Annotated[str, AfterValidator(plain_text)]
"""Text that a candidate or a compiler may have written, without escapes."""

JUDGE_VERSION = "43"
"""Raised whenever the same kernel could get another verdict; part of every cache key."""


class Status(StrEnum):
    """The outcome of one evaluation."""

    CORRECT = "correct"
    """Compiled, ran, and agreed with the oracle on every check."""
    INCORRECT = "incorrect"
    """Ran, and its output was wrong."""
    COMPILE_ERROR = "compile_error"
    """The source is not Python, does not define ModelNew, or a compiler refused one of its kernels."""
    RUNTIME_ERROR = "runtime_error"
    """Raised, crashed, or asked for more memory than allowed."""
    TIMEOUT = "timeout"
    """Ran longer than allowed."""
    REJECTED = "rejected"
    """Broke a rule: did not do the work itself, or tried to cheat. `rejection_reason` names the rule."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"
    """The judge or the machine failed. Says nothing of the kernel, and is never turned into a reward."""


class TimingSource(StrEnum):
    """Source of the times. An estimate is never shown beside a measurement without it."""

    GPU = "gpu"
    ROOFLINE = "roofline"


class Resources(FrozenModel):
    """Resources of one kernel on one architecture, from the compiler."""

    kernel: Plain
    architecture: str
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None


class KernelTime(FrozenModel):
    """Device time of one kernel in one call of a candidate. Calls may launch it several times, or not every time."""

    name: Plain
    launches: float
    microseconds: float
    is_own: bool
    """The candidate's source defines it: it is no library's."""


MOST_KERNELS = 20
"""Kernels that a profile names."""


class Profile(FrozenModel):
    """Profile of one call of a correct kernel on a GPU, for feedback.

    Names and times of the kernels come from the candidate's process, which Python code can rewrite: they are no
    evidence. The rates follow from the judge's own time.
    """

    kernels: tuple[KernelTime, ...]
    """Kernels that compute, the one that takes most time first; MOST_KERNELS at most."""
    launches: float
    """Launches of all of them."""
    own_share: float
    """Share of the device time that the candidate's own kernels take."""
    gigabytes_per_s: float
    """Inputs and outputs, each moved once, by the time of a call."""
    teraflops_per_s: float
    """Matrix products of the reference, by the time of a call."""
    roofline_share: float
    """Time that the device needs at its peak rates for those bytes and products, by the time of a call."""


class IssueKind(StrEnum):
    """Classes of issues."""

    STRIDED_ACCESS = "strided_access"
    REDUNDANT_TRAFFIC = "redundant_traffic"
    MANY_LAUNCHES = "many_launches"
    TINY_BLOCKS = "tiny_blocks"
    OVERSIZED_BLOCKS = "oversized_blocks"
    LOW_OCCUPANCY = "low_occupancy"
    SPILLS = "spills"
    TAIL_EFFECT = "tail_effect"
    NO_TENSOR_CORES = "no_tensor_cores"
    MASKED_LANES = "masked_lanes"


class Issue(FrozenModel):
    """Cause that keeps a correct kernel from the device's best, with the figure that shows it and a remedy."""

    kind: IssueKind
    kernel: str | None = None
    """None: of the whole call."""
    line: int = 0
    """Line that launches the kernel; 0: not known, or of the whole call."""
    value: float
    """The figure that triggered it."""
    limit: float
    """The figure from which on it is an issue."""
    message: str
    remedy: str


class Efficiency(FrozenModel):
    """Use that a correct kernel makes of memory and registers, each from 0 to 1; the reward `four_part` has it."""

    memory: float
    """Without a GPU: bytes that the problem needs over those that the launches move, as counted. On one, which counts
    none: time that the device needs for them at its peak rates, over that of a call."""
    registers: float
    """Warps for which a processor has registers over those that it can hold, of the kernel with the fewest; 1 where it
    was not compiled. On a GPU the candidate's process reads the registers off the compiled kernel."""


class Cell(FrozenModel):
    """Result at one workload of a problem that lists several (kernels_eval.workloads)."""

    workload: str
    """Its constants in words: `batch_size=16, dim=1000`."""
    status: Status
    speedup: float | None = None
    candidate_ms: float | None = None
    reference_ms: float | None = None
    error_category: str | None = None
    """The category or the broken rule, if it is not correct."""


MEASURED = ("error_message", "max_abs_error", "max_rel_error", "sandbox", "seed_commitment", "profile")
"""Fields of a verdict that differ from one evaluation of a kernel to the next: they depend on what was drawn secretly,
and on the machine. No later stage of a run depends on them."""


class Verdict(FrozenModel):
    """One evaluation of one kernel against one problem."""

    status: Status
    compiled: bool = False
    correct: bool = False
    speedup: float | None = None
    """reference_ms / candidate_ms; None unless correct."""
    candidate_ms: float | None = None
    reference_ms: float | None = None
    second_reference_ms: float | None = None
    """The reference's time under the setting `second_baseline`, if there is one, on a GPU; None unless correct."""
    sol_score: float | None = None
    """On a GPU, 1 / (1 + (candidate - roof) / (baseline - roof)), at most 1. The baseline is the faster one of the
    reference's two times, where it is 0.5; the roof is the time for the problem's bytes at the measured rate of the
    device's memory, or for its matrix products at their peak rate. None unless correct, and where the reference is at
    that roof already."""
    timing_source: TimingSource | None = None
    rejection_reason: str | None = None
    """A stable snake_case name of the broken rule; None unless rejected."""
    error_category: str | None = None
    """A stable snake_case name, e.g. `syntax_error`, `triton_compile`, `wrong_values`: a value of
    kernels_eval.error_categories.ErrorCategory, or one that a user's own back end adds."""
    error_message: Plain | None = None
    """Message of the compiler, the exception or the first mismatch."""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    executed_size: int | None = None
    """Largest leading size of the inputs that the kernels were run at; None on a GPU, where it is the full one."""
    full_size: int | None = None
    """The problem's own leading size; None on a GPU, or if no input has one."""
    judged_at: str | None = None
    """Sizes of the first input, of those of the problem, where a problem too large to be interpreted was judged with
    smaller constants: `4 × 16 × 16 of 64 × 512 × 512`. Then `executed_size` is the leading one of the former. None: the
    leading size alone was reduced, if any was."""
    resources: tuple[Resources, ...] = ()
    profile: Profile | None = None
    """Kernels and rates of a call, on a GPU; None unless correct."""
    efficiency: Efficiency | None = None
    """None unless correct; verdicts of JUDGE_VERSION 23 and before have none."""
    issues: tuple[Issue, ...] = ()
    """Issues of a correct kernel, those of the whole call first. Without a GPU all classes are looked for; on one those
    that the profile and the compiler show."""
    cells: tuple[Cell, ...] = ()
    """Results by workload, of a problem that lists several; the others are then of all of them."""
    warnings: tuple[str, ...] = ()
    """Properties that a correct kernel relies on and Triton does not promise. Found without a GPU."""
    judge_version: str = JUDGE_VERSION
    hardware: str = ""
    sandbox: str = ""
    """Parts of the sandbox that were in force, e.g. `process,rlimits,seccomp`."""
    seed_commitment: str = ""
    """SHA-256 of the secret seed that the inputs were drawn from."""
    provided: tuple[str, ...] = ()
    """Modules and names that the source imports and that the judge provided to it: of earlier versions of PyTorch, and
    matplotlib, without effect."""

    @property
    def is_fault(self) -> bool:
        """True if the machine failed: the verdict says nothing of the kernel."""
        return self.status is Status.INFRASTRUCTURE_ERROR


def fault(category: str, message: str) -> Verdict:
    """Return the verdict of a failed machine, which says nothing of the kernel."""
    return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category=category, error_message=message)
