"""Rows of one Parquet file, read batch by batch: only the wanted columns are ever in memory."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError
from tasks.problems.loaders.entry import Row

_BATCH_ROWS = 512


def read_rows(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of one file; InputError where it is not Parquet or is damaged."""
    try:
        with pq.ParquetFile(path) as file:
            found = tuple(file.schema_arrow.names)
            columns = [name for name in found if name in wanted]
            number = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                batch.validate(full=True)  # damaged offsets would crash the process, not raise
                for values in batch.to_pylist():
                    yield Row(f"{path} row {number}", values, found)
                    number += 1
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
