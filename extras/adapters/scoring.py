"""Scorer: from a model's answer to the verdict and the reward, for trainers that generate themselves.

    with Scorer(Judge(JudgeConfig(workers=4))) as scorer:
        scored = scorer.score(problem, answer)   # or: await scorer.score_async(problem, answer)

Works in any thread and any event loop: the judge is called on an event loop of the scorer's own. An answer is judged as
in our own rollouts: the kernel is extracted, judged, judged once more if the machine failed, and rewarded by name.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.rewards import Answer, reward_bounds, reward_of
from kernels_eval.verdict import Verdict
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.engines import FinishReason
from tasks.rollout.judge_client import AsyncJudge, JudgeClient
from tasks.rollout.kernel_extraction import extract_kernel, without_reasoning
from tasks.rollout.prompts import judge_for

URL_VARIABLE = "KERNELMILL_JUDGE_URL"
"""Environment variable with the address of a judge server; unset or empty: the judge runs beside the trainer."""
WORKERS_VARIABLE = "KERNELMILL_JUDGE_WORKERS"
"""Environment variable with the number of kernels that a judge beside the trainer judges at once; default 2."""
REWARD_VARIABLE = "KERNELMILL_REWARD"
"""Environment variable with the name of the reward (kernels_eval.rewards); default `kernelbench`."""

_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class Scored:
    """One judged answer."""

    verdict: Verdict
    kernel_source: str | None
    """None if the answer holds no kernel."""
    score: float | None
    """Reward of the verdict alone. None if the machine failed: nothing is known of the kernel."""
    reward: float | None
    """The score with the reward's terms on the answer: what to train on. None: mask the sample."""


class Scorer:
    """Judges answers and rewards them. A context manager; for many threads and event loops at once."""

    def __init__(
        self,
        judge: AsyncJudge,
        episode: EpisodeConfig | None = None,
        backend: str = "triton",
        patience_s: float = 600.0,
    ) -> None:
        """`judge`: `kernels_eval.Judge` or `kernels_eval.server.client.HttpJudge`; the scorer closes it.

        `episode`: reward, turns, prompt and feedback; `patience_s`: time that one attempt at a kernel may take, the
        judge's queue included. Raises InputError for an unknown reward.
        """
        self.episode = episode or EpisodeConfig()
        self.backend = backend
        reward_bounds(self.episode.reward)
        self._judge = judge
        self._client = JudgeClient(judge, functools.partial(reward_of, self.episode.reward), patience_s)
        self.needs_tokens = "length" in self.episode.reward
        """The reward depends on the number of tokens of an answer."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kernelmill-scorer", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Scorer":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the judge, and end the thread."""
        if self._loop.is_closed():
            return
        closing: Callable[[], Any] = getattr(self._judge, "close", lambda: None)
        found = closing()
        if asyncio.iscoroutine(found):
            asyncio.run_coroutine_threadsafe(found, self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()

    def submit(
        self, problem: Problem | str, answer: str, tokens: int | None = None, truncated: bool = False
    ) -> "Future[Scored]":
        """Queue one answer. `tokens`: its length, for rewards with a term `length`; `truncated`: it was cut off.

        Raises InputError if the problem is none, or the reward needs `tokens`.
        """
        if isinstance(problem, str):
            problem = Problem(problem_id="problem", source=problem)
        check_problem_source(problem.source, problem.problem_id)
        if tokens is None and self.needs_tokens:
            raise InputError(f"reward {self.episode.reward}: expected the number of tokens of each answer, found none")
        scoring = self._score(problem, answer, Answer(answer, tokens or 0), truncated)
        return asyncio.run_coroutine_threadsafe(scoring, self._loop)

    def score(self, problem: Problem | str, answer: str, tokens: int | None = None, truncated: bool = False) -> Scored:
        """Return one judged answer; arguments and errors of `submit`."""
        return self.submit(problem, answer, tokens, truncated).result()

    async def score_async(
        self, problem: Problem | str, answer: str, tokens: int | None = None, truncated: bool = False
    ) -> Scored:
        """Return one judged answer without blocking the caller's event loop."""
        return await asyncio.wrap_future(self.submit(problem, answer, tokens, truncated))

    async def score_all(
        self,
        problems: Sequence[Problem | str],
        answers: Sequence[str],
        tokens: Sequence[int] | None = None,
    ) -> list[Scored]:
        """Return the judged answers in their order; all are judged at the same time."""
        lengths = tokens if tokens is not None else [None] * len(answers)
        scoring = [self.score_async(*item) for item in zip(problems, answers, lengths, strict=True)]
        return list(await asyncio.gather(*scoring))

    def rewarded(self, verdict: Verdict, kernel: str | None, answer: str, tokens: int | None = None) -> Scored:
        """Return an earlier verdict on a kernel as that on this answer, which keeps the kernel."""
        judged = self._client.repeat(verdict, Answer(answer, tokens or 0))
        return Scored(judged.verdict, kernel, judged.score, judged.reward)

    async def _score(self, problem: Problem, text: str, answer: Answer, truncated: bool) -> Scored:
        kernel = extract_kernel(text, truncated=truncated)
        reason = FinishReason.LENGTH if truncated else FinishReason.STOP
        ended = without_reasoning(text) is not None
        judged = await self._client.judge_response(problem, kernel, reason, answer, reasoning_ended=ended)
        return Scored(judged.verdict, kernel, judged.score, judged.reward)


class KernelSettings(FrozenModel):
    """The judge, and the shape of an episode."""

    judge_url: str | None = None
    """Address of a judge server; None: the judge runs beside the peer."""
    judge: JudgeConfig = JudgeConfig()
    """Settings of a judge beside the peer."""
    episode: EpisodeConfig = EpisodeConfig()


def open_scorer(
    judge_url: str | None = None,
    judge: JudgeConfig | None = None,
    episode: EpisodeConfig | None = None,
) -> Scorer:
    """Return a scorer on the judge at `judge_url`, or else on one beside the caller with the settings `judge`.

    If the policy is shown whole messages (feedback `full`), a judge beside the caller draws them publicly; start a
    server with `--set judge.public_messages=true` for the same.
    """
    episode, settings = episode or EpisodeConfig(), judge or JudgeConfig()
    if judge_url:
        from kernels_eval.server.client import HttpJudge

        return Scorer(HttpJudge(judge_url), episode, settings.backend)
    from kernels_eval.judge import Judge

    return Scorer(Judge(judge_for(episode, settings)), episode, settings.backend)


def shared_scorer() -> Scorer:
    """Return this process's scorer, made from the environment on first use, for peers that call a bare function."""
    with _making:
        return _scorer_of_process(os.getpid())


@functools.lru_cache(maxsize=1)
def _scorer_of_process(_pid: int) -> Scorer:
    workers = os.environ.get(WORKERS_VARIABLE, "2")
    if not workers.isdecimal():
        raise InputError(f"{WORKERS_VARIABLE}: expected a whole number, found {workers!r}")
    return open_scorer(
        os.environ.get(URL_VARIABLE),
        JudgeConfig(workers=int(workers)),
        EpisodeConfig(reward=os.environ.get(REWARD_VARIABLE, "kernelbench")),
    )
