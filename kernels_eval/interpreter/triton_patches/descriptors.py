"""Interpreter process: tensor descriptors, whose accesses no lane makes, and which need memory of the launch.

Triton's launcher asks the allocator of `triton.set_allocator` for that of descriptors that a kernel makes. Without one
the launch fails. One thread has the copying engine load or store a block, and waits for a store only until its values
have been read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels_eval.interpreter.data_races import RACES
from kernels_eval.interpreter.triton_patches.names import upstream


class NoAllocatorError(Exception):
    """Raised where a kernel makes a descriptor, and host code has set no allocator."""

    def __init__(self) -> None:
        super().__init__(
            "Kernel requires a runtime memory allocation, but no allocator was set: a kernel that makes a descriptor "
            "needs triton.set_allocator before its launch"
        )


@dataclass
class Workspace:
    """State of the current launch: with or without an allocator."""

    has_allocator: bool = True


WORKSPACE = Workspace()
_make: Any = upstream.InterpreterBuilder.create_make_tensor_descriptor


def install() -> None:
    """Patch Triton's interpreter in this process, once."""
    upstream.InterpreterBuilder.create_make_tensor_descriptor = _checked
    for name in ("load", "store", "gather", "scatter"):
        access = f"create_descriptor_{name}"
        setattr(upstream.InterpreterBuilder, access, _by_the_engine(getattr(upstream.InterpreterBuilder, access)))


def _by_the_engine(access: Callable[..., Any]) -> Callable[..., Any]:
    def accessed(*operands: Any, **named: Any) -> Any:
        RACES.is_of_engine = True
        try:
            return access(*operands, **named)
        finally:
            RACES.is_of_engine = False

    return accessed


def _checked(self: Any, *operands: Any, **named: Any) -> Any:
    if not WORKSPACE.has_allocator:
        raise NoAllocatorError
    return _make(self, *operands, **named)
