"""TRL: the judge as a reward function of GRPOTrainer, and the conversation with the judge as its environment.

    GRPOTrainer(model, reward_funcs=kernel_reward(scorer), train_dataset=Dataset.from_list(problem_rows(...)), ...)
    GRPOTrainer(model, environment_factory=environment_factory(scorer), train_dataset=..., ...)

TRL takes None for a reward that is not known: such a sample counts neither in its group's mean nor in the loss
(`unscorable_mask` in trl 1.16). An environment has one reward for a conversation, that of its best turn.
"""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.scoring import Scored, Scorer
from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.rollout.prompts import answer_text

Completion = str | Sequence[dict[str, Any]]
"""Text, or the messages that the policy answered with."""
RewardFunction = Callable[..., Awaitable[list[float | None]]]


def kernel_reward(scorer: Scorer) -> RewardFunction:
    """Return a reward function for `reward_funcs`; the data set needs the column `problem_source`.

    Logs the shares `kernel/correct` and `kernel/compiled`, the number `kernel/faults` and the median `kernel/speedup`
    of correct kernels.
    """

    async def kernel(
        completions: Sequence[Completion],
        completion_ids: Sequence[Sequence[int]],
        problem_source: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        answers = [_text(completion) for completion in completions]
        scored = await scorer.score_all(problem_source, answers, [len(ids) for ids in completion_ids])
        if log_metric is not None:
            for name, value in _metrics(scored).items():
                log_metric(name, value)
        return [one.reward for one in scored]

    return kernel


class KernelEnvironment:
    """One conversation: the policy calls the tool `judge_kernel` and reads the feedback while the episode lasts.

    For chat templates with tool calls. TRL makes one instance for each rollout and resets it with the row's columns.
    """

    def __init__(self, scorer: Scorer) -> None:
        """Have no problem until `reset`."""
        self._scorer = scorer
        self._episode: KernelEpisode | None = None

    def reset(self, problem_source: str, problem_id: str = "problem", level: int = 1, **columns: Any) -> None:
        """Begin a conversation about the problem of a row."""
        problem = Problem(problem_id=problem_id, source=problem_source, level=level)
        self._episode = KernelEpisode(problem, self._scorer)

    def judge_kernel(self, source: str) -> str:
        """Judge a kernel: compile it, run it, compare it with the reference, and estimate or measure its speed.

        Args:
            source: Complete Python source: imports, kernels and a class `ModelNew`.

        Returns:
            The verdict, with the error message or the speed-up.
        """
        episode = self._begun()
        if episode.termination is not None:
            return f"No more kernels are judged: {episode.termination.value}."
        step = episode.answer(answer_text(source))
        if step.reply is not None:
            return step.reply["content"]
        verdict = step.scored.verdict
        return f"{verdict.status.value}. No more kernels are judged: {step.termination}."

    def get_reward(self) -> float | None:
        """Return the reward of the best kernel; 0 if none was sent, None if the machine failed on one."""
        episode = self._begun()
        return episode.reward if episode.steps else 0.0

    def _begun(self) -> KernelEpisode:
        if self._episode is None:
            raise RuntimeError("reset was not called")
        return self._episode


def environment_factory(scorer: Scorer) -> Callable[[], KernelEnvironment]:
    """Return the value for `environment_factory` of GRPOTrainer.

    Raises InputError for a reward with a term `length`: a tool is not told how many tokens its argument has.
    """
    if scorer.needs_tokens:
        raise InputError(f"reward {scorer.episode.reward}: expected one without `length`: tools do not see tokens")
    return lambda: KernelEnvironment(scorer)


def _text(completion: Completion) -> str:
    if isinstance(completion, str):
        return completion
    return str(completion[-1].get("content") or "") if completion else ""


def _metrics(scored: Sequence[Scored]) -> dict[str, float]:
    judged = [one.verdict for one in scored if not one.verdict.is_fault]
    speedups = [verdict.speedup for verdict in judged if verdict.speedup is not None]
    metrics = {"kernel/faults": float(len(scored) - len(judged))}
    if judged:
        metrics["kernel/correct"] = statistics.fmean(verdict.correct for verdict in judged)
        metrics["kernel/compiled"] = statistics.fmean(verdict.compiled for verdict in judged)
    if speedups:
        metrics["kernel/speedup"] = statistics.median(speedups)
    return metrics
