"""Weights of the reference on their way into a candidate's model: through the shared device memory, piece by piece.

Before the first round nothing else lies there. A socket takes 0.7 s for 256 MB.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.gpu.device.shared_memory import ALIGNMENT, MappedMemory, Transport, copy_tensor, rounded_up


@dataclass(frozen=True)
class WeightPiece:
    """Part of one weight's content, as row-major bytes, and where it lies in the shared memory."""

    name: str
    start: int
    """Offset in the weight."""
    nbytes: int
    offset: int
    """In the shared memory."""


def in_batches(sizes: Mapping[str, int], room: int) -> Iterator[list[WeightPiece]]:
    """Yield pieces of weights of these sizes in bytes; those of one batch fit into `room` bytes side by side."""
    room = room // ALIGNMENT * ALIGNMENT
    batch: list[WeightPiece] = []
    offset = 0
    for name, size in sizes.items():
        start = 0
        while start < size:
            if offset == room:
                yield batch
                batch, offset = [], 0
            nbytes = min(size - start, room - offset)
            batch.append(WeightPiece(name, start, nbytes, offset))
            start += nbytes
            offset += rounded_up(nbytes)
    if batch:
        yield batch


def publish_weights(
    transport: Transport,
    weights: Mapping[str, torch.Tensor],
    dtypes: Mapping[str, torch.dtype],
    pieces: Sequence[WeightPiece],
) -> int:
    """Copy pieces of weights into the shared memory; returns how many bytes of it they reach over.

    `dtypes`: the candidate's, in which they arrive and by which pieces are measured. Nothing else is made in these: the
    memory would be this worker's.
    """
    memory = transport.memory()
    for piece in pieces:
        dtype = dtypes[piece.name]
        start, end = piece.start // dtype.itemsize, (piece.start + piece.nbytes) // dtype.itemsize
        content = weights[piece.name].detach().contiguous().view(-1)[start:end]
        memory[piece.offset : piece.offset + piece.nbytes].view(dtype).copy_(content)
    end = pieces[-1].offset + pieces[-1].nbytes
    transport.push(end)
    return end


class WeightTaker:
    """Candidate's side: copies the pieces into the model's parameters and buffers."""

    def __init__(self, memory: MappedMemory, state: Mapping[str, torch.Tensor]) -> None:
        """`state`: parameters and buffers by name; gradients are off."""
        self._memory = memory
        self._state = state
        self._dense: dict[str, torch.Tensor] = {}
        """Copies of those that are not contiguous, until all of their pieces have come."""

    def take(self, pieces: Sequence[Mapping[str, Any]], nbytes: int) -> None:
        """Copy what was published: pieces in the first `nbytes` bytes of the shared memory."""
        self._memory.pull(nbytes)
        for piece in pieces:
            name, start, size, offset = piece["name"], piece["start"], piece["nbytes"], piece["offset"]
            target = self._state[name]
            dense = target if target.is_contiguous() else self._dense.setdefault(name, _dense_like(target))
            content = _content(dense)
            copy_tensor(content[start : start + size], self._memory.tensor[offset : offset + size])
            if dense is not target and start + size == content.numel():
                copy_tensor(target, self._dense.pop(name))


def _content(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor, without copying."""
    return tensor.view(-1).view(torch.uint8)


def _dense_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
