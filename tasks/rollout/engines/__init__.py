"""Engines: the interface, and what opens one. Token ids in; sampled token ids, log-probabilities and finish reason out.

Text never passes through an engine. Log-probabilities are those of the training distribution (softmax of the raw
logits, T = 1), whatever the sampling was: the update computes its own in the same way.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tasks.agents.config import SOLVER
from tasks.agents.team import is_team
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig


class FinishReason(StrEnum):
    """Reason a response ended."""

    STOP = "stop"
    """The policy ended its turn; the response's last token is the end-of-turn token."""
    LENGTH = "length"
    """The limit of new tokens was reached."""
    FAULT = "fault"
    """The engine failed; there is no response, and nothing is known of the policy."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to be sampled."""

    name: str
    """Trajectory and turn, for messages and logs."""
    prompt_token_ids: tuple[int, ...]
    seed: int
    """Decides the draws together with the policy alone: neither the place in a batch nor earlier requests matter."""
    agent: str = SOLVER
    """Agent with weights of its own that answers (tasks.agents); a single policy answers for all."""
    routing_key: str = ""
    """Requests with the same key continue one another: an engine of several servers sends them to the same one."""


@dataclass(frozen=True, slots=True)
class Response:
    """A sampled response of n tokens."""

    token_ids: tuple[int, ...]
    """Length n; ends with the end-of-turn token if the reason is STOP."""
    logprobs: tuple[float, ...]
    """Length n: log-probability of each token under the T = 1 softmax."""
    finish_reason: FinishReason
    """One of FinishReason, or its text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "finish_reason", FinishReason(self.finish_reason))  # an engine of one's own has text
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"found {len(self.logprobs)} logprobs for {len(self.token_ids)} tokens, expected as many")


@dataclass(frozen=True, slots=True)
class Generation(Response):
    """A response as an engine gives it."""

    seconds: float
    """From the request to its last token."""
    error: str | None = None
    """Cause, if the reason is FAULT."""


class Engine(Protocol):
    """A policy that can be sampled."""

    @property
    def context_tokens(self) -> int:
        """Prompt and response together may have this many tokens."""
        ...

    @property
    def cohort_size(self) -> int:
        """Trajectories that should advance together: a static batch's size, or 1 for continuous batching."""
        ...

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield (index of the request, its response) in the order of completion: each request exactly once.

        Several calls may be under way at once. A failure of one request is yielded as FAULT; raises InfrastructureError
        if the engine as a whole failed.
        """
        ...

    async def close(self) -> None:
        """Stop what runs and free what is held."""


@runtime_checkable
class PolicyServer(Protocol):
    """An engine that outlives its policy: its servers stay and receive the next policy's weights."""

    async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
        """Switch to this policy; returns once every answer comes from it.

        Raises InfrastructureError if that cannot be verified: the engine must then not be used.
        """


def stop_tokens(generation_config: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a turn: the tokenizer's, and those of the model's generation settings."""
    configured = getattr(generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(int(token) for token in [tokenizer.eos_token_id, *listed] if token is not None)


def stop_token_ids(path: Path, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end a turn of the policy in this folder, sorted."""
    from transformers import AutoConfig, GenerationConfig

    try:
        generation = GenerationConfig.from_pretrained(str(path))
    except OSError:
        generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(str(path)))
    return tuple(sorted(stop_tokens(generation, tokenizer)))


def open_engine(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    """Return the configured engine with this policy loaded, of a team one for each of its agents.

    Raises InputError if there is no such engine.
    """
    import torch

    from tasks.rollout.engines.kind import kind_of

    kind = kind_of(config)
    # Also for a comparison with the checkpoint: Ray gives one thread to an actor that reserves no CPUs.
    torch.set_num_threads(config.threads)
    return kind.open_team(policy, tokenizer, config) if is_team(policy) else kind(policy, tokenizer, config)
