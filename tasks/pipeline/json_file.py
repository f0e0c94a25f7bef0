"""JSON files: one object that others wrote, read with errors that name the file; objects line by line, of our own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError


def read_json_object(file: Path, where: str = "") -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises InputError, with `where` (a setting) before the file's name, if the file cannot be read or is something else.
    """
    named = f"{where}: {file}" if where else str(file)
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{named}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{named}: expected JSON: {error}") from error
    if not isinstance(stored, dict):
        raise InputError(f"{named}: expected an object, found {type(stored).__name__}")
    return stored


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file to which lines are appended; none if there is no file.

    A line that a kill has torn is left out, as is one that holds no object.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):
        try:
            stored = json.loads(line)
        except ValueError:
            continue
        if isinstance(stored, dict):
            yield stored
