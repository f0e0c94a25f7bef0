"""Training programs: the generator functions that every rank runs, their context, and the learning-rate schedule.

A program is a module-level function `program(rank: RankContext, job) -> Iterator`. Every rank runs it with the same
job; the items that rank 0 yields reach the caller. This module imports neither torch nor Ray: a rank reads it before
torch, and a program also runs without Ray.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class RankContext:
    """One rank of a process group, with the objects that it keeps between two programs."""

    rank: int
    world_size: int
    held: dict[str, Any] = field(default_factory=dict)
    """Engines, models and tokenizers by purpose, each with a digest of its content beside it."""


Program = Callable[[RankContext, Any], Iterator[Any]]


def learning_rate(
    step: int, total_steps: int, peak: float, *, warmup_steps: int = 0, final_fraction: float = 1.0
) -> float:
    """Return the rate of a step from 0 to total_steps − 1: linear warm-up, then a cosine.

    The last step has `final_fraction` of the peak; 1 keeps the rate constant.
    """
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    done = (step - warmup_steps) / max(total_steps - 1 - warmup_steps, 1)
    cosine = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return peak * (final_fraction + (1 - final_fraction) * cosine)
