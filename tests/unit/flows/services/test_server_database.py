"""A database that cannot be read names its remedy in one line; one that can, or none, is nothing to talk about."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.services.prefect_server import start_server
from flows.services.server_database import check_database
from kernels_eval.errors import InputError


def made(file: Path) -> bytes:
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE flow_run (id INTEGER, name TEXT)")
        database.commit()
    return file.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"garbage" * 1000,
        lambda content: bytes(len(content)),
        lambda content: b"x" * 100 + content[100:],
        lambda content: content[:100] + b"\xff" * (len(content) - 100),
    ],
    ids=["garbage", "zeros", "the header", "all but the header"],
)
def test_an_unreadable_one_is_refused_before_a_server_starts(tmp_path: Path, damage):
    file = tmp_path / "prefect.db"
    file.write_bytes(damage(made(file)))
    with pytest.raises(InputError, match=r"prefect\.db: not a readable database.*remove it.*stay cached") as caught:
        start_server(tmp_path)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["prefect.db"], "nothing was started"


def test_a_readable_or_empty_or_absent_one_is_not(tmp_path: Path):
    check_database(tmp_path / "absent.db")
    made(tmp_path / "good.db")
    check_database(tmp_path / "good.db")
    (tmp_path / "empty.db").touch()
    check_database(tmp_path / "empty.db")
    with closing(sqlite3.connect(tmp_path / "good.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        check_database(tmp_path / "good.db")
