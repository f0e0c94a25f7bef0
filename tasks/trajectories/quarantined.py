"""What validation took out of data sets, and why: reads `runs/quarantine/run_id=…/iteration=…` and `…/sft`."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kernels_eval.errors import InputError
from tasks.pipeline.store import read_manifest
from tasks.trajectories.schema import TRAJECTORIES_FILE

PAIRS_FILE = "pairs.parquet"


@dataclass(frozen=True)
class Quarantine:
    """What was taken out of one data set."""

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
    """Return the quarantines below a folder of runs, or in one. Empty where nothing was ever taken out. InputError: no such folder."""
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
        if not file.exists():
            continue
        try:
            rows = pl.read_parquet(file, columns=[key, "reason"]).rename({key: "row_id"})
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(f"{file}: not a quarantine's table: {str(error).splitlines()[0]}") from error
        return Quarantine(folder, str(manifest.get("metadata", {}).get("origin", "")), rows)
    return None
