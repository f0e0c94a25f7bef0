"""CPU worker: places of a call's inputs in the memory that the interpreter process shares."""

from typing import Any

import torch

from kernels_eval.sandbox.tensor_bytes import TensorForm, form_of

_ALIGNMENT = 256
_GAP = 1 << 20
"""Bytes between two inputs, never touched, which costs no memory: an access past the end of one must not fall into
another."""


def items(inputs: list[Any]) -> list[dict[str, Any]]:
    """Return what the candidate's processes are told of each input: its form and place, or its value."""
    found: list[dict[str, Any]] = []
    for value, offset in zip(inputs, offsets_of(inputs), strict=True):
        form = form_of(value) if isinstance(value, torch.Tensor) else value
        is_form = isinstance(form, TensorForm)
        found.append({"form": form.model_dump(), "offset": offset} if is_form else {"value": value})
    return found


def offsets_of(inputs: list[Any]) -> list[int]:
    """Return the offset in bytes of each input."""
    offsets = [0]
    for value in inputs:
        offsets.append(offsets[-1] + _size(value))
    return offsets[:-1]


def bytes_needed(inputs: list[Any]) -> int:
    """Return the size in bytes of an input set in shared memory."""
    return sum(_size(value) for value in inputs)


def _size(value: Any) -> int:
    form = form_of(value) if isinstance(value, torch.Tensor) else value
    return -(-form.nbytes // _ALIGNMENT) * _ALIGNMENT + _GAP if isinstance(form, TensorForm) else 0
