"""Reads trajectory data sets: published batches, their tables (older versions too) and trajectories."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kernels_eval.errors import InputError, first_line
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import MANIFEST, published_digest, read_manifest
from tasks.trajectories.schema import (
    EPISODE_COLUMNS,
    SCHEMA_VERSION,
    TRAJECTORIES_FILE,
    TRAJECTORIES_SCHEMA,
    TURNS_FILE,
    TURNS_SCHEMA,
    VERSION_KEY,
    Termination,
    Trajectory,
    Turn,
    verdict_from_row,
)


def read_turns(reference: TrajectoryBatchRef) -> pl.DataFrame:
    """Return the turns of a batch, sorted by trajectory and turn. Raises InputError if they cannot be read."""
    published_digest(reference.path)
    return read_turns_file(reference.path / TURNS_FILE)


def read_trajectories(reference: TrajectoryBatchRef) -> pl.DataFrame:
    """Return the trajectories of a batch, sorted by id. Raises InputError if they cannot be read."""
    published_digest(reference.path)
    return read_trajectories_file(reference.path / TRAJECTORIES_FILE)


def read_turns_file(path: Path) -> pl.DataFrame:
    """Return one table of turns, whatever published it."""
    return _read(path, TURNS_SCHEMA, ["trajectory_id", "turn_index"])


def read_trajectories_file(path: Path) -> pl.DataFrame:
    """Return one table of trajectories, whatever published it."""
    return _read(path, TRAJECTORIES_SCHEMA, ["trajectory_id"])


def read_turn_rows(path: Path, first: int, count: int) -> list[dict[str, Any]]:
    """Return `count` rows of a table of turns from row `first` of the file, in its order."""
    return _collected(path, _scan(path, TURNS_SCHEMA).slice(first, count)).rows(named=True)


def scan_turns_file(path: Path) -> pl.LazyFrame:
    """Return one table of turns unread, in the order of the file. Raises InputError if it is no such table."""
    return _scan(path, TURNS_SCHEMA)


def read_turn_leaves(path: Path, leaves: Sequence[str]) -> pl.DataFrame:
    """Return single columns of a table of turns, and nothing else is read; `row` is a row's number in the file.

    `leaves`: names of columns, or of fields of `verdict` as `verdict.status`, which becomes the column `status`. One
    that an older file lacks is null. Raises InputError if the file cannot be read.
    """
    _check_version(path)
    try:
        with pq.ParquetFile(path) as file:
            found = {file.schema.column(place).path for place in range(len(file.schema))}
            table = file.read(columns=[leaf for leaf in leaves if leaf in found])
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a table of this kind: {first_line(error)}") from error
    columns: dict[str, pa.ChunkedArray | pa.Array] = {"row": pa.array(range(table.num_rows), pa.int64())}
    for leaf in leaves:
        parent, dot, name = leaf.partition(".")
        kind = TURNS_SCHEMA.field(parent).type
        if dot:
            kind = kind.field(name).type
        if leaf not in found:
            columns[name or parent] = pa.nulls(table.num_rows, kind)
        else:
            column = table.column(parent)
            columns[name or parent] = _field(column, name) if dot else column
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _field(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = column.type.field(name).type
    return pa.chunked_array(
        [pc.call_function("struct_field", [part], pc.StructFieldOptions(name)) for part in column.chunks], kind
    )


def _read(path: Path, schema: pa.Schema, order: list[str]) -> pl.DataFrame:
    return _collected(path, _scan(path, schema)).sort(order)


def _scan(path: Path, schema: pa.Schema) -> pl.LazyFrame:
    _check_version(path)
    return pl.scan_parquet(
        path,
        schema=polars_schema(schema),
        missing_columns="insert",
        extra_columns="ignore",
        cast_options=pl.ScanCastOptions(missing_struct_fields="insert", extra_struct_fields="ignore"),
        hive_partitioning=False,
    )


def _collected(path: Path, frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: not a table of this kind: {first_line(error)}") from error


def polars_schema(schema: pa.Schema) -> pl.Schema:
    """Return the Polars schema of a PyArrow one."""
    empty = pl.from_arrow(schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def _check_version(path: Path) -> None:
    try:
        metadata = pq.read_schema(path).metadata or {}
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected a Parquet table, found no file") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: expected a Parquet table: {first_line(error)}") from error
    found = metadata.get(VERSION_KEY)
    if found is None:
        raise InputError(f"{path}: expected {VERSION_KEY.decode()} in the file's metadata, found none")
    if not found.isdigit():
        raise InputError(f"{path}: {VERSION_KEY.decode()}: expected a whole number, found {found!r}")
    if int(found) > SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {int(found)}; this kernelmill reads up to {SCHEMA_VERSION}: upgrade it"
        )


_PLACES = ("", "trajectories/*", "*", "*/*")
"""A batch itself; a run's folder; a folder of partitions, and one above it."""


def find_batches(path: Path) -> list[Path]:
    """Return the folders of the published batches at `path`, by name and iteration; InputError if there are none.

    A batch that has lost a table is one of them: whoever reads it says what is missing.
    """
    if not path.exists():
        raise InputError(f"{path}: expected a trajectory data set or the folder of a run, found nothing")
    for pattern in _PLACES:
        folders = [path] if not pattern else sorted(path.glob(pattern), key=_in_order)
        found = [folder for folder in folders if _is_batch(folder)]
        if found:
            return found
    raise InputError(f"{path}: expected a published trajectory data set ({MANIFEST} and {TURNS_FILE}), found none")


def _is_batch(folder: Path) -> bool:
    """Return True for a published folder whose manifest names a table of turns, or that has one."""
    if not (folder / MANIFEST).is_file():
        return False
    if (folder / TURNS_FILE).exists():
        return True
    try:
        return TURNS_FILE in (read_manifest(folder) or {"files": {}})["files"]
    except InputError:  # not a manifest: of something else
        return False


def batch_reference(folder: Path) -> TrajectoryBatchRef:
    """Return the reference to a published batch, read from its tables."""
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


def load_trajectories(folder: Path) -> list[Trajectory]:
    """Return the trajectories of a batch, sorted by id. Raises InputError for unreadable tables or missing turns."""
    turns = read_turns_file(folder / TURNS_FILE).partition_by("trajectory_id", as_dict=True, maintain_order=True)
    loaded: list[Trajectory] = []
    for row in read_trajectories_file(folder / TRAJECTORIES_FILE).iter_rows(named=True):
        of_this = turns.get((row["trajectory_id"],))
        if of_this is None or len(of_this) != row["turns"]:
            raise InputError(f"{folder}: {row['trajectory_id']}: expected {row['turns']} turns, found another number")
        loaded.append(_trajectory(row, of_this.rows(named=True)))
    return loaded


def _trajectory(row: dict[str, Any], turns: Sequence[dict[str, Any]]) -> Trajectory:
    return Trajectory(
        **{name: row[name] for name in (*EPISODE_COLUMNS, "level")},
        turns=tuple(_turn(turn, row["policy_digest"]) for turn in turns),
        termination=Termination(row["termination"]),
    )


def _turn(row: dict[str, Any], policy_digest: str) -> Turn:
    stored: dict[str, Any] = {field.name: row[field.name] for field in fields(Turn)}
    stored |= {name: tuple(row[name]) for name in ("prompt_token_ids", "response_token_ids", "response_logprobs")}
    if stored["policy_digest"] == policy_digest:  # not a member of a team
        stored["policy_digest"] = None
    stored["verdict"] = verdict_from_row(row["verdict"])
    stored["prompt_extends_previous"] = bool(row["prompt_extends_previous"])
    return Turn(**stored)
