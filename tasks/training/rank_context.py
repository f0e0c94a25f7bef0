"""What a training program knows of the process that it runs in. Imports nothing of Ray, so that a program also runs without it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class RankContext:
    """One rank of a process group, and what it keeps between two programs."""

    rank: int
    world_size: int
    held: dict[str, Any] = field(default_factory=dict)
    """Engines, models and tokenizers by purpose; whoever puts something here says beside it what it is."""
