"""Trajectory data sets on disk: a list of them, the difference between two, and the rows that validation took out.

Quarantines are read from `runs/quarantine/run_id=…/iteration=…` and `…/sft`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.pipeline.store import read_manifest
from tasks.pipeline.tables import PAIRS_FILE, read_table
from tasks.trajectories.intact import intact_batches
from tasks.trajectories.reader import find_batches, read_trajectories_file, read_turns_file
from tasks.trajectories.schema import TRAJECTORIES_FILE, TURNS_FILE


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
    """Share of trajectories that end with a correct kernel; None without trajectories."""
    mean_return: float | None
    quarantined: int
    bytes: int
    created_at: str


def list_data_sets(path: Path) -> list[DataSet]:
    """Return the data sets below a folder of runs, of a run, or at a batch; raises InputError if there are none."""
    below = path / "trajectories"
    folders: list[Path] = []
    for place in sorted(below.glob("run_id=*")) if below.is_dir() else []:
        folders += find_batches(place) if any(place.iterdir()) else []
    return [data_set_entry(folder) for folder in folders or find_batches(path)]


def data_set_entry(folder: Path) -> DataSet:
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


KEY = ("iteration", "trajectory_id", "turn_index")


@dataclass(frozen=True)
class Difference:
    """Counts of turns."""

    only_first: int
    only_second: int
    shared: int
    columns: dict[str, int]
    """Number of shared turns that differ in each column; columns without a difference are left out."""
    example: str | None
    """The first turn that differs, as `trajectory turn`."""

    @property
    def is_none(self) -> bool:
        """True if both hold the same."""
        return not (self.only_first or self.only_second or self.columns)


def compare_data_sets(first: Path, second: Path) -> Difference:
    """Compare two data sets (batches, or runs). Raises InputError if one is unreadable or holds several runs."""
    one, two = (_turns(path) for path in (first, second))
    shared = one.join(two, on=KEY, how="inner", suffix="_second").sort(KEY)
    compared = [name for name in one.columns if name not in KEY]
    unequal = shared.select(*KEY, *(pl.col(name).ne_missing(pl.col(f"{name}_second")) for name in compared))
    columns = {name: int(unequal[name].sum()) for name in compared}
    rows = unequal.filter(pl.any_horizontal(compared))
    return Difference(
        only_first=one.height - shared.height,
        only_second=two.height - shared.height,
        shared=shared.height,
        columns={name: count for name, count in columns.items() if count},
        example=None if rows.is_empty() else f"{rows['trajectory_id'][0]} turn {rows['turn_index'][0] + 1}",
    )


def _turns(path: Path) -> pl.DataFrame:
    turns = pl.concat([read_turns_file(folder / TURNS_FILE) for folder in intact_batches(path)])
    if turns.select(KEY).is_duplicated().any():  # a join would pair each turn with all of the same key
        runs = ", ".join(sorted(turns["run_id"].unique()))
        raise InputError(
            f"{path}: expected each turn of an iteration once, found some several times (of the runs {runs})"
        )
    return turns


@dataclass(frozen=True)
class Quarantine:
    """Rows taken out of one data set."""

    folder: Path
    origin: str
    """The data set that the rows were taken from."""
    rows: pl.DataFrame
    """`row_id` and `reason`: one row a trajectory, or a pair."""

    @property
    def reasons(self) -> pl.DataFrame:
        """`reason` and `rows`, the most frequent first. Of several reasons of a row, one line each."""
        # A reason begins with the row that it speaks of.
        lines = self.rows.select(pl.col("reason").str.split("\n").explode().str.replace(r"^[^ ]+: ", ""))
        return lines.group_by("reason").agg(pl.len().alias("rows")).sort(["rows", "reason"], descending=[True, False])


def find_quarantines(path: Path) -> list[Quarantine]:
    """Return the quarantines below a folder of runs, or at the path itself. Raises InputError if it is no folder."""
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder of runs, or a quarantine, found none")
    found = [path] if read_manifest(path) is not None else sorted(path.glob("quarantine/run_id=*/*"))
    return [quarantine for folder in found if (quarantine := _read(folder)) is not None]


def _read(folder: Path) -> Quarantine | None:
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    for name, key in ((TRAJECTORIES_FILE, "trajectory_id"), (PAIRS_FILE, "pair_id")):
        file = folder / name
        if file.exists():
            rows = read_table(file, [key, "reason"]).rename({key: "row_id"})
            return Quarantine(folder, str(manifest.get("metadata", {}).get("origin", "")), rows)
    return None
