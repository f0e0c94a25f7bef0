"""Reads trajectory tables, older ones too. Only published partitions exist: a folder without a manifest is refused."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import published_digest
from tasks.trajectories.schema import (
    SCHEMA_VERSION,
    TRAJECTORIES_FILE,
    TRAJECTORIES_SCHEMA,
    TURNS_FILE,
    TURNS_SCHEMA,
    VERSION_KEY,
)


def read_turns(reference: TrajectoryBatchRef) -> pl.DataFrame:
    """Return the turns of a batch, sorted by trajectory and turn. Raises InputError where they cannot be read."""
    published_digest(reference.path)
    return read_turns_file(reference.path / TURNS_FILE)


def read_trajectories(reference: TrajectoryBatchRef) -> pl.DataFrame:
    """Return the trajectories of a batch, sorted by id. Raises InputError where they cannot be read."""
    published_digest(reference.path)
    return read_trajectories_file(reference.path / TRAJECTORIES_FILE)


def read_turns_file(path: Path) -> pl.DataFrame:
    """Return one table of turns, whatever published it."""
    return _read(path, TURNS_SCHEMA, ["trajectory_id", "turn_index"])


def read_trajectories_file(path: Path) -> pl.DataFrame:
    """Return one table of trajectories, whatever published it."""
    return _read(path, TRAJECTORIES_SCHEMA, ["trajectory_id"])


def _read(path: Path, schema: pa.Schema, order: list[str]) -> pl.DataFrame:
    _check_version(path)
    frame = pl.scan_parquet(
        path,
        schema=polars_schema(schema),
        missing_columns="insert",
        extra_columns="ignore",
        cast_options=pl.ScanCastOptions(missing_struct_fields="insert", extra_struct_fields="ignore"),
        hive_partitioning=False,
    )
    try:
        return frame.collect().sort(order)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: not a table of this kind: {str(error).splitlines()[0]}") from error


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
        raise InputError(f"{path}: expected a Parquet table: {str(error).splitlines()[0]}") from error
    found = metadata.get(VERSION_KEY)
    if found is None:
        raise InputError(f"{path}: expected {VERSION_KEY.decode()} in the file's metadata, found none")
    if not found.isdigit():
        raise InputError(f"{path}: {VERSION_KEY.decode()}: expected a whole number, found {found!r}")
    if int(found) > SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {int(found)}; this kernelmill reads up to {SCHEMA_VERSION}: upgrade it"
        )
