"""From a response to its verdict and reward. Faults of the judge stay faults: asked once more, then recorded, never rewarded."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kernels_eval.errors import InfrastructureError
from kernels_eval.problem import Problem
from kernels_eval.rewards import Answer
from kernels_eval.verdict import Status, Verdict
from tasks.rollout.engines import FinishReason

logger = logging.getLogger("kernelmill.rollout")
ATTEMPTS = 2
"""Times that a kernel is handed to the judge before its fault is recorded."""


class AsyncJudge(Protocol):
    """What rollouts need of a judge (`kernels_eval.Judge`)."""

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        """Judge one kernel; many calls may be under way."""
        ...


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and what it took."""

    verdict: Verdict
    score: float | None
    """What the verdict alone is worth: what the policy is told, and what ends an episode. None for an infrastructure error."""
    reward: float | None
    """The score with the reward's terms on the answer: what is trained on."""
    seconds: float


@dataclass(frozen=True, slots=True)
class JudgeClient:
    """Judges responses: those without a kernel itself, the others through the judge."""

    judge: AsyncJudge
    reward: Callable[[Verdict, Answer | None], float]
    """Of a verdict alone, or of a verdict and the answer that it is on."""
    patience_s: float
    """How long one kernel may wait for its verdict, the judge's queue included."""

    async def judge_response(
        self,
        problem: Problem,
        kernel: str | None,
        finish_reason: FinishReason,
        answer: Answer,
        name: str = "",
        reasoning_ended: bool = True,
    ) -> Judged:
        """Return the verdict on what `extract_kernel` found in an answer; `name` is what the log calls it."""
        started = time.perf_counter()
        if kernel is None:
            verdict = no_kernel_verdict(finish_reason, reasoning_ended)
        else:
            verdict = await self._verdict_on(problem, kernel, name or problem.problem_id)
        seconds = time.perf_counter() - started
        if verdict.is_fault:
            return Judged(verdict, None, None, seconds)
        return Judged(verdict, self.reward(verdict, None), self.reward(verdict, answer), seconds)

    async def _verdict_on(self, problem: Problem, kernel: str, name: str) -> Verdict:
        verdict = fault_verdict("judge_fault", "the judge was not asked")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(self.patience_s):
                    verdict = await self.judge.evaluate_async(problem, kernel)
            except TimeoutError:
                verdict = fault_verdict("judge_silent", f"{problem.problem_id}: no verdict in {self.patience_s:g} s")
            except InfrastructureError as error:
                verdict = fault_verdict("judge_fault", str(error))
            if not verdict.is_fault:
                break
            consequence = "asked once more" if attempt < ATTEMPTS else "given up"
            logger.warning("%s: judgement: %s; %s", name, verdict.error_message, consequence)
        return verdict


def no_kernel_verdict(finish_reason: FinishReason, reasoning_ended: bool = True) -> Verdict:
    """Return the verdict on a response that holds no kernel: the policy's own doing, so it is no fault."""
    if not reasoning_ended:
        category, message = "unfinished_reasoning", "The reasoning did not come to an end, so that there is no answer."
    elif finish_reason is FinishReason.LENGTH:
        category, message = "truncated_answer", "The answer reached the length limit before its code block was closed."
    else:
        category, message = "no_code_block", "The answer holds no complete Python code block."
    return Verdict(status=Status.COMPILE_ERROR, error_category=category, error_message=message)


def fault_verdict(category: str, message: str) -> Verdict:
    """Return the verdict that says only that the machine failed."""
    return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category=category, error_message=message)
