"""Tracing process: PyTorch's compiler, which takes seconds to load and writes kernels that are not the file's own.

Under `strict` it is refused where the file calls it. Under `mixed` a function stays as it is: PyTorch's operators in it
are estimated one by one. What only prepares or resets the compiler does nothing.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError, line_of_candidate
from kernels_eval.tracing.tracer import Tracer


def install(tracer: Tracer) -> None:
    """Replace the functions of torch.compiler and torch._dynamo that call the compiler."""

    def stand_in(name: str) -> Callable[..., Any]:
        def compile_nothing(model: Any = None, *_: Any, **__: Any) -> Any:
            if tracer.strict:
                raise CandidateError(
                    "rejected",
                    ErrorCategory.LIBRARY_COMPUTE,
                    f"{name} (line {line_of_candidate()}): PyTorch's compiler would write kernels, and under `strict` "
                    "the file's own have to compute; leave it out",
                )
            return model if callable(model) else _unchanged

        return compile_nothing

    compiler: Any = torch.compiler
    torch.compile = stand_in("torch.compile")
    compiler.reset = compiler.cudagraph_mark_step_begin = _nothing
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.optimize, dynamo.reset = stand_in("torch._dynamo.optimize"), _nothing


def _unchanged(model: Any) -> Any:
    return model


def _nothing() -> None:
    pass
