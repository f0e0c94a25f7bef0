"""Result of a search: the kernel as a file that can be imported, its speed-up, and the evidence."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from pydantic import Field

from extras.generation.search import Attempt, Stop
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem
from kernels_eval.verdict import JUDGE_VERSION, TimingSource, Verdict


class Outcome(StrEnum):
    """Kind of module that was returned."""

    IMPROVED = "improved"
    """A verified kernel that is faster than the original."""
    ORIGINAL = "original"
    """The original: no kernel was verified to be faster."""


class TokenUsage(FrozenModel):
    """Cost of all answers, by the model's own count; 0 if a server does not say."""

    prompt: int = 0
    completion: int = 0


class GeneratedKernel(FrozenModel):
    """A module's replacement."""

    outcome: Outcome
    source: str
    """Python file that defines `ModelNew`: the kernel, or the original under this name; its comments say which."""
    kernel_source: str | None = None
    """The kernel as the model wrote it; None if the outcome is `original`."""
    verdict: Verdict | None = None
    """Verdict of the last judgement: more inputs than in the search, drawn anew; `executed_size` is the largest size
    that it was run at."""
    speedup: float | None = None
    """Over the original in eager mode, from `verdict`."""
    speedup_over_compile: float | None = None
    """Over the original under torch.compile; None where times are estimated."""
    estimated: bool | None = None
    """True if the speed-up is a roofline estimate, False if it was measured on a GPU; None without a kernel."""
    problem_digest: str
    policy: str
    """Name of the model."""
    policy_digest: str
    judge_version: str = JUDGE_VERSION
    hardware: str = ""
    judged: int
    """Answers that were judged."""
    statuses: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of answers by status."""
    unverified: int = 0
    """Kernels that were fast in the search and failed the last judgement."""
    tokens: TokenUsage = TokenUsage()
    seconds: float
    stopped: Stop

    @property
    def line(self) -> str:
        """The result in one sentence."""
        cost = f"{self.judged} answers judged in {self.seconds:.0f} s"
        if self.outcome is Outcome.ORIGINAL or self.speedup is None:
            return f"no kernel is verified to be faster than the original, which is returned; {cost}"
        return f"verified: {self.speedup:.2f}x the speed of the original in eager mode ({self.mark}); {cost}"

    @property
    def mark(self) -> str:
        """The source of the speed-up, as it is shown beside it."""
        return "roofline estimate" if self.estimated else "measured"


def finished(
    problem: Problem,
    policy: tuple[str, str],
    attempts: Sequence[Attempt],
    verified: tuple[Attempt, Verdict, float | None] | None,
    unverified: int,
    hardware: str,
    seconds: float,
    stopped: Stop,
) -> GeneratedKernel:
    """Return the result. `verified`: the kernel that was judged last, its verdict and speed-up over torch.compile."""
    result = GeneratedKernel(
        outcome=Outcome.ORIGINAL,
        source="",
        problem_digest=problem.digest,
        policy=policy[0],
        policy_digest=policy[1],
        hardware=hardware,
        judged=len(attempts),
        statuses=dict(Counter(attempt.verdict.status.value for attempt in attempts)),
        unverified=unverified,
        tokens=TokenUsage(
            prompt=sum(attempt.prompt_tokens for attempt in attempts),
            completion=sum(attempt.completion_tokens for attempt in attempts),
        ),
        seconds=round(seconds, 3),
        stopped=stopped,
    )
    if verified is None:
        return result.model_copy(update={"source": original_file(result, problem)})
    attempt, verdict, over_compile = verified
    result = result.model_copy(
        update={
            "outcome": Outcome.IMPROVED,
            "kernel_source": attempt.kernel_source,
            "verdict": verdict,
            "speedup": verdict.speedup,
            "speedup_over_compile": over_compile,
            "estimated": verdict.timing_source is not TimingSource.GPU,
            "hardware": verdict.hardware,
        }
    )
    return result.model_copy(update={"source": kernel_file(result, attempt.kernel_source or "")})


def kernel_file(result: GeneratedKernel, kernel_source: str) -> str:
    """Return the kernel with comments on its evidence at the top."""
    verdict = result.verdict
    assert verdict is not None
    sizes = (
        ""
        if verdict.executed_size is None
        else f"; run at a leading size of {verdict.executed_size} of {verdict.full_size}"
    )
    return _commented(
        [
            f"ModelNew: a kernel for the problem {result.problem_digest}, written by {result.policy}, judged by "
            f"kernelmill (judge version {result.judge_version}).",
            f"Verdict: {verdict.status.value}{sizes}.",
            f"Speed-up over the original in eager mode: {result.speedup:.2f} ({result.mark}, {result.hardware}).",
            "Written by a language model: read it before you import it. It has no backward pass.",
        ],
        kernel_source,
    )


def original_file(result: GeneratedKernel, problem: Problem) -> str:
    """Return the original with its class under the name `ModelNew` too."""
    said = f"ModelNew is the original: of {result.judged} judged answers no kernel is verified to be faster."
    return _commented([said], problem.source.rstrip("\n") + "\n\n\nModelNew = Model\n")


def _commented(lines: Sequence[str], source: str) -> str:
    comments = "".join(f"# {' '.join(line.split())}\n" for line in lines)
    return f"{comments}\n{source.lstrip(chr(10))}"
