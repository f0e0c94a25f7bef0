"""Operators that a candidate registers with PyTorch: its own Python functions under a name (`torch.library`).

A kernel's launcher is often wrapped so (`custom_op`, `triton_op`, `Library.impl`). The tracer runs the function itself, so that what it
does is seen. Operators of PyTorch's own namespaces are never looked up here: an implementation that a candidate gives them changes nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

_functions: dict[str, Callable[..., Any]] = {}
"""What `Library.impl` was given, by `namespace::name`."""
_RUNS_ON_A_GPU = frozenset({"", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd"})


def own_operator(func: Any) -> Callable[..., Any] | None:
    """Return the candidate's function behind an operator; None for one of PyTorch's."""
    if func.namespace in ("aten", "prims", "prim"):
        return None
    name = f"{func.namespace}::{func.overloadpacket.__name__}"
    defined: Any = OPDEFS.get(name)
    return defined._init_fn if defined is not None else _functions.get(name)


def install() -> None:
    """Have registrations in this process remembered. Before the candidate's source is loaded."""
    library: Any = torch.library.Library
    register = library.impl

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **named: Any) -> Any:
        if (dispatch_key or self.dispatch_key) in _RUNS_ON_A_GPU and isinstance(op_name, str):
            _functions[f"{self.ns}::{op_name.split('::')[-1].split('.')[0]}"] = fn
        return register(self, op_name, fn, dispatch_key, **named)

    library.impl = impl
