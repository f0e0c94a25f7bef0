"""How two data sets differ: turns that only one has, and, of those that both have, the columns in which they differ."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kernels_eval.errors import InputError
from tasks.trajectories.locate import find_batches
from tasks.trajectories.reader import read_turns_file
from tasks.trajectories.schema import TURNS_FILE

KEY = ("iteration", "trajectory_id", "turn_index")


@dataclass(frozen=True)
class Difference:
    """Counts of turns."""

    only_first: int
    only_second: int
    shared: int
    columns: dict[str, int]
    """Of the shared turns, how many differ in each column; columns without a difference are left out."""
    example: str | None
    """The first turn that differs, as `trajectory turn`."""

    @property
    def is_none(self) -> bool:
        """True where both hold the same."""
        return not (self.only_first or self.only_second or self.columns)


def differ(first: Path, second: Path) -> Difference:
    """Compare two data sets (batches, or runs with all of theirs). InputError where either cannot be read, or is of several runs."""
    one, two = (_turns_of(path) for path in (first, second))
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


def _turns_of(path: Path) -> pl.DataFrame:
    turns = pl.concat([read_turns_file(folder / TURNS_FILE) for folder in find_batches(path)])
    if turns.select(KEY).is_duplicated().any():  # a join would pair each turn with its namesakes
        runs = ", ".join(sorted(turns["run_id"].unique()))
        raise InputError(
            f"{path}: expected each turn of an iteration once, found some several times (of the runs {runs})"
        )
    return turns
