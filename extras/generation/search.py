"""Search: conversations with the judge, side by side, until the budget is spent. The conversation is that of rollouts.

Best of n and refinement in one: several conversations at a time, each of up to `episode.max_turns` answers; one that
ends makes room for a new one. A fault of the machine costs nothing of the budget and ends its conversation.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.scoring import Scorer
from extras.generation.config import SearchConfig
from extras.generation.writers import Draft, RefusedConversationError, Writer
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError, InputError, one_cause
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.episode_tasks import quality
from tasks.rollout.kernel_extraction import extract_kernel, without_reasoning
from tasks.trajectories.schema import Termination

_MOST_FAULTS = 8
"""Faults in a row, of all conversations, after which the machine is taken to be broken."""
_NEVER = 1e9
"""Reward that no kernel reaches: a conversation goes on making its kernel faster."""


class Attempt(FrozenModel):
    """One judged answer."""

    conversation: int
    turn: int
    """From 1."""
    kernel_source: str | None = None
    """None if the answer held no kernel."""
    verdict: Verdict
    prompt_tokens: int
    completion_tokens: int
    at_s: float
    """Seconds since the search began."""


class Stop(StrEnum):
    """Reason that a search ended."""

    BUDGET = "budget"
    """All answers of the budget are judged."""
    SECONDS = "seconds"
    """The time is over."""


@dataclass(frozen=True)
class Choice:
    """Choice among several answers before one is judged."""

    drafts: int
    """Answers drawn for each that is judged."""
    promise: Callable[[str, Sequence[str]], Sequence[float]]
    """How promising each kernel is, given the problem's source and the kernels' (extras.tester)."""


def episode_for_search(episode: EpisodeConfig) -> EpisodeConfig:
    """Return the settings of conversations that go on as long as they may, also from a fast kernel."""
    return episode.model_copy(update={"success_reward": _NEVER})


class Search:
    """One search. `run` once."""

    def __init__(
        self,
        problem: Problem,
        writer: Writer,
        scorer: Scorer,
        config: SearchConfig,
        on_attempt: Callable[[Attempt], None] = lambda _: None,
        earlier: Sequence[Attempt] = (),
        choice: Choice | None = None,
    ) -> None:
        """`scorer.episode` should be that of `episode_for_search`.

        `earlier`: attempts of a search that was interrupted; they count in budget and time. `choice`: of the answers
        that are judged. None: each is judged.
        """
        self._problem, self._writer, self._scorer, self._config = problem, writer, scorer, config
        self._on_attempt, self._choice = on_attempt, choice
        self.attempts: list[Attempt] = list(earlier)
        self._left = config.budget - len(earlier)
        """Answers that may still be asked for."""
        self._tried = {attempt.kernel_source for attempt in earlier}
        """Kernels that a choice has had judged: another one tells more."""
        self._conversations = 1 + max((attempt.conversation for attempt in earlier), default=-1)
        self._faults = 0
        self._spent_s = max((attempt.at_s for attempt in earlier), default=0.0)

    async def run(self) -> Stop:
        """Spend the budget. Raises InputError if the model refuses the problem, InfrastructureError for a broken
        machine."""
        began = time.monotonic() - self._spent_s
        seconds = self._config.seconds
        limit = asyncio.timeout(None if seconds is None else max(seconds - self._spent_s, 0))
        try:
            async with limit:
                with one_cause():
                    async with asyncio.TaskGroup() as group:
                        for _ in range(min(self._config.conversations, self._left)):
                            group.create_task(self._converse(began))
        except TimeoutError:
            if not limit.expired():
                raise
            return Stop.SECONDS
        return Stop.BUDGET

    async def _converse(self, began: float) -> None:
        """Hold one conversation after another while there is budget left."""
        while self._left > 0:
            number, self._conversations = self._conversations, self._conversations + 1
            episode = KernelEpisode(self._problem, self._scorer)
            while self._left > 0 and episode.termination is None:
                self._left -= 1
                turn = len(episode.steps) + 1
                try:
                    draft, tokens = await self._draft(episode, number, turn)
                except RefusedConversationError:
                    if turn == 1:
                        raise
                    self._left += 1
                    break  # the conversation has become too long
                step = await episode.answer_async(draft.text, draft.completion_tokens, draft.truncated)
                if step.termination is Termination.AGENT_STOPPED:
                    self._left += 1  # nothing was judged
                    break
                if step.scored.verdict.is_fault:
                    self._left += 1
                    self._note_fault(step.scored.verdict)
                    break
                self._faults = 0
                self._note(number, turn, tokens, step.scored.kernel_source, step.scored.verdict, began)

    async def _draft(self, episode: KernelEpisode, conversation: int, turn: int) -> tuple[Draft, tuple[int, int]]:
        """Return an answer, and the tokens of prompts and answers that were drawn for it."""
        choice = self._choice
        drawing = [
            self._writer.write(episode.messages, self._draw(conversation, turn, number), episode.agent)
            for number in range(1 if choice is None else choice.drafts)
        ]
        drafts = list(await asyncio.gather(*drawing))
        tokens = sum(draft.prompt_tokens for draft in drafts), sum(draft.completion_tokens for draft in drafts)
        return drafts[0] if choice is None else self._chosen(drafts, choice), tokens

    def _chosen(self, drafts: Sequence[Draft], choice: Choice) -> Draft:
        """Return the most promising draft whose kernel was not chosen before, if there is one."""
        extracted = ((draft, extract_kernel(without_reasoning(draft.text) or "")) for draft in drafts)
        written = [(draft, kernel) for draft, kernel in extracted if kernel is not None]
        if not written:
            return drafts[0]
        untried = [(draft, kernel) for draft, kernel in written if kernel not in self._tried] or written
        often = Counter(kernel for _, kernel in untried)  # what the model itself thinks most likely
        promises = choice.promise(self._problem.source, [kernel for _, kernel in untried])
        weights = [promise * often[kernel] for promise, (_, kernel) in zip(promises, untried, strict=True)]
        chosen, kernel = untried[weights.index(max(weights))]
        self._tried.add(kernel)
        return chosen

    def _note(
        self,
        number: int,
        turn: int,
        tokens: tuple[int, int],
        kernel_source: str | None,
        verdict: Verdict,
        began: float,
    ) -> None:
        attempt = Attempt(
            conversation=number,
            turn=turn,
            kernel_source=kernel_source,
            verdict=verdict,
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            at_s=round(time.monotonic() - began, 3),
        )
        self.attempts.append(attempt)
        self._on_attempt(attempt)

    def _note_fault(self, verdict: Verdict) -> None:
        if verdict.error_category == ErrorCategory.REFERENCE_FAILED:
            raise InputError(f"{self._problem.problem_id}: {verdict.error_message}")
        self._faults += 1
        if self._faults >= _MOST_FAULTS:
            raise InfrastructureError(f"kernels could not be judged: {verdict.error_message}")

    def _draw(self, conversation: int, turn: int, number: int) -> int:
        """Return the seed of one answer."""
        key = f"{self._config.seed}/{self._problem.digest}/{conversation}/{turn}" + (f"/{number}" if number else "")
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> 2


def ranked(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts with a correct and timed kernel, the fastest first, each kernel once."""
    correct = [attempt for attempt in attempts if attempt.verdict.correct and attempt.verdict.speedup is not None]
    found: dict[str | None, Attempt] = {}
    for attempt in sorted(correct, key=lambda attempt: quality(attempt.verdict), reverse=True):
        found.setdefault(attempt.kernel_source, attempt)
    return list(found.values())
