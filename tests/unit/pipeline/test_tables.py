"""Parquet tables: what is written is read again, and a disk that takes no more is told as one."""

import errno
import resource
from pathlib import Path

import polars as pl
import pytest

from tasks.pipeline.tables import read_table, write_table


def test_there_and_back(tmp_path: Path) -> None:
    table = pl.DataFrame({"name": ["a", "b"], "values": [[1.0], []]})
    write_table(table, tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").equals(table)


def test_a_file_that_cannot_grow_is_an_error_of_the_operating_system(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_table(pl.DataFrame({"a": [f"{i * i}" for i in range(4096)]}), tmp_path / "x.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
