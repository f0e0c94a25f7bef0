"""From one token of a batch to the next logits: the interface of decoding, and its general way.

A decoder takes prompts that have gone through the model (`Prefilled`) and says for which sequences they were asked; what it
begins is told each sequence's next token and answers with its next logits. There are two: the library's forward, for any model, and
`plain_decoder`, the same computation written out for the architectures that matter most on a CPU.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from tasks.rollout.engines.local.kv_cache import select_rows


@dataclass(frozen=True, slots=True)
class Prefilled:
    """G prompts, padded on the left to P positions."""

    cache: Cache
    """Their keys and values. Belongs to the batch that is begun with it."""
    valid: Tensor
    """(G, P) bool: which positions are no padding."""
    logits: Tensor
    """(G, V): after each prompt's last token."""


class Batch(Protocol):
    """B sequences under way."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append a token to each sequence, (B,); return the logits of the next ones, (B, V)."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these sequences alone, ascending: the others have ended."""
        ...


class Decoder(Protocol):
    """A way to decode with a model's weights, as they were when it was made."""

    def begin(self, prefilled: Prefilled, prompts: Tensor, steps: int) -> Batch:
        """Begin a batch; sequence i answers prompt `prompts[i]`, in at most `steps` tokens."""
        ...


def decoder_of(model: PreTrainedModel) -> Decoder:
    """Return the fastest decoder that there is for a model."""
    from tasks.rollout.engines.local.plain_decoder import PlainDecoder, is_plain

    return PlainDecoder(model) if is_plain(model) else LibraryDecoder(model)


class LibraryDecoder:
    """Decodes through the model's own forward; the cache of a prompt is repeated for its sequences."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def begin(self, prefilled: Prefilled, prompts: Tensor, steps: int) -> "_LibraryBatch":
        """See `Decoder`."""
        return _LibraryBatch(self._model, prefilled, prompts, steps)


class _LibraryBatch:
    def __init__(self, model: PreTrainedModel, prefilled: Prefilled, prompts: Tensor, steps: int) -> None:
        self._model, self._cache = model, prefilled.cache
        if not torch.equal(prompts, torch.arange(len(prefilled.valid), device=prompts.device)):
            select_rows(self._cache, prompts)
        valid = prefilled.valid[prompts]
        self._positions = valid.sum(dim=1)
        # What a sequence writes itself is always visible to it.
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
        select_rows(self._cache, rows)
        self._positions = self._positions[rows]
        if self._visible is not None:
            self._visible = self._visible[rows]
