"""Settings of PyTorch that problems change for the whole process, such as the default data type.

They are in force while kernels for that problem are judged, and no longer: a worker judges other problems after it.
"""

import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


def _matmul_precision() -> str | None:
    """Return the precision of products; None if it was set for one library alone, where PyTorch refuses to tell."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


def _precision_of(library: Any) -> tuple[Any, Any]:
    return functools.partial(getattr, library, "fp32_precision"), functools.partial(setattr, library, "fp32_precision")


_SETTINGS: tuple[tuple[Any, Any], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_matmul_precision, _set_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    # After the precision of products, which sets those of libraries.
    _precision_of(torch.backends),
    _precision_of(torch.backends.cuda.matmul),
    _precision_of(torch.backends.cudnn.conv),  # pyright: ignore[reportAttributeAccessIssue] (made as it is imported)
    _precision_of(torch.backends.cudnn.rnn),  # pyright: ignore[reportAttributeAccessIssue]
    _precision_of(torch.backends.mkldnn.matmul),  # pyright: ignore[reportAttributeAccessIssue]
)


def settings() -> list[Any]:
    """Return the settings that are in force."""
    return [found() for found, _ in _SETTINGS]


def set_settings(values: list[Any]) -> None:
    """Put settings into force that `settings` returned."""
    for (found, put), value in zip(_SETTINGS, values, strict=True):
        if found() != value:
            put(value)


@contextmanager
def unchanged_settings() -> Generator[None]:
    """Put back at the end the settings that are in force at the beginning."""
    before = settings()
    try:
        yield
    finally:
        set_settings(before)
