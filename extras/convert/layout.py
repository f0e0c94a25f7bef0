"""Order of the numbers in Megatron's fused and divided weights: pure functions of tensors.

Queries, keys and values: per key-value head, the rows of its queries, then its key, then its value, so that a
contiguous share of the rows holds whole groups. Gate and up projections: all rows of the gate, then all of up; each
tensor-parallel rank holds the same order of its own share.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from extras.convert.architecture import Architecture
from extras.convert.weights import Part, Weight


def fuse(weight: Weight, architecture: Architecture, tensors: Sequence[Tensor]) -> Tensor:
    """Return the Megatron weight of the Hugging Face tensors named by `huggingface_names`."""
    if weight.part in (Part.QKV, Part.QKV_BIAS):
        return _interleave(tensors, architecture)
    return torch.cat(list(tensors)) if weight.part.is_gate_up else tensors[0]


def split(weight: Weight, architecture: Architecture, tensor: Tensor) -> list[Tensor]:
    """Return the Hugging Face tensors of a whole Megatron weight, rows of padded tokens cut off."""
    if weight.part in (Part.QKV, Part.QKV_BIAS):
        return _deinterleave(tensor, architecture)
    if weight.part.is_gate_up:
        return list(tensor.chunk(2))
    return [tensor[: architecture.vocabulary] if weight.part.is_vocabulary else tensor]


def pad_vocabulary(tensor: Tensor, rows: int) -> Tensor:
    """Return an embedding with so many rows: cut, or zeros added after the last token."""
    if len(tensor) >= rows:
        return tensor[:rows]
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


def padded_vocabulary(vocabulary: int, divisor: int, tensor_parallel: int) -> int:
    """Return Megatron's number of rows: the next multiple of `divisor` × tensor-parallel ranks."""
    multiple = divisor * tensor_parallel
    return -(-vocabulary // multiple) * multiple


def divide(part: Part, tensor: Tensor, ranks: int) -> list[Tensor]:
    """Return the shares of tensor-parallel ranks; their sizes must be equal."""
    if part.parallel_axis is None or ranks == 1:
        return [tensor] * ranks
    if part.is_gate_up:
        gates, ups = (half.chunk(ranks) for half in tensor.chunk(2))
        return [torch.cat(halves) for halves in zip(gates, ups, strict=True)]
    return list(tensor.chunk(ranks, part.parallel_axis))


def join(part: Part, shares: Sequence[Tensor]) -> Tensor:
    """Return the whole weight of the shares of tensor-parallel ranks."""
    if part.parallel_axis is None or len(shares) == 1:
        return shares[0]
    if part.is_gate_up:
        halves = [share.chunk(2) for share in shares]
        return torch.cat([half[side] for side in (0, 1) for half in halves])
    return torch.cat(list(shares), part.parallel_axis)


def _interleave(tensors: Sequence[Tensor], architecture: Architecture) -> Tensor:
    groups, head = architecture.key_value_heads, architecture.head_dim
    grouped = [tensor.reshape(groups, -1, head, *tensor.shape[1:]) for tensor in tensors]
    return torch.cat(grouped, dim=1).flatten(0, 2)


def _deinterleave(tensor: Tensor, architecture: Architecture) -> list[Tensor]:
    groups, head = architecture.key_value_heads, architecture.head_dim
    grouped = tensor.reshape(groups, -1, head, *tensor.shape[1:])
    queries = architecture.heads // groups
    return [part.flatten(0, 2) for part in grouped.split([queries, 1, 1], dim=1)]
