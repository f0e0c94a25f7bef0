"""Engines: the interface, and the registry. Token ids go in; sampled token ids, their log-probabilities and the finish reason come out.

Text never passes through an engine. Log-probabilities are those of the training distribution (softmax of the raw logits, T = 1),
whatever the sampling was: the importance ratios of the update start from the values that the update itself computes.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig


class FinishReason(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    """The policy ended its turn; the response's last token is the end-of-turn token."""
    LENGTH = "length"
    """The limit of new tokens was reached."""
    FAULT = "fault"
    """The engine failed; there is no response. Says nothing of the policy."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to be sampled."""

    name: str
    """Names the trajectory and the turn in messages and logs."""
    prompt_token_ids: tuple[int, ...]
    seed: int
    """Decides the draws, together with nothing but the policy: not the place in a batch, not the engine's history."""
    routing_key: str = ""
    """Requests with the same key continue one another: an engine of several servers sends them to the same one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled response of n tokens."""

    token_ids: tuple[int, ...]
    """Length n; ends with the end-of-turn token where the reason is STOP."""
    logprobs: tuple[float, ...]
    """Length n: log-probability of each token under the T = 1 softmax."""
    finish_reason: FinishReason
    seconds: float
    """From the request to its last token."""
    error: str | None = None
    """What failed, where the reason is FAULT."""


class Engine(Protocol):
    """A policy that can be sampled."""

    @property
    def context_tokens(self) -> int:
        """Prompt and response together may have this many tokens."""
        ...

    @property
    def cohort_size(self) -> int:
        """Trajectories that should go from turn to turn together: an engine of static batches wants a batch of them,
        one that batches continuously wants 1."""
        ...

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield (index of the request, its response) in the order of completion: each request exactly once.

        Several calls may be under way at once. A failure of one request is yielded as FAULT; InfrastructureError says
        that the engine as a whole is gone.
        """
        ...

    async def close(self) -> None:
        """Stop what runs and free what is held."""
        ...


@runtime_checkable
class PolicyServer(Protocol):
    """An engine that outlives its policy: what it runs on is kept, and given the next policy's weights."""

    async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
        """Go over to this policy; returns once every answer comes from it.

        Raises InfrastructureError where that cannot be shown: the engine must then not be used.
        """
        ...


def _open_transformers(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    from tasks.rollout.engines.local.engine import load_engine

    return load_engine(policy.path, tokenizer, config.batch_size)


def _open_sglang(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    from tasks.rollout.engines.sglang.engine import open_sglang

    return open_sglang(policy, tokenizer, config)


ENGINES: dict[str, Callable[[CheckpointRef, Any, RolloutConfig], Engine]] = {
    "sglang": _open_sglang,
    "transformers": _open_transformers,
}


def open_engine(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    """Return the configured engine with this policy loaded. Raises InputError where there is no such engine."""
    if config.engine not in ENGINES:
        raise InputError(f"rollout.engine: found {config.engine}, expected one of {', '.join(sorted(ENGINES))}")
    import torch

    # For SGLang's canary as well, which reads the checkpoint: an actor that reserves no CPUs is given one thread by Ray.
    torch.set_num_threads(config.threads)
    return ENGINES[config.engine](policy, tokenizer, config)
