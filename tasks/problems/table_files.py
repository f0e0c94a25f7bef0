"""Rows of table files: JSON Lines, a JSON array, Parquet, a dataset's folder.

Each reader is a function `read_…(path, wanted)` that yields the rows with the wanted columns, and instead of a row that
cannot be read the InputError that names it. Lines and rows are counted from 1, as editors do.

Folders of Hugging Face datasets are read without the `datasets` library, in two layouts: that of `save_to_disk`
(`state.json` beside Arrow stream files, or `dataset_dict.json` with one such folder a split), and Parquet shards
anywhere below the folder. Every split is read: their names do not decide what is held out here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError, first_line, place_of
from tasks.pipeline.json_file import read_json_object
from tasks.problems.row import Row

_BATCH_ROWS = 512
_MARK = b"\xef\xbb\xbf"
_MESSAGE_KEYS = {"role", "content", "from", "value"}
Rows = Iterator[Row | InputError]
"""Rows of a table in its order; an InputError stands for a row that cannot be read."""


def read_json(path: Path, wanted: frozenset[str]) -> Rows:
    """Yield the rows of a JSON file (UTF-8): one object a line, or one array of objects, which an object may hold.

    The content decides, not the file's name. Raises InputError if the file is neither.
    """
    if not path.is_file():
        raise InputError(f"{path}: expected a file of JSON Lines or with a JSON array, found a folder")
    with path.open("rb") as file:
        lines = (line.removeprefix(_MARK).strip() for line in file)
        first = next((line for line in lines if line), b"")
        more = any(lines)
    is_whole = first.startswith(b"{") and first.endswith(b"}")
    if first.startswith(b"[") or (first.startswith(b"{") and not (is_whole and more)):
        return _rows_of_array(path, wanted)
    return _rows_of_lines(path, wanted)


def given_rows(read: Callable[[Path], Iterable[Any]], path: Path) -> Rows:
    """Yield the rows that a function of the user's makes of a path: mappings of columns.

    Raises InputError if the function raises, with the place.
    """
    number = 0
    try:
        for number, values in enumerate(read(path), start=1):
            where = f"{path} row {number}"
            if isinstance(values, Mapping):
                yield Row(where, dict(values), tuple(values))
            else:
                yield InputError(f"{where}: expected a mapping of columns, found {type(values).__name__}")
    except InputError:
        raise
    except Exception as error:
        name = f"{getattr(read, '__module__', '?')}:{getattr(read, '__name__', '?')}"
        raise InputError(
            f"{path}: {name} raised {type(error).__name__} after row {number}: {first_line(error)} {place_of(error)}"
        ) from error


def _array_in(value: Any) -> list[Any]:
    """Return the rows of a file with one JSON value: an array's items, an object's only array of objects, the object.

    A list of messages is no such array: the object is a row with a conversation.
    """
    if isinstance(value, list):
        return value
    fields = value.values() if isinstance(value, dict) else ()
    found = [item for item in fields if isinstance(item, list) and item and all(isinstance(row, dict) for row in item)]
    arrays = [item for item in found if not any(_MESSAGE_KEYS & set(row) for row in item)]
    return arrays[0] if len(arrays) == 1 else [value]


def _rows_of_lines(path: Path, wanted: frozenset[str]) -> Rows:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path} line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if not text:
                    continue
                values = json.loads(text)
            except (ValueError, RecursionError) as error:
                yield InputError(f"{where}: expected one JSON object a line: {error}")
                continue
            yield _row(where, values, wanted)


def _rows_of_array(path: Path, wanted: frozenset[str]) -> Rows:
    text = path.read_bytes().removeprefix(_MARK)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(b"{"):  # lines, of which the first is damaged
            yield from _rows_of_lines(path, wanted)
            return
        raise InputError(f"{path}: expected one JSON object a line, or a JSON array of objects: {error}") from error
    found = _array_in(values)
    for number, item in enumerate(found, start=1):
        yield _row(f"{path} line 1" if item is values else f"{path} row {number}", item, wanted)


def _row(where: str, values: Any, wanted: frozenset[str]) -> Row | InputError:
    if not isinstance(values, dict):
        return InputError(f"{where}: expected a JSON object, found {type(values).__name__}")
    return Row(where, {name: values[name] for name in wanted if name in values}, tuple(values))


def read_parquet(path: Path, wanted: frozenset[str]) -> Rows:
    """Yield the rows of a Parquet file, read batch by batch. Raises InputError if it is not Parquet or is damaged."""
    try:
        with pq.ParquetFile(path) as file:
            found = tuple(file.schema_arrow.names)
            columns = [name for name in found if name in wanted]
            yield from _rows_of(path, found, file.iter_batches(_BATCH_ROWS, columns=columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {first_line(error)}") from error


def read_dataset_folder(path: Path, wanted: frozenset[str]) -> Rows:
    """Yield the rows of every split. Raises InputError if the folder has neither layout, or a file is damaged."""
    if not path.is_dir():
        raise InputError(f"{path}: expected a Hugging Face dataset folder, found a file")
    if (path / "dataset_dict.json").is_file():
        splits = read_json_object(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or not splits:
            raise InputError(f"{path / 'dataset_dict.json'}: expected a list `splits` that names the folders")
        for split in splits:
            yield from _saved_rows(path / str(split), wanted)
    elif (path / "state.json").is_file():
        yield from _saved_rows(path, wanted)
    else:
        found = sorted(path.rglob("*.parquet"))
        shards = [shard for shard in found if not any(part[0] == "." for part in shard.relative_to(path).parts)]
        if not shards:
            raise InputError(
                f"{path}: expected a Hugging Face dataset folder (state.json, dataset_dict.json or Parquet shards); "
                "found none of them"
            )
        for shard in shards:
            yield from read_parquet(shard, wanted)


def _saved_rows(folder: Path, wanted: frozenset[str]) -> Rows:
    state = read_json_object(folder / "state.json")
    if state.get("_indices_data_files"):
        raise InputError(
            f"{folder}: holds a selection by indices; write it again with flatten_indices().save_to_disk()"
        )
    files = state.get("_data_files")
    if not isinstance(files, list) or not files:
        raise InputError(f"{folder / 'state.json'}: expected `_data_files` that names the Arrow files")
    for file in files:
        name = file.get("filename") if isinstance(file, dict) else None
        if not isinstance(name, str):
            raise InputError(f"{folder / 'state.json'}: expected a `filename` in each of `_data_files`, found {file!r}")
        yield from _arrow_rows(folder / name, wanted)


def _arrow_rows(path: Path, wanted: frozenset[str]) -> Rows:
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            found = tuple(stream.schema.names)
            columns = [name for name in found if name in wanted]
            yield from _rows_of(path, found, (batch.select(columns) for batch in stream))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Arrow stream file: {first_line(error)}") from error


def _rows_of(path: Path, found: tuple[str, ...], batches: Iterable[pa.RecordBatch]) -> Rows:
    number = 1
    for batch in batches:
        batch.validate(full=True)  # damaged offsets would crash the process, not raise
        for values in batch.to_pylist():
            yield Row(f"{path} row {number}", values, found)
            number += 1
