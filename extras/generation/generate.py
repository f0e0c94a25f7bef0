"""Turns a problem into a verified kernel: the search, then a stricter judgement of its best kernels until one passes.

The last judgement draws its inputs anew, takes more of them, and runs the kernel at the problem's own size, or without
a GPU at the largest one that takes no more than `judge.full_size_s`: the best of many kernels is the one that was lucky
too. On a GPU its time is measured again.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from extras.adapters.scoring import Scorer
from extras.generation.config import SearchConfig
from extras.generation.result import GeneratedKernel, finished
from extras.generation.search import Attempt, Choice, Search, ranked
from extras.generation.writers import Writer
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu.device.detection import gpu_name
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.verdict import TimingSource, Verdict

VERIFICATION = {
    "trials": 5, "full_size_share": 1.0, "compile": "correct", "compile_share": 1.0, "baseline": "eager",
}  # fmt: skip
"""Settings of the last judgement."""
_VERIFIED_AT_MOST = 5
"""Best kernels that the last judgement is tried on."""


class VerifyingJudge(Protocol):
    """A judge with settings for one kernel (`kernels_eval.Judge`)."""

    @property
    def config(self) -> JudgeConfig:
        """Settings of all kernels."""
        ...

    async def evaluate_async(
        self, problem: Problem, kernel_source: str, backend: str | None = None, settings: Any = None
    ) -> Verdict:
        """Judge one kernel."""
        ...


def hardware_of(judge: JudgeConfig) -> str:
    """Return the GPU that speed-ups are of: the one that times kernels, or the one they are estimated for."""
    return (gpu_name() or "") if judge.device == "cuda" else f"triton-interpreter/{judge.roofline_hardware}"


async def generate(
    problem: Problem,
    writer: Writer,
    scorer: Scorer,
    judge: VerifyingJudge,
    config: SearchConfig,
    on_attempt: Callable[[Attempt], None] = lambda _: None,
    earlier: Sequence[Attempt] = (),
    choice: Choice | None = None,
) -> GeneratedKernel:
    """Return the fastest kernel that could be verified, or the original.

    `scorer`: on the same judge, with `episode_for_search`. `earlier`: attempts of an interrupted search. `choice`: of
    the answers that are judged. Raises InputError for a bad problem, InfrastructureError if judge or model do not
    answer, not even once in the time.
    """
    check_problem_source(problem.source, problem.problem_id)
    began = time.monotonic()
    search = Search(problem, writer, scorer, config, on_attempt, earlier, choice)
    stopped = await search.run()
    if not search.attempts:
        raise InfrastructureError(f"no answer was judged in {config.seconds:g} s: model or judge are too slow")
    verified, failed = await _verified(problem, judge, search.attempts, config.min_speedup)
    seconds = time.monotonic() - began + max((attempt.at_s for attempt in earlier), default=0.0)
    policy, hardware = (writer.name, writer.digest), hardware_of(judge.config)
    return finished(problem, policy, search.attempts, verified, failed, hardware, seconds, stopped)


async def _verified(
    problem: Problem, judge: VerifyingJudge, attempts: Sequence[Attempt], min_speedup: float
) -> tuple[tuple[Attempt, Verdict, float | None] | None, int]:
    """Return the fastest kernel that passes, with its verdict and speed-up over torch.compile; how many failed."""
    fast = [attempt for attempt in ranked(attempts) if (attempt.verdict.speedup or 0) >= min_speedup]
    for failed, attempt in enumerate(fast[:_VERIFIED_AT_MOST]):
        verdict = await _judged(problem, judge, attempt, VERIFICATION)
        if verdict.correct and (verdict.speedup or 0) >= min_speedup:
            return (attempt, verdict, await _over_compile(problem, judge, attempt, verdict)), failed
    return None, min(len(fast), _VERIFIED_AT_MOST)


async def _over_compile(problem: Problem, judge: VerifyingJudge, attempt: Attempt, verdict: Verdict) -> float | None:
    """Return the measured speed-up over torch.compile; None where times are estimated, or if it is not correct then."""
    if verdict.timing_source is not TimingSource.GPU:
        return None
    return (await _judged(problem, judge, attempt, {**VERIFICATION, "baseline": "compile"})).speedup


async def _judged(problem: Problem, judge: VerifyingJudge, attempt: Attempt, settings: dict[str, Any]) -> Verdict:
    verdict = await judge.evaluate_async(problem, attempt.kernel_source or "", None, settings)
    if verdict.is_fault:
        raise InfrastructureError(f"the best kernel could not be judged again: {verdict.error_message}")
    return verdict
