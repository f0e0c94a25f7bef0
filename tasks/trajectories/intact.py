"""Batches as they were published: no file of theirs is missing or changed, and no batch of a run is gone."""

from pathlib import Path

from kernels_eval.errors import InputError
from tasks.pipeline.integrity import damage_of
from tasks.pipeline.store import published_digest
from tasks.trajectories.reader import find_batches


def expected_batches(path: Path) -> list[Path]:
    """Return the batches that `find_batches` does, then the places of a run's iterations where none is any more."""
    found = find_batches(path)
    return found + [place for place in sorted((path / "trajectories").glob("iteration=*")) if place not in found]


def check_batch(folder: Path) -> None:
    """Raise InputError unless a batch is there with its files, as its manifest lists them."""
    published_digest(folder)
    if (damage := damage_of(folder)) is not None:
        raise InputError(damage)


def intact_batches(path: Path) -> list[Path]:
    """Return the expected batches. Raises InputError if one of them is damaged or gone."""
    found = expected_batches(path)
    for folder in found:
        check_batch(folder)
    return found
