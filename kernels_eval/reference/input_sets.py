"""Input sets of a problem: what goes to a candidate, and what the judge asks of them."""

from typing import Any

import torch

from kernels_eval.reference.expected import ReferenceFailedError
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm, form_of

Shape = tuple[int, ...]


def passed_as(value: Any) -> Any:
    """Return how an input goes to a candidate: the form of a tensor, or a plain value; ReferenceFailedError for anything else."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in NAMES or value.layout is not torch.strided:
            raise ReferenceFailedError(f"get_inputs returns a {value.layout} tensor of {value.dtype}")
        return form_of(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple) and not any(isinstance(passed_as(item), TensorForm) for item in value):
        return value
    raise ReferenceFailedError(f"get_inputs returns a {type(value).__name__}, expected tensors, numbers and strings")


def address_of(value: Any) -> int:
    """Address of a tensor's memory; 0 for anything else."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


def shapes_of(values: list[Any]) -> list[Shape | None]:
    """Return the shape of each tensor; None for anything else."""
    return [tuple(value.shape) if isinstance(value, torch.Tensor) else None for value in values]


def as_fake(values: list[Any]) -> list[Any]:
    """Return tensors of the same forms, made where this is called: under FakeTensorMode nothing is allocated."""
    return [
        torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value for value in values
    ]


def copied(values: list[Any]) -> list[Any]:
    """Return the same values in memory of their own."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True where two tensors of one shape hold the same bits (NaN equals NaN)."""
    if first.numel() == 0:
        return True
    flat = (first.contiguous().reshape(-1).view(torch.uint8), second.contiguous().reshape(-1).view(torch.uint8))
    return torch.equal(*flat)
