"""The run's log: all records of level INFO and above, in one file."""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Lose the record if the disk is full: the stage that fails of it says so on the terminal, in one line."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


@contextmanager
def logged_to(path: Path) -> Generator[None]:
    """Append all log records of level INFO and above to a file while the block runs."""
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    handler.setLevel(logging.INFO)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with suppress(OSError):  # what it could not write, it tries again
            handler.close()
