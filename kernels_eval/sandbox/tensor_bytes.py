"""Tensors as raw bytes with a checked description: the only form in which a candidate's results are read."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from kernels_eval.cost.launch import DTYPE_NAMES, Size
from kernels_eval.frozen import FrozenModel

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPE_NAMES}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TensorForm(FrozenModel):
    """Shape and type of a contiguous tensor."""

    kind: Literal["tensor"] = "tensor"
    dtype: Annotated[str, Field(max_length=20)]
    shape: Annotated[tuple[Size, ...], Field(max_length=16)]

    @property
    def nbytes(self) -> int:
        """Size of the content in bytes."""
        count = 1
        for size in self.shape:
            count *= size
        return count * DTYPES[self.dtype].itemsize


def form_of(tensor: torch.Tensor) -> TensorForm:
    """Describe a tensor. Raises KeyError for a type without a raw form."""
    return TensorForm(dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape))


def tensor_from(memory: bytearray | memoryview, form: TensorForm, offset: int = 0) -> torch.Tensor:
    """Return a tensor over the given memory (no copy)."""
    dtype = DTYPES[form.dtype]
    count = form.nbytes // dtype.itemsize
    if count == 0:
        return torch.empty(form.shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).reshape(form.shape)


def aligned(payload: bytearray, spare: int = 0) -> memoryview:
    """Return the same bytes in memory that begins where a sector of a device does, wherever the payload lies.

    `spare`: bytes of memory behind them that nothing else uses.

    Which sectors an access touches, and so the estimate of its time, must not depend on where memory happened to be.
    """
    memory = torch.empty(len(payload) + spare, dtype=torch.uint8)[: len(payload)]  # at a multiple of 64 bytes
    content = memoryview(_to_numpy(memory))
    content[:] = payload
    return content


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's content, in row-major order, as bytes."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(_to_numpy(flat)) if flat.numel() else memoryview(b"")


_to_numpy: Any = torch.Tensor.numpy  # bound before a candidate's process takes the method away
