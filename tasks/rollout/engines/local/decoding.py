"""One static batch, decoded to its end.

Prompts are padded on the left; equal prompts (a group's) go through the model once. Each sequence is handed over the moment it
ends, and leaves the batch as soon as enough have ended for the copy to pay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines.base import FinishReason
from tasks.rollout.engines.local.kv_cache import new_cache
from tasks.rollout.engines.local.sampling import draw, uniform_numbers
from tasks.rollout.engines.local.stepping import Decoder, Prefilled, decoder_of

_COMPACT_AT = 1 / 8
"""Share of ended sequences at which the batch is compacted: the copy costs about what a step costs."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One ended sequence: its place among the prompts, n token ids, n log-probabilities."""

    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


@dataclass(slots=True)
class _Sequence:
    index: int
    token_ids: list[int]
    logprobs: list[float]
    has_ended: bool = False

    def ended(self, reason: FinishReason) -> Decoded:
        self.has_ended = True
        return Decoded(self.index, tuple(self.token_ids), tuple(self.logprobs), reason)


@torch.inference_mode()
def decode_batch(
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    seeds: Sequence[int],
    sampling: SamplingConfig,
    stop_token_ids: frozenset[int],
    on_ended: Callable[[Decoded], None],
    cancelled: Callable[[], bool] = lambda: False,
    decoder: Decoder | None = None,
) -> None:
    """Sample one response per prompt, calling `on_ended` once for each; returns early once `cancelled()`.

    Prompts are non-empty; prompt + max_new_tokens fits the model's context (the caller has seen to both). `decoder`:
    `decoder_of(model)`, where several batches share it.
    """
    device, steps = model.device, sampling.max_new_tokens
    unique = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    asked = torch.tensor([unique[prompt] for prompt in prompts], device=device)
    prefilled = prefill(model, list(unique))
    logits = prefilled.logits[asked]
    batch = (decoder or decoder_of(model)).begin(prefilled, asked, steps)
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
                on_ended(sequence.ended(FinishReason.STOP))
            elif step == steps - 1:
                on_ended(sequence.ended(FinishReason.LENGTH))
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
    """Send prompts through the model."""
    device = model.device
    width = max(len(prompt) for prompt in prompts)
    input_ids = torch.tensor([[prompt[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    padding = torch.tensor([width - len(prompt) for prompt in prompts], device=device).unsqueeze(1)
    positions = torch.arange(width, device=device).unsqueeze(0)
    valid = positions >= padding
    causal = torch.ones((width, width), dtype=torch.bool, device=device).tril()
    # A padding position sees itself: a query that sees nothing gives NaN, and NaN spreads through masked values.
    alone = torch.eye(width, dtype=torch.bool, device=device)
    mask = (causal & valid[:, None, :]) | alone
    cache = new_cache(int(model.config.num_hidden_layers))
    logits = model(
        input_ids=input_ids,
        position_ids=(positions - padding).clamp(min=0),
        attention_mask=mask[:, None],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]
    return Prefilled(cache, valid, logits)
