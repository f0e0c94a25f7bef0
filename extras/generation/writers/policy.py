"""Writer on a checkpoint: the embedded engine in a process of its own, which is started again if it dies.

Conversations that wait are answered together, in one batch of the engine. This process imports neither torch nor
transformers.
"""

import asyncio
import hashlib
import logging
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from extras.adapters.kernel_episode import ChatMessage
from extras.generation.writers import Draft, RefusedConversationError
from kernels_eval.errors import InfrastructureError
from tasks.agents.config import SOLVER
from tasks.agents.team import lead_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig

if TYPE_CHECKING:
    from tasks.rollout.engines import Engine, Generation

logger = logging.getLogger("kernelmill.generation")
_ATTEMPTS = 4
"""Times that a batch is given to an engine whose process dies."""
_GATHER_S = 0.05
"""Wait for further conversations before a batch begins: verdicts come in together."""


@dataclass(frozen=True, slots=True)
class _Question:
    messages: tuple[tuple[str, str], ...]
    """Role and content."""
    seed: int
    agent: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    question: _Question
    answer: "asyncio.Future[Draft]"


class PolicyWriter:
    """A checkpoint that answers. For one event loop; the model is loaded with the first question."""

    def __init__(self, policy: CheckpointRef, config: RolloutConfig, name: str = "") -> None:
        """Use the sampling, batch size and threads of `config`, and `config.episode.thinking`.

        `name`: for people; default: that of the checkpoint's folder.
        """
        self._name = name or policy.path.name
        self._policy = policy
        self._config = config.model_copy(update={"engine": "transformers"})
        self._waiting: list[_Waiting] = []
        self._batches: asyncio.Task[None] | None = None
        self._process: ProcessPoolExecutor | None = None

    @property
    def name(self) -> str:
        """The name that was given, or the checkpoint's folder."""
        return self._name

    @property
    def digest(self) -> str:
        """Digest of weights and sampling."""
        parts = [self._policy.digest, self._config.sampling.model_dump_json(), str(self._config.episode.thinking)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def process_ids(self) -> list[int]:
        """Ids of the engine's process; empty before the first question."""
        return [] if self._process is None else list(getattr(self._process, "_processes", None) or {})

    async def write(self, messages: Sequence[ChatMessage], seed: int, agent: str = SOLVER) -> Draft:
        """Answer one conversation, by the team's agent if the policy is a team."""
        question = _Question(tuple((message["role"], message["content"]) for message in messages), seed, agent)
        waiting = _Waiting(question, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._batches is None or self._batches.done():
            self._batches = asyncio.ensure_future(self._answer_waiting())
        return await waiting.answer

    async def close(self) -> None:
        """End the engine's process, also in the middle of a batch."""
        if self._process is not None and (self._batches is None or self._batches.done()):
            process, self._process = self._process, None
            await asyncio.to_thread(process.shutdown)  # it is idle, and ends in order
            return
        if self._batches is not None:
            self._batches.cancel()
        self._end_process()

    async def _answer_waiting(self) -> None:
        while self._waiting:
            await asyncio.sleep(_GATHER_S)
            batch = [waiting for waiting in self._waiting if not waiting.answer.done()][: self._config.batch_size]
            self._waiting = [waiting for waiting in self._waiting if waiting not in batch and not waiting.answer.done()]
            if batch:
                await self._answer(batch)

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        try:
            found = await self._drafts([waiting.question for waiting in batch])
        except BaseException as error:
            for waiting in batch:
                if not waiting.answer.done():
                    failed = error if isinstance(error, Exception) else InfrastructureError("the engine was closed")
                    waiting.answer.set_exception(failed)
            if not isinstance(error, Exception):
                raise
            return
        for waiting, draft in zip(batch, found, strict=True):
            if waiting.answer.done():  # cancelled
                continue
            if isinstance(draft, Draft):
                waiting.answer.set_result(draft)
            else:
                waiting.answer.set_exception(RefusedConversationError(draft))

    async def _drafts(self, questions: list[_Question]) -> "list[Draft | str]":
        for attempt in range(1, _ATTEMPTS + 1):
            if self._process is None:
                self._process = ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))
            try:
                working = self._process.submit(_answers, self._policy, self._config, questions)
                return await asyncio.wrap_future(working)
            except BrokenProcessPool:
                self._end_process()
                consequence = "started again" if attempt < _ATTEMPTS else "given up"
                logger.warning("the engine's process died in a batch of %d: %s", len(questions), consequence)
        raise InfrastructureError(f"the engine's process died {_ATTEMPTS} times on the same batch")

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        children: dict[int, Any] = dict(getattr(process, "_processes", None) or {})
        process.shutdown(wait=False, cancel_futures=True)
        for child in children.values():  # it may be in the middle of a batch that nobody waits for
            child.kill()


def _answers(policy: CheckpointRef, config: RolloutConfig, questions: list[_Question]) -> "list[Draft | str]":
    """Return a draft, or the reason of a refusal, for each question. Runs in the engine's process."""
    engine, tokenizer = _opened(policy, config)
    return asyncio.run(_collected(engine, tokenizer, config, questions))


_open: "list[tuple[Engine, Any]]" = []
"""Engine and tokenizer of this process, once the first batch has come: a process serves one policy."""


def _opened(policy: CheckpointRef, config: RolloutConfig) -> "tuple[Engine, Any]":
    from tasks.models.tokenizer import load_tokenizer
    from tasks.rollout.engines import open_engine

    if not _open:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # the terminal shows the search
        threading.Thread(target=_end_with_parent, daemon=True).start()
        tokenizer = load_tokenizer(lead_of(policy).path)
        _open.append((open_engine(policy, tokenizer, config), tokenizer))
    return _open[0]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


async def _collected(
    engine: "Engine", tokenizer: Any, config: RolloutConfig, questions: list[_Question]
) -> "list[Draft | str]":
    from tasks.models.chat_templates import THINK_START, Message, Role
    from tasks.rollout.engines import FinishReason, GenerationRequest
    from tasks.rollout.turn_tokens import first_prompt, opens_thought, response_text

    limit = config.sampling.max_new_tokens
    prompts = [
        first_prompt(
            tokenizer,
            [Message(role=Role(role), content=content) for role, content in question.messages],
            thinking=config.episode.thinking,
        )
        for question in questions
    ]
    fitting = [i for i, prompt in enumerate(prompts) if len(prompt.token_ids) + limit <= engine.context_tokens]
    requests = [
        GenerationRequest(f"question {i}", prompts[i].token_ids, questions[i].seed, questions[i].agent) for i in fitting
    ]
    found: list[Draft | str] = [
        f"rollout.sampling.max_new_tokens: {limit} tokens after a prompt of {len(prompt.token_ids)} are more than the "
        f"policy's context of {engine.context_tokens}"
        for prompt in prompts
    ]

    def draft(place: int, generation: "Generation") -> Draft:
        if generation.finish_reason is FinishReason.FAULT:
            raise InfrastructureError(f"the engine failed: {generation.error}")
        text = response_text(tokenizer, generation.token_ids)
        return Draft(
            text=f"{THINK_START}\n{text}" if opens_thought(tokenizer, prompts[place]) else text,
            prompt_tokens=len(prompts[place].token_ids),
            completion_tokens=len(generation.token_ids),
            truncated=generation.finish_reason is FinishReason.LENGTH,
        )

    if requests:
        async for index, generation in engine.generate(requests, config.sampling):
            found[fitting[index]] = draft(fitting[index], generation)
    return found
