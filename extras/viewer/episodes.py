"""Trajectories of a batch as one row each, from the light columns of its turns alone.

Neither tokens nor text are read: a run of 100 MB takes milliseconds. Text is searched and rows are read by
`rows_with_text` and extras.viewer.answer, each when it is asked for.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from extras.viewer.runs import Batch
from kernels_eval.errors import InputError, first_line
from tasks.trajectories.reader import read_turn_leaves, scan_turns_file

_LEAVES = (
    "trajectory_id", "problem_id", "split", "iteration", "sample_index", "turn_index", "role", "reward", "return",
    "termination", "verdict.status", "verdict.correct", "verdict.speedup", "verdict.timing_source",
    "verdict.rejection_reason", "verdict.error_category",
)  # fmt: skip
_KEPT = 2_000
"""Batches whose rows are kept in memory."""


def episodes_of(batches: Iterable[Batch]) -> pl.DataFrame:
    """Return one row a trajectory, with its place (`batch`, `rows` of the file), last verdict, best speed-up.

    `reward` is that of the last turn and null for a fault of the machine, `return` that of the first turn. `speedup` is
    the last turn's, `best_speedup` the highest of its correct kernels. Raises InputError if a table is damaged.
    """
    frames = [_read(batch).with_columns(pl.lit(batch.key).alias("batch")) for batch in batches]
    return pl.concat(frames) if frames else _episodes(_nothing()).with_columns(pl.lit("").alias("batch"))


def rows_with_text(batch: Batch, text: str) -> list[int]:
    """Return the numbers of the rows whose kernel or answer contains the text; capitals count."""
    found = [pl.col(name).str.contains(text, literal=True) for name in ("kernel_source", "response_text")]
    frame = scan_turns_file(batch.file).select(pl.any_horizontal(found).fill_null(False).arg_true())
    try:
        return frame.collect().to_series().to_list()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{batch.file}: cannot be searched: {first_line(error)}") from error


def forget() -> None:
    """Drop what is kept in memory."""
    _kept.cache_clear()


def _nothing() -> pl.DataFrame:
    """Return turns without a row."""
    names = [leaf.rpartition(".")[2] for leaf in _LEAVES]
    kinds = {"sample_index": pl.Int32, "turn_index": pl.Int32, "iteration": pl.Int32, "correct": pl.Boolean}
    kinds |= dict.fromkeys(("reward", "return", "speedup"), pl.Float64)
    return pl.DataFrame(schema={"row": pl.Int64, **{name: kinds.get(name, pl.String) for name in names}})


def _read(batch: Batch) -> pl.DataFrame:
    try:
        status = batch.file.stat()
    except OSError as error:
        raise InputError(f"{batch.file}: cannot be read: {error.strerror}") from error
    return _kept(batch.file, status.st_mtime_ns, status.st_size)


@functools.lru_cache(_KEPT)
def _kept(file: Path, _changed_ns: int, _size: int) -> pl.DataFrame:
    return _episodes(read_turn_leaves(file, _LEAVES))


def _episodes(turns: pl.DataFrame) -> pl.DataFrame:
    correct = pl.col("correct").fill_null(False)
    return (
        turns.sort("trajectory_id", "turn_index")
        .group_by("trajectory_id", maintain_order=True)
        .agg(
            pl.first("problem_id", "split", "iteration", "sample_index", "return"),
            pl.len().alias("turns"),
            pl.col("row").alias("rows"),
            pl.col("status").alias("statuses"),
            pl.col("role").alias("roles"),
            pl.last("status", "speedup", "timing_source", "reward", "termination"),
            correct.last().alias("correct"),
            pl.coalesce("rejection_reason", "error_category").last().alias("category"),
            pl.col("speedup").filter(correct).max().alias("best_speedup"),
        )
    )
