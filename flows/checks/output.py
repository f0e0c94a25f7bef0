"""Check of a command's output path before the command does any work."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernels_eval.errors import InputError

_BLOCK = 65536
"""More than a file system keeps in a file's entry."""


def check_output(option: str, path: Path, *, folder: bool = False, read: Sequence[Path] = ()) -> None:
    """Raise InputError unless a file, or with `folder` a folder, can be written at `path`. Leaves nothing behind.

    `read`: files that the command reads, which it must not replace.
    """
    try:
        if path.exists() and any(file.exists() and path.samefile(file) for file in read):
            raise InputError(f"{option}: {path}: expected another file than the one that is read")
        if path.exists() and path.is_dir() is not folder:
            expected, found = ("folder", "file") if folder else ("file", "folder")
            raise InputError(f"{option}: {path}: expected the path of a {expected}, found a {found}")
        parents = path.absolute().parents
        existing = next(place for place in ((path.absolute(), *parents) if folder else parents) if place.exists())
        try_to_write(existing)
    except OSError as error:
        raise InputError(f"{option}: cannot write {path}: {error.strerror or error}") from error


def try_to_write(folder: Path) -> None:
    """Raise OSError unless a file with content can be written here, and so a folder made.

    Access bits would say nothing of a read-only or full disk.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_BLOCK))
