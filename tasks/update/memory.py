"""Out of memory: named as what it is, and met once by halving the token budget.

The ranks are started anew for the second try: what they held is gone, nothing is fragmented, and no rank waits in a
collective for one that failed. What an update had done until then is repeated, from its last interim checkpoint.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from kernels_eval.errors import InfrastructureError
from tasks.update.config import UpdateConfig

T = TypeVar("T")
_SMALLEST_BUDGET = 64
_CPU_MESSAGES = ("can't allocate memory", "not enough memory")

log = logging.getLogger(__name__)


class OutOfMemoryError(InfrastructureError):
    """A rank had too little memory for a micro-batch."""


@contextmanager
def out_of_memory(token_budget: int) -> Generator[None]:
    """Turn PyTorch's ways of running out of memory into OutOfMemoryError, which names the budget."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(text in str(error) for text in _CPU_MESSAGES):
            line = next(iter(str(error).splitlines()), type(error).__name__)
            raise OutOfMemoryError(f"out of memory with update.tokens_per_rank = {token_budget}: {line}") from error
        raise


def with_memory_at_hand(
    resources: UpdateConfig, run: Callable[[UpdateConfig], Iterator[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Run a program; where memory does not suffice, say so and run it once more with half the token budget.

    What the program says is passed on; the second try says `token_budget` first.
    """
    try:
        yield from run(resources)
    except OutOfMemoryError as error:
        half = resources.tokens_per_rank // 2
        if half < _SMALLEST_BUDGET:
            raise
        log.warning("%s; going on with %d tokens a micro-batch", error, half)
        yield {"done": 0, "total": 1, "token_budget": float(half)}
        yield from run(resources.model_copy(update={"tokens_per_rank": half}))
