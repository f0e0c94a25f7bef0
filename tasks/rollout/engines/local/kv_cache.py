"""A key-value cache that is written in place.

The library's own grows by concatenation: every step copies all keys and values, a quarter of the time of a small model.
This one holds room in steps of `ROOM` positions and returns views.
"""

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

ROOM = 64
"""Positions added at a time."""


class GrowingLayer(CacheLayerMixin):
    """Keys and values of one layer: (batch, heads, positions, head size), of which `length` positions are filled."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take shape, type and device from the first states."""
        batch, heads, _, _ = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty((batch, heads, 0, key_states.shape[-1]))
        self.values = value_states.new_empty((batch, heads, 0, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new positions; return views of all filled ones."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self.keys, self.values = _with_room(self.keys, end), _with_room(self.values, end)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.filled()

    def filled(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of the filled positions' keys and values."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: torch.Tensor) -> None:
        """Make row i of the batch a copy of row `rows[i]`: repeats rows, drops rows."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys.index_select(0, rows)
            self.values = self.values.index_select(0, rows)

    def get_seq_length(self) -> int:
        """Return the number of filled positions."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of positions that the next query sees, and the offset of the first."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1


def new_cache(layers: int) -> Cache:
    """Return an empty cache for a model of so many layers."""
    return Cache(layers=[GrowingLayer() for _ in range(layers)])


def select_rows(cache: Cache, rows: torch.Tensor) -> None:
    """Apply `GrowingLayer.select` to every layer."""
    for layer in cache.layers:
        assert isinstance(layer, GrowingLayer)
        layer.select(rows)


def _with_room(states: torch.Tensor, positions: int) -> torch.Tensor:
    batch, heads, filled, size = states.shape
    # Zeros, not whatever memory held: masked positions are still multiplied (by 0), and 0 times NaN is NaN.
    grown = states.new_zeros((batch, heads, -(-positions // ROOM) * ROOM, size))
    grown[:, :, :filled] = states
    return grown
