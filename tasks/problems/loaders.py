"""Loads problems from files: a KernelBench checkout, robust-kbench's tasks, JSON Lines, Parquet, a dataset's folder.

A table format is a function `read_…(path, wanted)` that yields the rows with the wanted columns; `LOADERS` names the
formats. Folders of Hugging Face datasets are read without the `datasets` library, in two layouts: that of
`save_to_disk` (`state.json` beside Arrow stream files, or `dataset_dict.json` with one such folder a split), and
Parquet shards anywhere below the folder. Every split is read: their names do not decide what is held out here.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError, first_line
from kernels_eval.problem import Problem, check_problem_source
from tasks.pipeline.json_file import read_json_object
from tasks.problems.config import ProblemsConfig
from tasks.problems.robust_kbench import MODULE, load_tasks
from tasks.problems.row import WANTED, Entry, Row, entry_of

_LEVEL = re.compile(r"level(\d+)")
_NUMBERED = re.compile(r"(\d+)_")
_BATCH_ROWS = 512


def read_jsonl(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file (UTF-8, empty lines allowed). InputError names a line that is no object."""
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


def read_json_array(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of a JSON file that holds one array of objects (UTF-8). InputError names what is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: expected a JSON array of objects (one object a line is .jsonl): {error}") from error
    if not isinstance(values, list):
        raise InputError(f"{path}: expected a JSON array of objects, found {type(values).__name__}")
    for number, item in enumerate(values):
        if not isinstance(item, dict):
            raise InputError(f"{path} item {number}: expected a JSON object, found {type(item).__name__}")
        yield Row(f"{path} item {number}", {name: item[name] for name in wanted if name in item}, tuple(item))


def read_parquet(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    """Yield the rows of a Parquet file, read batch by batch. Raises InputError if it is not Parquet or is damaged."""
    try:
        with pq.ParquetFile(path) as file:
            found = tuple(file.schema_arrow.names)
            columns = [name for name in found if name in wanted]
            yield from _rows_of(path, found, file.iter_batches(_BATCH_ROWS, columns=columns))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {first_line(error)}") from error


def read_dataset_folder(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
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


def _saved_rows(folder: Path, wanted: frozenset[str]) -> Iterator[Row]:
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


def _arrow_rows(path: Path, wanted: frozenset[str]) -> Iterator[Row]:
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            found = tuple(stream.schema.names)
            columns = [name for name in found if name in wanted]
            yield from _rows_of(path, found, (batch.select(columns) for batch in stream))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable Arrow stream file: {first_line(error)}") from error


def _rows_of(path: Path, found: tuple[str, ...], batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        batch.validate(full=True)  # damaged offsets would crash the process, not raise
        for values in batch.to_pylist():
            yield Row(f"{path} row {number}", values, found)
            number += 1


def load_checkout(path: Path) -> Iterator[Entry]:
    """Yield the problems of a KernelBench checkout, of its `KernelBench` folder or of one level's folder.

    `level1/19_ReLU.py` becomes `level1_19_ReLU`. Order: level, number, name. InputError names a bad file.
    """
    if not path.is_dir():
        raise InputError(f"{path}: expected the folder of a KernelBench checkout, found a file")
    for level, folder in _level_folders(path):
        for file in sorted(folder.glob("*.py"), key=_order):
            if file.name == "__init__.py":
                continue
            try:
                source = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"{file}: not readable as UTF-8 text: {error}") from error
            check_problem_source(source, str(file))
            problem = Problem(problem_id=f"level{level}_{file.stem}", source=source, level=level, name=file.stem)
            yield Entry(problem=problem, where=str(file))


def _level_folders(path: Path) -> list[tuple[int, Path]]:
    for parent in (path, path / "KernelBench"):
        if not parent.is_dir():
            continue
        folders = [(match, child) for child in parent.iterdir() if (match := _LEVEL.fullmatch(child.name))]
        levels = sorted((int(match[1]), child) for match, child in folders if child.is_dir())
        if levels:
            return levels
    if match := _LEVEL.fullmatch(path.resolve().name):
        return [(int(match[1]), path)]
    raise InputError(f"{path}: expected a KernelBench checkout with folders level1, level2, …; found none")


def _order(file: Path) -> tuple[int, str]:
    match = _NUMBERED.match(file.stem)
    return (int(match[1]) if match else 0, file.stem)


LOADERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    "kernelbench": load_checkout,
    "jsonl": lambda path: map(entry_of, read_jsonl(path, WANTED)),
    "parquet": lambda path: map(entry_of, read_parquet(path, WANTED)),
    "huggingface": lambda path: map(entry_of, read_dataset_folder(path, WANTED)),
}


def source_of(path: Path) -> str:
    """Return the format (`problems.source`) of what lies at a path, by names alone; InputError if it has none."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_file():
        if path.suffix in (".jsonl", ".parquet"):
            return path.suffix[1:]
        raise InputError(f"{path}: expected a file of problems, .jsonl or .parquet")
    folders = (path, path / "KernelBench", path / "tasks")
    if any(
        _LEVEL.fullmatch(child.name)
        for parent in folders[:2]
        if parent.is_dir()
        for child in (parent, *parent.iterdir())
    ):
        return "kernelbench"
    if any(parent.is_dir() and (list(parent.glob(f"*/{MODULE}")) or (parent / MODULE).is_file()) for parent in folders):
        return "robust_kbench"
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")) or any(path.rglob("*.parquet")):
        return "huggingface"
    raise InputError(
        f"{path}: expected a KernelBench checkout (folders level1, level2, …), robust-kbench's tasks, or a folder of a "
        "Hugging Face dataset; found none of them"
    )


def load_entries(config: ProblemsConfig) -> list[Entry]:
    """Return the problems at `config.path` of the levels that are kept, in the order of the source.

    InputError names the file and row of whatever is not a problem, and of two different problems with one id.
    """
    if config.path is None:
        raise InputError(f"problems.path: the source `{config.source}` needs a file or folder; found none")
    path = Path(config.path)
    if not path.exists():
        raise InputError(f"problems.path: {path}: no such file or folder")
    loaders = LOADERS | {"robust_kbench": lambda path: load_tasks(path, config.variants)}
    if config.source not in loaders:
        raise InputError(
            f"problems.source: expected one of {', '.join(loaders)} to load from a path, found {config.source}"
        )
    entries = list(loaders[config.source](path))
    if not entries:
        raise InputError(f"{path}: expected problems, found none")
    kept = [entry for entry in entries if entry.problem.level in config.levels]
    if not kept:
        levels = sorted({entry.problem.level for entry in entries})
        raise InputError(f"problems.levels: none of {list(config.levels)} is in {path}, which has levels {levels}")
    _check_ids(kept)
    return kept


def _check_ids(entries: list[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.problem.problem_id, entry)
        if other is not entry and other.problem.digest != entry.problem.digest:
            raise InputError(
                f"{entry.where}: problem_id {entry.problem.problem_id} names another problem in {other.where}"
            )
