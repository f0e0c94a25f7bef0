"""How a long stage says how far it is: a callback that it is handed, so that it knows nothing of who listens."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then by a stage while it works."""

    def __call__(self, done: int, total: int, **figures: float) -> None:
        """`done` of `total` units; `figures` are named numbers worth showing, e.g. `loss=1.25, tokens_per_s=9500`."""
        ...


def silent(done: int, total: int, **figures: float) -> None:
    """Listen to nothing."""
