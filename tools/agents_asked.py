"""Best of n: a role of a finished run answers given kernels anew, n times each, and one judge times all of it.

Each answer is to a prompt of its own: the problem, the one kernel, and the judge's verdict on it, which is made anew.
The judge is the run's. The embedded engine decodes, at the temperature of held-out evaluation.
"""

import asyncio
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from judged_times import time_of

from extras.adapters.kernel_episode import chat_messages
from extras.generation.writers import Draft, RefusedConversationError, Writer
from extras.generation.writers.policy import PolicyWriter
from flows.settings.configuration import RunConfig
from kernels_eval import Judge, Problem, Verdict
from kernels_eval.rewards import reward_of
from tasks.agents.config import owner_of, with_solver
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.agent_prompts import agent_messages, stops
from tasks.rollout.kernel_extraction import extract_kernel
from tasks.rollout.prompts import HistoryTurn, answer_text, judge_for


@dataclass(frozen=True)
class Asked:
    """A right kernel, judged anew, and answers to it."""

    problem_id: str
    kernel: str
    verdict: Verdict
    answers: tuple[float, ...]
    """Times in ms: infinite of a wrong one, that of the given kernel of a stop. Faults of the machine are left out."""


def writer_of(policy: CheckpointRef, config: RunConfig) -> PolicyWriter:
    """Return the policy or team that answers, at the temperature of held-out evaluation."""
    sampling = config.rollout.sampling.model_copy(update={"temperature": config.evaluation.temperature})
    return PolicyWriter(policy, config.rollout.model_copy(update={"sampling": sampling}))


def ask(
    kernels: Sequence[tuple[Problem, str]], writer: Writer, config: RunConfig, role: str, answers: int
) -> list[Asked]:
    """Return so many answers to each kernel, and close the writer.

    Missing are kernels that are not right when judged anew, and those that leave no room for an answer.
    """
    with Judge(judge_for(config.rollout.episode, config.judge)) as judge:
        judged = zip(kernels, judge.evaluate_many(list(kernels)), strict=True)
        given = [(problem, kernel, verdict) for (problem, kernel), verdict in judged if time_of(verdict) < math.inf]
        drafts = asyncio.run(_drafts(given, writer, config, role, answers))
        asked = [(*one, texts) for one, texts in zip(given, drafts, strict=True) if texts is not None]
        items = {
            (problem.problem_id, kernel): (problem, kernel)
            for problem, _, _, texts in asked
            for draft in texts
            if (kernel := extract_kernel(draft.text, truncated=draft.truncated)) is not None
        }
        verdicts = dict(zip(items, judge.evaluate_many(list(items.values())), strict=True))

    def timed(problem: Problem, verdict: Verdict, draft: Draft) -> float | None:
        if stops(draft.text, with_solver(config.rollout.episode.agents)[role]):
            return time_of(verdict)
        kernel = extract_kernel(draft.text, truncated=draft.truncated)
        made = None if kernel is None else verdicts[problem.problem_id, kernel]
        return math.inf if made is None else None if made.is_fault else time_of(made)

    return [
        Asked(problem.problem_id, kernel, verdict, tuple(ms for ms in times if ms is not None))
        for problem, kernel, verdict, texts in asked
        for times in [[timed(problem, verdict, draft) for draft in texts]]
    ]


async def _drafts(
    given: Sequence[tuple[Problem, str, Verdict]], writer: Writer, config: RunConfig, role: str, answers: int
) -> list[list[Draft] | None]:
    """Return the drafts for each kernel; None for one that leaves no room for an answer."""
    episode = config.rollout.episode
    agent, owner = with_solver(episode.agents)[role], owner_of(episode.agents, role)

    async def drafts_for(problem: Problem, kernel: str, verdict: Verdict) -> list[Draft] | None:
        turn = HistoryTurn(
            response_text=answer_text(kernel), kernel_source=kernel, verdict=verdict,
            reward=reward_of(episode.reward, verdict),
        )  # fmt: skip
        messages = chat_messages(agent_messages(problem.source, [turn], episode, config.judge.backend, agent))
        seeds = [_seed(config.seed, problem, kernel, number) for number in range(answers)]
        try:
            return list(await asyncio.gather(*(writer.write(messages, seed, owner) for seed in seeds)))
        except RefusedConversationError:
            return None

    try:
        return list(await asyncio.gather(*(drafts_for(*one) for one in given)))
    finally:
        await writer.close()


def _seed(seed: int, problem: Problem, kernel: str, number: int) -> int:
    key = f"best of n/{seed}/{problem.digest}/{kernel}/{number}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> 2
