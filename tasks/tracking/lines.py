"""Lines that a driver appends to a run's record; a kill can leave a torn one, which readers skip."""

import os
import time
from collections.abc import Sequence
from pathlib import Path


def append_lines(file: Path, lines: Sequence[str]) -> None:
    """Append lines to a file; they are on the disk when this returns. A torn line before them is ended first."""
    if not lines:
        return
    with file.open("ab+") as opened:
        torn = opened.tell() > 0 and not _ends_a_line(file)
        opened.write(b"\n" * torn + "".join(f"{line}\n" for line in lines).encode())
        opened.flush()
        os.fsync(opened.fileno())


def _ends_a_line(file: Path) -> bool:
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        return opened.read(1) == b"\n"


def utc_now() -> str:
    """Return the present time as it stands in lines, e.g. `2026-11-26T22:24:10Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
