"""What trajectory data sets there are: one entry a published partition, from manifests and a few columns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.pipeline.store import read_manifest
from tasks.trajectories.locate import find_batches
from tasks.trajectories.reader import read_trajectories_file
from tasks.trajectories.schema import TRAJECTORIES_FILE


@dataclass(frozen=True)
class DataSet:
    """One published partition."""

    folder: Path
    digest: str
    run_id: str
    iterations: tuple[int, ...]
    trajectories: int
    turns: int
    correct: float | None
    """Share of trajectories that end with a correct kernel; None where there is none."""
    mean_return: float | None
    quarantined: int
    bytes: int
    created_at: str


def list_data_sets(path: Path) -> list[DataSet]:
    """Return the data sets below a folder of runs, of a run, or at a batch; InputError where there are none."""
    below = path / "trajectories"
    folders: list[Path] = []
    for place in sorted(below.glob("run_id=*")) if below.is_dir() else []:
        folders += find_batches(place) if any(place.iterdir()) else []
    return [describe(folder) for folder in folders or find_batches(path)]


def describe(folder: Path) -> DataSet:
    """Return one data set's entry."""
    manifest: dict[str, Any] | None = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder}: expected a published data set, found no manifest")
    table = read_trajectories_file(folder / TRAJECTORIES_FILE)
    correct = table.select(pl.col("final_verdict").struct.field("correct").cast(pl.Float64).mean()).item()
    return DataSet(
        folder=folder,
        digest=str(manifest["digest"]),
        run_id=", ".join(sorted(table["run_id"].unique().to_list())),
        iterations=tuple(sorted(table["iteration"].unique().to_list())),
        trajectories=table.height,
        turns=int(table["turns"].sum()),
        correct=correct,
        mean_return=table.select(pl.col("return").mean()).item(),
        quarantined=int(manifest.get("metadata", {}).get("quarantined", 0)),
        bytes=sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        created_at=str(manifest.get("created_at", "")),
    )
