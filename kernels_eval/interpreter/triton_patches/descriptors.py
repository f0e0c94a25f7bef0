"""Interpreter process: tensor descriptors that a kernel makes, for which its launch has to have memory.

Triton's launcher asks the allocator of `triton.set_allocator` for it. Without one the launch fails.
"""

from dataclasses import dataclass
from typing import Any

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


def _checked(self: Any, *operands: Any, **named: Any) -> Any:
    if not WORKSPACE.has_allocator:
        raise NoAllocatorError
    return _make(self, *operands, **named)
