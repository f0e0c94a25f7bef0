"""Out of memory is met once, by halving the token budget.

The ranks are started anew for the second try: what they held is gone, nothing is fragmented, and no rank waits in a
collective for one that failed. What had been done until then is repeated, from the last interim checkpoint.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tasks.training.config import EngineConfig
from tasks.training.faults import OutOfMemoryError

_SMALLEST_BUDGET = 64
Config = TypeVar("Config", bound=EngineConfig)

log = logging.getLogger(__name__)


def with_memory_at_hand(config: Config, run: Callable[[Config], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Run a program; where memory does not suffice, say so and run it once more with half the token budget.

    What the program says is passed on; the second try says `token_budget` first.
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
