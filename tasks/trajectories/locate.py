"""Finds trajectory data sets: one published batch, the batches of a run, or a folder of them."""

from pathlib import Path

from kernels_eval.errors import InputError
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import MANIFEST, published_digest
from tasks.trajectories.schema import TURNS_FILE

_PLACES = ("", "trajectories/*", "*", "*/*")
"""A batch itself; a run's folder; a folder of partitions, and one above it."""


def find_batches(path: Path) -> list[Path]:
    """Return the folders of the published batches at `path`, sorted by name (iterations by number).

    Raises InputError where there are none.
    """
    if not path.exists():
        raise InputError(f"{path}: expected a trajectory data set or the folder of a run, found nothing")
    for pattern in _PLACES:
        folders = [path] if not pattern else sorted(path.glob(pattern), key=_in_order)
        found = [folder for folder in folders if (folder / TURNS_FILE).exists() and (folder / MANIFEST).exists()]
        if found:
            return found
    raise InputError(f"{path}: expected a published trajectory data set ({MANIFEST} and {TURNS_FILE}), found none")


def batch_reference(folder: Path) -> TrajectoryBatchRef:
    """Return the reference to a published batch, read from its tables."""
    import polars as pl

    from tasks.trajectories.reader import read_trajectories_file
    from tasks.trajectories.schema import TRAJECTORIES_FILE

    table = read_trajectories_file(folder / TRAJECTORIES_FILE)
    if table.is_empty():
        raise InputError(f"{folder}: expected at least one trajectory, found none")
    return TrajectoryBatchRef(
        uri=str(folder.resolve()),
        digest=published_digest(folder),
        run_id=str(table["run_id"][0]),
        iteration=int(table["iteration"][0]),
        trajectories=len(table),
        turns=int(table.select(pl.col("turns").sum()).item()),
    )


def _in_order(folder: Path) -> tuple[str, int, str]:
    name, _, number = folder.name.rpartition("=")
    return (str(folder.parent), int(number) if number.isdigit() else 0, name or folder.name)
