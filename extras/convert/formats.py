"""Interfaces that every format of checkpoint offers a conversion, for reading and for writing."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from extras.convert.weights import Weight


class Format(StrEnum):
    """Formats of checkpoints."""

    HUGGINGFACE = "huggingface"
    """A folder with config.json and safetensors."""
    TORCH_DIST = "torch_dist"
    """Megatron-core's distributed checkpoint, in the files of torch.distributed.checkpoint."""
    MP_RANK = "mp_rank"
    """Megatron's older form: a folder `mp_rank_<tp>[_<pp>][_<ep>]` a rank."""
    ZERO = "zero"
    """DeepSpeed's checkpoint of any ZeRO stage; can only be read."""
    GGUF = "gguf"
    """A file of llama.cpp, usually quantised; can only be read, and only written as `huggingface`."""


class Source(Protocol):
    """A checkpoint that is read by whole Megatron weights."""

    def dtype(self, weight: Weight) -> torch.dtype:
        """Return the type of a weight. Raises InputError if the checkpoint lacks it."""
        ...

    def read(self, weight: Weight) -> Tensor:
        """Return a whole weight, rows of padded tokens included. Raises InputError if it is missing or damaged."""
        ...

    def read_bytes(self, weight: Weight) -> int:
        """Return the bytes that are in memory while this weight is read, the whole weight included."""
        ...

    def release(self) -> None:
        """Unmap the files that were read since the last call."""
        ...

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of each set of files that hold the same layers."""
        ...


class Sink(Protocol):
    """A checkpoint that is written by whole Megatron weights, in the order of `weights_of`."""

    def write(self, weight: Weight, tensor: Tensor) -> None:
        """Write one weight."""
        ...

    def release(self) -> None:
        """Unmap the files that were written since the last call."""
        ...

    def close(self) -> None:
        """Write what follows the last weight."""
        ...
