"""Settings of PyTorch that problems change for the whole process, such as the default data type.

They are in force while kernels for that problem are judged, and no longer: a worker judges other problems after it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

_SETTINGS: tuple[tuple[Any, Any], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.is_grad_enabled, torch.set_grad_enabled),
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
