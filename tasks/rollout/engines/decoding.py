"""One static batch, decoded to its end.

Prompts are padded on the left; equal prompts (a group's) go through the model once and their cache is repeated. Each
sequence is handed over the moment it ends, and leaves the batch as soon as enough have ended for the copy to pay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines.base import FinishReason
from tasks.rollout.engines.cache import new_cache, select_rows
from tasks.rollout.engines.sampling import draw, uniform_numbers
from tasks.rollout.engines.stepping import Step, step_of

_COMPACT_AT = 1 / 8
"""Share of ended sequences at which the batch is compacted: the copy costs about what a step costs."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One ended sequence: its place among the prompts, n token ids, n log-probabilities."""

    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


@torch.inference_mode()
def decode_batch(
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    seeds: Sequence[int],
    sampling: SamplingConfig,
    stop_token_ids: frozenset[int],
    on_ended: Callable[[Decoded], None],
    cancelled: Callable[[], bool] = lambda: False,
    share_prefixes: bool = True,
    step_forward: Step | None = None,
) -> None:
    """Sample one response per prompt, calling `on_ended` once for each; returns early once `cancelled()`.

    `step_forward`: `step_of(model)`, where several batches share it.

    Prompts are non-empty; prompt + max_new_tokens fits the model's context (the caller has seen to both).
    """
    device = model.device
    unique = list(dict.fromkeys(prompts)) if share_prefixes else list(prompts)
    cache = new_cache(int(model.config.num_hidden_layers))
    logits, valid = _prefill(model, unique, cache)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    if len(unique) < len(prompts):
        place = {prompt: row for row, prompt in enumerate(unique)}
        rows = torch.tensor([place[prompt] for prompt in prompts], device=device)
        logits, valid = logits[rows], valid[rows]
        select_rows(cache, rows)

    steps = sampling.max_new_tokens
    step_forward = step_forward or step_of(model)
    width = valid.shape[1]
    is_padded = not bool(valid.all())
    # (B, width + steps): which cache positions a sequence may look at. What it writes itself is always visible to it.
    visible = torch.cat([valid, valid.new_ones((len(prompts), steps))], dim=1)
    uniforms = uniform_numbers(list(seeds), steps).to(device)
    stops = torch.tensor(sorted(stop_token_ids), device=device)
    # By place among the prompts, whatever the batch shrinks to.
    tokens = torch.zeros((len(prompts), steps), dtype=torch.int64, device=device)
    chosen = torch.zeros((len(prompts), steps), dtype=torch.float32, device=device)
    places = torch.arange(len(prompts), device=device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)

    for step in range(steps):
        logprobs = logits.float().log_softmax(dim=-1)
        token = draw(logprobs, uniforms[places, step], sampling)
        tokens[places, step] = token
        chosen[places, step] = logprobs.gather(1, token.unsqueeze(1)).squeeze(1)
        stopped = torch.isin(token, stops)
        last = step == steps - 1
        newly_ended = ~ended if last else stopped & ~ended
        for row in newly_ended.nonzero().flatten().tolist():
            place = int(places[row])
            reason = FinishReason.STOP if bool(stopped[row]) else FinishReason.LENGTH
            kept = slice(0, step + 1)
            on_ended(Decoded(place, tuple(tokens[place, kept].tolist()), tuple(chosen[place, kept].tolist()), reason))
        ended = ended | newly_ended
        count = int(ended.sum())
        if count == len(ended) or cancelled():
            return
        if count >= _COMPACT_AT * len(ended):
            rows = (~ended).nonzero().flatten()
            places, visible, ended, token, lengths = (
                places[rows],
                visible[rows],
                ended[rows],
                token[rows],
                lengths[rows],
            )
            select_rows(cache, rows)
        seen = visible[:, : width + step + 1] if is_padded else None
        logits = step_forward(token, lengths + step, seen, cache)


def _prefill(
    model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], cache: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fill the cache with left-padded prompts; return the last logits (B, V) and which positions are no padding (B, P)."""
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
    output = model(
        input_ids=input_ids,
        position_ids=(positions - padding).clamp(min=0),
        attention_mask=mask[:, None],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1], valid
