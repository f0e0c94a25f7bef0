"""Parquet tables: what is written is read again, and a full disk is told as one."""

import errno
from pathlib import Path

import polars as pl
import pytest

from tasks.pipeline.tables import read_table, write_table


def test_there_and_back(tmp_path: Path) -> None:
    table = pl.DataFrame({"name": ["a", "b"], "values": [[1.0], []]})
    write_table(table, tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").equals(table)


def test_a_full_disk_is_an_error_of_the_operating_system() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_table(pl.DataFrame({"a": [1]}), Path("/dev/full"))
    assert caught.value.errno == errno.ENOSPC
