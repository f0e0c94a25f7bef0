"""Rows of a JSON Lines file: UTF-8, one object a line, empty lines allowed."""

import json
from collections.abc import Iterator
from pathlib import Path

from kernels_eval.errors import InputError
from tasks.problems.loaders.entry import Row


def read_rows(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of one file; InputError names the line that is not a JSON object."""
    if not path.is_file():
        raise InputError(f"{path}: expected a JSON Lines file, found a folder")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path} line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if not text:
                    continue
                values = json.loads(text)
            except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
                raise InputError(f"{where}: expected one JSON object a line: {error}") from error
            if not isinstance(values, dict):
                raise InputError(f"{where}: expected a JSON object, found {type(values).__name__}")
            yield Row(where, {name: values[name] for name in wanted if name in values}, tuple(values))
