"""What a batch's sequences attend to: their prompts, and what they have written since.

Where a prompt has several sequences (a group), its keys and values are kept once, and the queries of all its sequences go
against them in one product; each sequence's own keys and values lie beside that. One softmax over both parts makes it the
attention over the whole. Where few prompts are shared, each sequence's own part begins with a copy of its prompt's.

Shapes: B sequences, G prompts of P positions, S places for the sequences of a prompt, H key heads, R query heads to each, D
the size of a head, T positions of a sequence's own part.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.rollout.engines.local.kv_cache import GrowingLayer
from tasks.rollout.engines.local.stepping import Prefilled

_ROOM = 32
"""Positions that a sequence can write before its part grows; doubled each time."""
_WORTHWHILE = 1.5
"""Places in groups, per sequence, up to which prompts are kept once: places that are empty are computed too."""


class Memory:
    """Keys and values of every layer of a batch."""

    def __init__(self, prefilled: Prefilled, prompts: Tensor, steps: int) -> None:
        layers = [layer.filled() for layer in prefilled.cache.layers if isinstance(layer, GrowingLayer)]
        valid = prefilled.valid
        bias = None if valid.all() else torch.zeros(valid.shape).masked_fill_(~valid, -torch.inf)
        places = _Places(prompts.tolist(), heads=layers[0][0].shape[1])
        self._shared: _SharedPrompts | None = None
        self._bias: Tensor | None = None
        """(B, 1, P): what is added to the scores of a sequence's first P positions."""
        if len(valid) < len(prompts) and places.count <= _WORTHWHILE * len(prompts):
            self._shared = _SharedPrompts(layers, bias, places)
            begin, self._length = [tuple(part[prompts, :, :0] for part in layer) for layer in layers], 0
        else:
            begin, self._length = [tuple(part[prompts] for part in layer) for layer in layers], valid.shape[1]
            self._bias = None if bias is None else bias[prompts].unsqueeze(1)
        self._longest = self._length + steps
        self._own = [
            tuple(_with_room(part, min(self._length + _ROOM, self._longest)) for part in layer) for layer in begin
        ]

    def advance(self) -> None:
        """Make room for one more position of each sequence; `attend` fills it."""
        room = self._own[0][0].shape[2]
        if self._length == room:
            room = min(self._length + max(room, _ROOM), self._longest)
            self._own = [tuple(_with_room(part, room) for part in layer) for layer in self._own]
        self._length += 1

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Note the position's keys and values (B, H, D); return what its queries (B, H·R, D), scaled, see: (B, H·R·D)."""
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
        """Go on with these sequences alone, ascending."""
        self._own = [tuple(part.index_select(0, rows) for part in layer) for layer in self._own]
        if self._bias is not None:
            self._bias = self._bias.index_select(0, rows)
        if self._shared is not None:
            self._shared.keep(rows)


class _Places:
    """Where the sequences stand among the prompts: each prompt has as many places as the largest group needs."""

    def __init__(self, prompts: Sequence[int], heads: int) -> None:
        """`prompts`: of each sequence, all numbers from 0 on."""
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
        """(B·H): of what is ordered by prompt, head and place, the row of each sequence's head."""
        self.sequences = torch.zeros(self.count * heads, dtype=torch.int64)
        """(G·H·S): the reverse. An empty place gets some sequence's row: what is computed there goes nowhere."""
        self.sequences[self.of_sequences] = torch.arange(len(rows))


class _SharedPrompts:
    """The prompts' part: each layer's keys and values, (G, H, P, D) each."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None, places: _Places) -> None:
        self._layers = [(keys.contiguous(), values.contiguous()) for keys, values in layers]
        self._places = places
        self._bias = None if bias is None else bias[:, None, None].expand(-1, places.heads, -1, -1)

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
        """Return what is seen of the prompts, (B·H, R, D), by weights (B·H, R, P + T)."""
        values = self._layers[layer][1]
        placed = self._placed(weights)[:, :, : values.shape[2]]
        return self._taken(torch.bmm(placed, values.flatten(0, 1)), weights.shape[1])

    def keep(self, rows: Tensor) -> None:
        """Go on with these sequences alone, and with the prompts that still have one."""
        prompts = torch.tensor(self._places.prompts)[rows]
        left, numbers = prompts.unique(return_inverse=True)
        if len(left) < self._places.groups:
            self._layers = [(keys.index_select(0, left), values.index_select(0, left)) for keys, values in self._layers]
            self._bias = None if self._bias is None else self._bias.index_select(0, left)
        self._places = _Places(numbers.tolist(), self._places.heads)

    def _placed(self, states: Tensor) -> Tensor:
        """Order (B·H, R, N) by prompt: (G·H, S·R, N)."""
        places = self._places
        return states.index_select(0, places.sequences).view(places.groups * places.heads, -1, states.shape[-1])

    def _taken(self, states: Tensor, queries: int) -> Tensor:
        """Order (G·H, S·R, N) by sequence: (B·H, R, N)."""
        return states.view(-1, queries, states.shape[-1]).index_select(0, self._places.of_sequences)


def _with_room(states: Tensor, room: int) -> Tensor:
    """Return (B, H, T, D) with T grown to `room`."""
    batch, heads, filled, size = states.shape
    grown = states.new_empty((batch, heads, room, size))
    grown[:, :, :filled] = states
    return grown
