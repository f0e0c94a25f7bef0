"""Generation of a run's answers: lengths of its conversations, speed of its servers, and room of their caches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flows.capacity.memory import GIB, Shape, generation_room, served_share
from flows.capacity.sharing import servers_of
from flows.capacity.speed import Assumptions, Gpu, generated_tokens_a_second
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError

_DEFAULT_FRACTION = 0.85
"""SGLang's share of a GPU's memory, if no flag sets it."""


@dataclass(frozen=True)
class Generation:
    """Conversations of an iteration, and the servers that generate their answers."""

    samples: int
    """Conversations of an iteration."""
    turns: int
    """Answers of a conversation."""
    longest: int
    """Tokens of the longest sequence: a prompt with its history, and an answer."""
    mean_answer: float
    """Tokens of an answer."""
    context: float
    """Mean tokens before an answer."""
    sequences: int
    """Concurrent sequences on one server."""
    served_share: float
    """Share of its GPUs' memory that a server takes."""
    cache_tokens: int | None
    """Tokens that one server's cache holds. None: no server generates."""
    tokens_s: float | None
    """Tokens per second of all servers. None: no server generates."""

    @property
    def trained_tokens(self) -> float:
        """Tokens of all prompts, with their histories, and answers of an iteration."""
        return self.samples * self.turns * (self.context + self.mean_answer)

    @property
    def conversation_s(self) -> float:
        """Seconds that the servers need for one conversation's answers; 0 without servers."""
        return self.turns * self.mean_answer / self.tokens_s if self.tokens_s else 0.0


def generation_of(config: RunConfig, shape: Shape, gpu: Gpu, assumed: Assumptions) -> Generation:
    """Return the generation of the run's rollouts on GPUs of this model."""
    rollout = config.rollout
    turns = rollout.episode.max_turns if rollout.episode.task.endswith("multiturn") else 1
    answer = rollout.sampling.max_new_tokens
    history = rollout.episode.history_tokens or (turns - 1) * answer
    samples = rollout.problems_per_iteration * rollout.samples_per_problem
    servers = len(rollout.sglang_urls) or servers_of(config)
    flags = rollout.sglang.flags
    parallel = int(_flag(flags, "--tp-size", _flag(flags, "--tp", 1)))
    fraction = served_share(
        shape, gpu.memory_gib * GIB,
        _flag(flags, "--mem-fraction-static", rollout.sglang.memory_share or _DEFAULT_FRACTION),
        parallel, _flag(flags, "--max-total-tokens", math.inf),
    )  # fmt: skip
    sequences = min(rollout.sglang.concurrency, math.ceil(samples / max(servers, 1)))
    mean_answer = assumed.answer_share * answer
    context = assumed.prompt_tokens + turns * mean_answer / 2
    speed = generated_tokens_a_second(shape, gpu, servers, parallel, sequences, context, assumed) if servers else None
    return Generation(
        samples=samples,
        turns=turns,
        longest=assumed.prompt_tokens + min((turns - 1) * answer, history) + answer,
        mean_answer=mean_answer,
        context=context,
        sequences=sequences,
        served_share=fraction,
        cache_tokens=generation_room(shape, gpu.memory_gib * GIB, fraction, parallel) if servers else None,
        tokens_s=speed,
    )


def _flag(flags: Sequence[str], name: str, default: float) -> float:
    """Return the number after a flag of SGLang's. Raises InputError if none follows it."""
    if name not in flags:
        return default
    try:
        return float(flags[list(flags).index(name) + 1])
    except (IndexError, ValueError) as error:
        raise InputError(f"rollout.sglang.flags: expected a number after {name}") from error
