"""SQLite database of a run's own Prefect server: checked before the server starts, which would print a traceback.

It holds the history that the UI shows. Finished stages are cached beside it, and do not need it.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from kernels_eval.errors import InputError


def check_database(file: Path) -> None:
    """Raise InputError, with the remedy, if there is a file that SQLite cannot read."""
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=1)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return
        raise InputError(
            f"{file}: not a readable database of Prefect ({error}); remove it and its -wal and -shm, then start the "
            "same command again: only the history in the UI is lost, finished stages stay cached"
        ) from error
