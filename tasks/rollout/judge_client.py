"""Judge client, in the rollout worker: returns the verdict and reward of a response.

Faults of the judge stay faults: the kernel is judged once more, then the fault is recorded, and it is never rewarded.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.problem import Problem
from kernels_eval.rewards import Answer
from kernels_eval.verdict import Status, Verdict
from tasks.rollout.engines import FinishReason

logger = logging.getLogger("kernelmill.rollout")
ATTEMPTS = 2
"""Times that a kernel is handed to the judge before its fault is recorded."""


class AsyncJudge(Protocol):
    """Interface of a judge that rollouts use (`kernels_eval.Judge`)."""

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        """Judge one kernel; many calls may be under way."""
        ...


@dataclass(frozen=True, slots=True)
class JudgeWithSettings:
    """A judge that several stages share, with the settings of one of them."""

    judge: Any
    """`kernels_eval.Judge`, or judge actors."""
    settings: Mapping[str, Any]
    """Fields of JudgeConfig in which the stage differs from the judge."""

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        """Judge one kernel."""
        return await self.judge.evaluate_async(problem, kernel_source, settings=self.settings)


@dataclass(frozen=True, slots=True)
class JudgedResponse:
    """Verdict, rewards and time of one response."""

    verdict: Verdict
    score: float | None
    """Reward of the verdict alone: used for feedback and to end an episode. None for an infrastructure error."""
    reward: float | None
    """The score with the reward's terms on the answer; used for training."""
    seconds: float


@dataclass(frozen=True, slots=True)
class JudgeClient:
    """Judges responses: those without a kernel directly, the others through the judge."""

    judge: AsyncJudge
    reward: Callable[[Verdict, Answer | None], float]
    """Of a verdict alone, or of a verdict and the answer that it is on."""
    patience_s: float
    """Time that one kernel may wait for its verdict, the judge's queue included."""

    async def judge_response(
        self,
        problem: Problem,
        kernel: str | None,
        finish_reason: FinishReason,
        answer: Answer,
        name: str = "",
        reasoning_ended: bool = True,
    ) -> JudgedResponse:
        """Return the verdict on the kernel that `extract_kernel` found; `name` is used in the log."""
        started = time.perf_counter()
        if kernel is None:
            verdict = no_kernel_verdict(finish_reason, reasoning_ended)
        else:
            verdict = await self._verdict_on(problem, kernel, name or problem.problem_id)
        return self._rewarded(verdict, answer, time.perf_counter() - started)

    def repeat(self, verdict: Verdict, answer: Answer) -> JudgedResponse:
        """Return an earlier verdict as that on this answer, which keeps the kernel that it is on."""
        return self._rewarded(verdict, answer, 0.0)

    def _rewarded(self, verdict: Verdict, answer: Answer, seconds: float) -> JudgedResponse:
        if verdict.is_fault:
            return JudgedResponse(verdict, None, None, seconds)
        return JudgedResponse(verdict, self.reward(verdict, None), self.reward(verdict, answer), seconds)

    async def _verdict_on(self, problem: Problem, kernel: str, name: str) -> Verdict:
        verdict = fault_verdict(ErrorCategory.JUDGE_FAULT, "the judge was not asked")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(self.patience_s):
                    verdict = await self.judge.evaluate_async(problem, kernel)
            except TimeoutError:
                verdict = fault_verdict(
                    ErrorCategory.JUDGE_SILENT, f"{problem.problem_id}: no verdict in {self.patience_s:g} s"
                )
            except InfrastructureError as error:
                verdict = fault_verdict(ErrorCategory.JUDGE_FAULT, str(error))
            if not verdict.is_fault or verdict.error_category == ErrorCategory.REFERENCE_FAILED:
                break  # a problem that fails does so again
            consequence = "asked once more" if attempt < ATTEMPTS else "given up"
            logger.warning("%s: judgement: %s; %s", name, verdict.error_message, consequence)
        return verdict


def no_kernel_verdict(finish_reason: FinishReason, reasoning_ended: bool = True) -> Verdict:
    """Return the verdict on a response without a kernel: an error of the policy, not a fault."""
    if not reasoning_ended:
        category, message = (
            ErrorCategory.UNFINISHED_REASONING,
            "The reasoning did not come to an end, so that there is no answer.",
        )
    elif finish_reason is FinishReason.LENGTH:
        category, message = (
            ErrorCategory.TRUNCATED_ANSWER,
            "The answer reached the length limit before its code block was closed.",
        )
    else:
        category, message = ErrorCategory.NO_CODE_BLOCK, "The answer holds no complete Python code block."
    return Verdict(status=Status.COMPILE_ERROR, error_category=category, error_message=message)


def fault_verdict(category: str, message: str) -> Verdict:
    """Return the verdict of a machine failure."""
    return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category=category, error_message=message)
