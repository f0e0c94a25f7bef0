"""Errors of a rank: their cause, and one retry with less memory. Runs in the process that starts ranks.

A dead process or node, too little memory or a broken connection between ranks may heal on a retry. Any other error is
bad input or a mistake in the program: it is raised unchanged.

Out of memory is retried once, with half the token budget and with new ranks: their memory is free again, and no rank
waits in a collective for one that failed. Work is repeated from the last interim checkpoint.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from ray.exceptions import OutOfMemoryError as RayOutOfMemoryError
from ray.exceptions import RayError, RayTaskError
from torch.distributed import DistError

from kernels_eval.errors import InfrastructureError, first_line
from tasks.training.config import EngineConfig

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "std::bad_alloc")
"""Text of PyTorch's CPU allocator in a plain RuntimeError."""
_COMMUNICATION = ("gloo/", "[gloo", "gloo timeout", "NCCL error", "ncclSystemError", "ncclRemoteError")
"""Texts of the communication back ends, mostly older ones, in a plain RuntimeError."""
_SMALLEST_BUDGET = 64
Config = TypeVar("Config", bound=EngineConfig)

log = logging.getLogger(__name__)


class OutOfMemoryError(InfrastructureError):
    """A rank had too little memory for a micro-batch. Never retried: half the token budget was tried already."""

    can_heal = False


def error_of_rank(error: RayError, token_budget: int) -> BaseException:
    """Return the exception to raise for an error that Ray reports of a rank.

    OutOfMemoryError, naming the budget, or InfrastructureError if the machine failed; else the program's exception.
    """
    cause: BaseException | None = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, RayOutOfMemoryError) or is_out_of_memory(cause):
        return OutOfMemoryError(f"out of memory with update.tokens_per_rank = {token_budget}: {first_line(cause)}")
    if not isinstance(error, RayTaskError):
        return InfrastructureError(f"a training rank died: {first_line(error)}")
    if is_communication(cause):
        return InfrastructureError(f"training ranks lost each other: {first_line(cause)}")
    return cause if isinstance(cause, Exception) else error


def is_out_of_memory(error: BaseException | None) -> bool:
    """True for PyTorch's and Python's ways of running out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def is_communication(error: BaseException | None) -> bool:
    """True if ranks cannot reach each other, or a rank cannot reach their common store."""
    if isinstance(error, DistError | ConnectionError | TimeoutError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _COMMUNICATION)


def with_smaller_batches(config: Config, run: Callable[[Config], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Run a program; if memory does not suffice, log that and run it once more with half the token budget.

    Yields the program's items; the second try yields `token_budget` first.
    """
    try:
        yield from run(config)
    except OutOfMemoryError as error:
        half = config.tokens_per_rank // 2
        if half < _SMALLEST_BUDGET:
            raise
        log.warning("%s; going on with %d tokens a micro-batch", error, half)
        yield {"done": 0, "total": 1, "token_budget": float(half)}
        yield from run(config.model_copy(update={"tokens_per_rank": half}))
