"""Processes of a candidate: operators that consist of others, which are judged in their place.

Kernel launchers are often registered by `custom_op`, `triton_op` or `Library.impl`: the function behind such an
operator is host code like any other. And below autograd PyTorch hands over operators whole that it composes of others:
in inference mode, and in the function of a custom operator. `contiguous` would pass for a view there.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

_registered: dict[str, Callable[..., Any]] = {}
"""Functions passed to `Library.impl`, by `namespace::name`."""
_OF_PYTORCH = ("aten", "prim", "prims", "profiler")
_RUNS_ON_A_GPU = frozenset({"", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd"})


def parts_of(func: Any) -> Callable[..., Any] | None:
    """Return the function that does an operator's work by others, to be called in its place; None if there is none.

    Implementations that a candidate registers for PyTorch's own operators are ignored.
    """
    if func.namespace == "aten" and func._can_decompose():
        return func.decompose
    if func.namespace in ("aten", "prims", "prim"):
        return None
    name = f"{func.namespace}::{func.overloadpacket.__name__}"
    defined: Any = OPDEFS.get(name)
    return defined._init_fn if defined is not None else _registered.get(name)


def remember_registrations() -> None:
    """Remember the functions that `Library.impl` registers in this process. Call before loading the candidate.

    PyTorch's own operators keep their implementations, and get no overload.
    """
    library: Any = torch.library.Library
    register, new = library.impl, library.define

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **named: Any) -> Any:
        if self.ns in _OF_PYTORCH:
            return None
        if (dispatch_key or self.dispatch_key) in _RUNS_ON_A_GPU and isinstance(op_name, str):
            _registered[f"{self.ns}::{op_name.split('::')[-1].split('.')[0]}"] = fn
        return register(self, op_name, fn, dispatch_key, **named)

    def define(self: Any, schema: str, *args: Any, **named: Any) -> Any:
        if self.ns in _OF_PYTORCH:
            raise RuntimeError(f"{self.ns}: a kernel's file cannot define operators of PyTorch's")
        return new(self, schema, *args, **named)

    library.impl, library.define = impl, define
