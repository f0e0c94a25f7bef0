"""Parquet tables of the artifacts: file names that several stages use, and one way to read and write a table."""

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from kernels_eval.errors import InputError, first_line

PROBLEMS_FILE = "problems.parquet"
PAIRS_FILE = "pairs.parquet"
METRICS_FILE = "metrics.parquet"


def read_table(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return a Parquet table, or some of its columns. Raises InputError if it cannot be read or lacks one of them."""
    try:
        return pl.read_parquet(path, columns=None if columns is None else list(columns))
    except FileNotFoundError as error:
        raise InputError(f"{path}: expected a Parquet table, found no file") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: expected a Parquet table: {first_line(error)}") from error


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a Parquet table. Raises OSError with its number if the disk is full: Polars' own error names no cause."""
    written = io.BytesIO()
    table.write_parquet(written)
    path.write_bytes(written.getbuffer())
