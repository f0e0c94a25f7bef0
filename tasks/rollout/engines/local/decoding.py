"""Decoding of one static batch, in the rollout worker: decoder interface, library decoder, and the loop over steps.

A `Decoder` starts a `Batch` from prompts that have passed through the model (`Prefilled`). There are two: the library's
forward for any model, and `plain_decoder`, the same written out for the most common architectures on a CPU.

Prompts are padded on the left; equal prompts (those of a group) pass through the model once. A sequence is reported
when it ends, and leaves the batch when enough sequences have ended to pay for the copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason, Generation
from tasks.rollout.engines.local.kv_cache import GrowingLayer, Prefilled
from tasks.rollout.engines.local.plain_decoder import PlainDecoder, is_plain
from tasks.rollout.engines.local.sampling import draw, uniform_numbers

_COMPACT_AT = 1 / 8
"""Share of ended sequences at which the batch is compacted: the copy costs about as much as a step."""


class Batch(Protocol):
    """B sequences under way."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append a token to each sequence, (B,); return the logits of the next ones, (B, V)."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep these rows only, ascending: the other sequences have ended."""


Decoder = Callable[[Prefilled, Tensor, int], Batch]
"""(prefilled, prompts, steps) → a batch whose sequence i answers prompt `prompts[i]`, in at most `steps` tokens. The
weights are the model's when the decoder was made."""


def decoder_of(model: PreTrainedModel) -> Decoder:
    """Return the fastest decoder for a model."""
    return PlainDecoder(model) if is_plain(model) else partial(LibraryBatch, model)


class LibraryBatch:
    """Decodes through the model's own forward; the cache of a prompt is repeated for its sequences."""

    def __init__(self, model: PreTrainedModel, prefilled: Prefilled, prompts: Tensor, steps: int) -> None:
        self._model, self._cache = model, prefilled.cache
        if not torch.equal(prompts, torch.arange(len(prefilled.valid), device=prompts.device)):
            self._cache.batch_select_indices(prompts)
        valid = prefilled.valid[prompts]
        self._positions = valid.sum(dim=1)
        # A sequence always sees its own tokens.
        self._visible = None if valid.all() else torch.cat([valid, valid.new_ones((len(valid), steps))], dim=1)
        self._length = valid.shape[1]

    def step(self, tokens: Tensor) -> Tensor:
        """See `Batch`."""
        self._length += 1
        logits = self._model(
            input_ids=tokens.unsqueeze(1),
            position_ids=self._positions.unsqueeze(1),
            attention_mask=None if self._visible is None else self._visible[:, None, None, : self._length],
            past_key_values=self._cache,
            use_cache=True,
        ).logits[:, -1]
        self._positions = self._positions + 1
        return logits

    def keep(self, rows: Tensor) -> None:
        """See `Batch`."""
        self._cache.batch_select_indices(rows)
        self._positions = self._positions[rows]
        if self._visible is not None:
            self._visible = self._visible[rows]


@dataclass(slots=True)
class _Sequence:
    index: int
    token_ids: list[int]
    logprobs: list[float]
    has_ended: bool = False

    def ended(self, reason: FinishReason) -> tuple[int, Generation]:
        self.has_ended = True
        return self.index, Generation(tuple(self.token_ids), tuple(self.logprobs), reason, seconds=0.0)


@torch.inference_mode()
def decode_batch(
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    seeds: Sequence[int],
    sampling: SamplingConfig,
    stop_token_ids: frozenset[int],
    on_ended: Callable[[int, Generation], None],
    cancelled: Callable[[], bool] = lambda: False,
    decoder: Decoder | None = None,
) -> None:
    """Sample one response per prompt; call `on_ended(index, response)` once for each. Ends early if `cancelled()`.

    Prompts are non-empty, and prompt + max_new_tokens fits the model's context (checked by the caller). `decoder`: a
    decoder that several batches share; default `decoder_of(model)`.
    """
    device, steps = model.device, sampling.max_new_tokens
    unique = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    asked = torch.tensor([unique[prompt] for prompt in prompts], device=device)
    prefilled = prefill(model, list(unique))
    logits = prefilled.logits[asked]
    batch = (decoder or decoder_of(model))(prefilled, asked, steps)
    uniforms = uniform_numbers(list(seeds), steps).to(device)
    sequences = [_Sequence(index, [], []) for index in range(len(prompts))]

    for step in range(steps):
        tokens, logprobs = draw(logits, uniforms[:, step], sampling)
        for sequence, token, logprob in zip(sequences, tokens.tolist(), logprobs.tolist(), strict=True):
            if sequence.has_ended:
                continue
            sequence.token_ids.append(token)
            sequence.logprobs.append(logprob)
            if token in stop_token_ids:
                on_ended(*sequence.ended(FinishReason.STOP))
            elif step == steps - 1:
                on_ended(*sequence.ended(FinishReason.LENGTH))
        going = [row for row, sequence in enumerate(sequences) if not sequence.has_ended]
        if not going or cancelled():
            return
        if len(going) <= (1 - _COMPACT_AT) * len(sequences):
            rows = torch.tensor(going, device=device)
            batch.keep(rows)
            sequences = [sequences[row] for row in going]
            tokens, uniforms = tokens[rows], uniforms[rows]
        logits = batch.step(tokens)


def prefill(model: PreTrainedModel, prompts: Sequence[tuple[int, ...]]) -> Prefilled:
    """Return the prompts' keys, values and last logits, from one forward pass."""
    device = model.device
    width = max(len(prompt) for prompt in prompts)
    input_ids = torch.tensor([[prompt[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    padding = torch.tensor([width - len(prompt) for prompt in prompts], device=device).unsqueeze(1)
    positions = torch.arange(width, device=device).unsqueeze(0)
    valid = positions >= padding
    causal = torch.ones((width, width), dtype=torch.bool, device=device).tril()
    # A padding position attends to itself: a fully masked row gives NaN, which spreads through masked values.
    alone = torch.eye(width, dtype=torch.bool, device=device)
    mask = (causal & valid[:, None, :]) | alone
    cache = Cache(layers=[GrowingLayer() for _ in range(int(model.config.num_hidden_layers))])
    logits = model(
        input_ids=input_ids,
        position_ids=(positions - padding).clamp(min=0),
        attention_mask=mask[:, None],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]
    return Prefilled(cache, valid, logits)
