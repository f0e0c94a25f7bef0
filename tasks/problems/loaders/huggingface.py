"""Rows of a Hugging Face dataset folder, read without the `datasets` library.

Two layouts are known: what `save_to_disk` writes (`state.json` beside Arrow stream files, or `dataset_dict.json` with one
such folder a split), and a snapshot of a dataset repository (Parquet shards anywhere below the folder). Every split is
read: names of Hugging Face splits (`level_1`, `train`) are not ours and do not decide what is held out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from kernels_eval.errors import InputError
from tasks.problems.loaders import parquet
from tasks.problems.loaders.entry import Row


def read_rows(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of every split; InputError where the folder has neither layout, or a file is damaged."""
    if not path.is_dir():
        raise InputError(f"{path}: expected a Hugging Face dataset folder, found a file")
    if (path / "dataset_dict.json").is_file():
        splits = _json(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or not splits:
            raise InputError(f"{path / 'dataset_dict.json'}: expected a list `splits` that names the folders")
        for split in splits:
            yield from _saved_rows(path / str(split), wanted)
    elif (path / "state.json").is_file():
        yield from _saved_rows(path, wanted)
    else:
        shards = [shard for shard in sorted(path.rglob("*.parquet")) if not _is_hidden(shard.relative_to(path))]
        if not shards:
            raise InputError(
                f"{path}: expected a Hugging Face dataset folder (state.json, dataset_dict.json or Parquet shards); found none of them"
            )
        for shard in shards:
            yield from parquet.read_rows(shard, wanted)


def _saved_rows(folder: Path, wanted: frozenset[str]) -> Iterator[Row]:
    state = _json(folder / "state.json")
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


def _arrow_rows(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            found = tuple(stream.schema.names)
            columns = [name for name in found if name in wanted]
            number = 0
            for batch in stream:
                selected = batch.select(columns)
                selected.validate(full=True)  # damaged offsets would crash the process, not raise
                for values in selected.to_pylist():
                    yield Row(f"{path} row {number}", values, found)
                    number += 1
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Arrow stream file: {str(error).splitlines()[0]}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)
