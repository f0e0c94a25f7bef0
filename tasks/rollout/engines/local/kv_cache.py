"""Keys and values of a batch in the embedded engine: a cache written in place, and the attention of a batch over it.

`GrowingLayer`: the library's cache grows by concatenation and copies all keys and values on every step, a quarter of a
small model's time. This one allocates `ROOM` positions at a time and returns views.

`AttentionCache`: the keys and values of a prompt with several sequences (a group) are stored once and multiplied with
the queries of all of them in one product, those of each sequence beside them; one softmax spans both parts. If few
prompts are shared, each sequence's own part begins with a copy of its prompt's.

Shapes: B sequences, G prompts of P positions, S slots for the sequences of a prompt, H key heads, R query heads per key
head, D head size, T positions of a sequence's own part.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 64
"""Positions that a layer allocates at a time."""
_FIRST_ROOM = 32
"""Positions allocated at first for a sequence's own part; doubled each time it grows."""
_MOST_SLOTS = 1.5
"""Slots per sequence up to which prompts are stored once: empty slots are computed too."""


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer: (batch, heads, positions, head size), of which `length` positions are filled."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take shape, type and device from the first states."""
        batch, heads, _, _ = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty((batch, heads, 0, key_states.shape[-1]))
        self.values = value_states.new_empty((batch, heads, 0, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append the new positions; return views of all filled ones."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            room = -(-end // ROOM) * ROOM
            self.keys, self.values = _with_room(self.keys, room), _with_room(self.values, room)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.filled()

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return views of the filled positions' keys and values."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        """Return the number of filled positions."""
        return self.length


@dataclass(frozen=True, slots=True)
class Prefilled:
    """G prompts, padded on the left to P positions."""

    cache: Cache
    """Keys and values; owned by the batch that begins with them."""
    valid: Tensor
    """(G, P) bool: true for positions that are no padding."""
    logits: Tensor
    """(G, V): after each prompt's last token."""


class AttentionCache:
    """Keys and values of every layer of a batch."""

    def __init__(self, prefilled: Prefilled, prompts: Tensor, steps: int) -> None:
        layers = [layer.filled() for layer in prefilled.cache.layers if isinstance(layer, GrowingLayer)]
        valid = prefilled.valid
        bias = None if valid.all() else torch.zeros(valid.shape).masked_fill_(~valid, -torch.inf)
        slots = _Slots(prompts.tolist(), heads=layers[0][0].shape[1])
        self._shared: _SharedPrompts | None = None
        self._bias: Tensor | None = None
        """(B, 1, P): added to the scores of a sequence's first P positions."""
        if len(valid) < len(prompts) and slots.count <= _MOST_SLOTS * len(prompts):
            self._shared = _SharedPrompts(layers, bias, slots)
            begin, self._length = [tuple(part[prompts, :, :0] for part in layer) for layer in layers], 0
        else:
            begin, self._length = [tuple(part[prompts] for part in layer) for layer in layers], valid.shape[1]
            self._bias = None if bias is None else bias[prompts].unsqueeze(1)
        self._longest = self._length + steps
        self._own = [
            tuple(_with_room(part, min(self._length + _FIRST_ROOM, self._longest)) for part in layer) for layer in begin
        ]

    def advance(self) -> None:
        """Make room for one more position of each sequence; `attend` fills it."""
        room = self._own[0][0].shape[2]
        if self._length == room:
            room = min(self._length + max(room, _FIRST_ROOM), self._longest)
            self._own = [tuple(_with_room(part, room) for part in layer) for layer in self._own]
        self._length += 1

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Store the position's keys and values (B, H, D); return the attention of queries (B, H·R, D): (B, H·R·D)."""
        batch, heads, size = keys.shape
        own_keys, own_values = self._own[layer]
        own_keys[:, :, self._length - 1] = keys
        own_values[:, :, self._length - 1] = values
        own_keys, own_values = (part.flatten(0, 1)[:, : self._length] for part in (own_keys, own_values))
        grouped = queries.reshape(batch * heads, -1, size)
        scores = torch.bmm(grouped, own_keys.transpose(1, 2))
        if self._shared is None:
            if self._bias is not None:
                scores.view(batch, -1, self._length)[:, :, : self._bias.shape[-1]] += self._bias
            seen = torch.bmm(scores.softmax(dim=-1), own_values)
        else:
            of_prompt = self._shared.scores(layer, grouped)
            weights = torch.cat((of_prompt, scores), dim=-1).softmax(dim=-1)
            seen = torch.bmm(weights[:, :, -self._length :], own_values) + self._shared.seen(layer, weights)
        return seen.view(batch, -1)

    def keep(self, rows: Tensor) -> None:
        """Keep these sequences only, ascending."""
        self._own = [tuple(part.index_select(0, rows) for part in layer) for layer in self._own]
        if self._bias is not None:
            self._bias = self._bias.index_select(0, rows)
        if self._shared is not None:
            self._shared.keep(rows)


class _Slots:
    """Slots of the sequences among the prompts: each prompt has as many as the largest group needs."""

    def __init__(self, prompts: Sequence[int], heads: int) -> None:
        """`prompts`: the prompt's number of each sequence, from 0 without gaps."""
        self.prompts, self.heads = list(prompts), heads
        sizes = Counter(self.prompts)
        self.groups, self.width = len(sizes), max(sizes.values())
        self.count = self.groups * self.width
        taken: Counter[int] = Counter()
        rows: list[int] = []
        for prompt in self.prompts:
            rows += [(prompt * heads + head) * self.width + taken[prompt] for head in range(heads)]
            taken[prompt] += 1
        self.of_sequences = torch.tensor(rows)
        """(B·H): row of each sequence's head in the order by prompt, head and slot."""
        self.sequences = torch.zeros(self.count * heads, dtype=torch.int64)
        """(G·H·S): the reverse. An empty slot holds some sequence's row; its result is not used."""
        self.sequences[self.of_sequences] = torch.arange(len(rows))


class _SharedPrompts:
    """Keys and values of the prompts, per layer (G, H, P, D) each."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None, slots: _Slots) -> None:
        self._layers = [(keys.contiguous(), values.contiguous()) for keys, values in layers]
        self._slots = slots
        self._bias = None if bias is None else bias[:, None, None].expand(-1, slots.heads, -1, -1)

    def scores(self, layer: int, queries: Tensor) -> Tensor:
        """Return the scores of the prompts' positions, (B·H, R, P), from queries (B·H, R, D)."""
        keys = self._layers[layer][0].flatten(0, 1).transpose(1, 2)
        placed = self._placed(queries)
        if self._bias is None:
            scores = torch.bmm(placed, keys)
        else:
            scores = torch.baddbmm(self._bias.flatten(0, 1), placed, keys)
        return self._taken(scores, queries.shape[1])

    def seen(self, layer: int, weights: Tensor) -> Tensor:
        """Return the weighted sum of the prompts' values, (B·H, R, D), by weights (B·H, R, P + T)."""
        values = self._layers[layer][1]
        placed = self._placed(weights)[:, :, : values.shape[2]]
        return self._taken(torch.bmm(placed, values.flatten(0, 1)), weights.shape[1])

    def keep(self, rows: Tensor) -> None:
        """Keep these sequences only, and the prompts that still have one."""
        prompts = torch.tensor(self._slots.prompts)[rows]
        left, numbers = prompts.unique(return_inverse=True)
        if len(left) < self._slots.groups:
            self._layers = [(keys.index_select(0, left), values.index_select(0, left)) for keys, values in self._layers]
            self._bias = None if self._bias is None else self._bias.index_select(0, left)
        self._slots = _Slots(numbers.tolist(), self._slots.heads)

    def _placed(self, states: Tensor) -> Tensor:
        """Order (B·H, R, N) by prompt: (G·H, S·R, N)."""
        slots = self._slots
        return states.index_select(0, slots.sequences).view(slots.groups * slots.heads, -1, states.shape[-1])

    def _taken(self, states: Tensor, queries: int) -> Tensor:
        """Order (G·H, S·R, N) by sequence: (B·H, R, N)."""
        return states.view(-1, queries, states.shape[-1]).index_select(0, self._slots.of_sequences)


def _with_room(states: Tensor, room: int) -> Tensor:
    """Return (B, H, T, D) with T grown to `room`."""
    batch, heads, filled, size = states.shape
    # Zeros, not uninitialised memory: masked positions are still multiplied (by 0), and 0 times NaN is NaN.
    grown = states.new_zeros((batch, heads, room, size))
    grown[:, :, :filled] = states
    return grown
