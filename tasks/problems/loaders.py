"""Loads problems from files: folders of modules, robust-kbench's tasks, JSON, Parquet, a dataset's folder.

`LOADER` (tasks.problems.config) names the formats. Each yields problems, and instead of what is none the InputError
that names it. Those are left out (tasks.problems.left_out); one line of the log says what was understood.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernels_eval.errors import InputError
from tasks.problems.config import LOADER, ProblemsConfig
from tasks.problems.left_out import LeftOut, each
from tasks.problems.module_folders import load_modules, module_folder
from tasks.problems.pair_formats.kernelbook import convert_problem
from tasks.problems.pair_formats.pair import UnconvertibleError
from tasks.problems.places import PLACES, SOURCES, check_columns, placed, wanted_columns
from tasks.problems.robust_kbench import load_tasks, task_folders
from tasks.problems.row import Entry, Row, entry_of
from tasks.problems.table_files import Rows, given_rows

_log = logging.getLogger(__name__)
_COLUMNS = "problems.columns"
_KERNELBOOK = "python_code"


class Found(NamedTuple):
    """Problems of a source, and the number of its bad rows."""

    entries: list[Entry]
    """The problems of the levels that are kept."""
    left_out: int
    """Rows or files that are no problems."""


_Understood = Counter[str]
"""Number of problems by what of their row was read as what."""
_FOLDERS = ("kernelbench", "robust_kbench")
"""Formats that are no tables."""
_SUFFIXES = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


def source_of(path: Path) -> str:
    """Return the format (`problems.source`) of what lies at a path, by names alone; InputError if it has none."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_file():
        if path.suffix in _SUFFIXES:
            return _SUFFIXES[path.suffix]
        raise InputError(f"{path}: expected a file of problems, .jsonl, .json or .parquet")
    if task_folders(path):
        return "robust_kbench"
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")) or any(path.rglob("*.parquet")):
        return "huggingface"
    if module_folder(path) is not None:
        return "kernelbench"
    raise InputError(
        f"{path}: expected a KernelBench checkout (folders level1, level2, …), modules in folders by category, "
        "robust-kbench's tasks, or a folder of a Hugging Face dataset; found none of them"
    )


def load_entries(config: ProblemsConfig) -> list[Entry]:
    """Return the problems at `config.path` of the levels that are kept; `load_problems` without the count."""
    return load_problems(config).entries


def load_problems(config: ProblemsConfig) -> Found:
    """Return the problems at `config.path` of the levels that are kept, in the order of the source.

    What is no problem, and a second problem with an id, is named in the log and left out. Raises InputError if that is
    more than the share `config.bad_rows`, or nothing is there.
    """
    if config.path is None:
        raise InputError(f"problems.path: the source `{config.source}` needs a file or folder; found none")
    path = Path(config.path)
    if not path.exists():
        raise InputError(f"{config.path_setting}: {path}: no such file or folder")
    if config.is_generated:
        raise InputError(
            f"problems.source: expected one of {', '.join(LOADER.ours)} to load from a path, found {config.source}"
        )
    check_columns(_COLUMNS, config.columns, PLACES)
    understood = _Understood()
    kind = "files" if config.source in _FOLDERS else "rows"
    left_out = LeftOut(str(path), kind, config.bad_rows, "problems.bad_rows")
    entries = list(left_out.keep(_with_distinct_ids(_loaded(config, path, understood))))
    left_out.check(len(entries))
    if not entries:
        raise InputError(f"{path}: expected problems, found none")
    levels = Counter(entry.problem.level for entry in entries)
    kept = [entry for entry in entries if entry.problem.level in config.levels]
    if not kept:
        raise InputError(
            f"problems.levels: none of {list(config.levels)} is in {path}, which has levels {sorted(levels)}"
        )
    _log.info("%s: %s", path, _in_words(entries, understood))
    if len(kept) < len(entries):
        others = ", ".join(str(level) for level in sorted(levels) if level not in config.levels)
        _log.info("%s: %d of other levels (%s) left out by problems.levels", path, len(entries) - len(kept), others)
    return Found(kept, len(left_out.errors))


def _loaded(config: ProblemsConfig, path: Path, understood: _Understood) -> Iterator[Entry | InputError]:
    if config.source == "kernelbench":
        return load_modules(path)
    if config.source == "robust_kbench":
        return load_tasks(path, config.variants)
    rows = _rows(config, path)

    def entry(row: Row) -> Entry:
        ours, found = placed(row, PLACES, config.columns, _COLUMNS)
        entry = entry_of(_with_kernelbook(_with_source(ours), found))
        understood[", ".join(f"{name} from `{place}`" for name, place in found.items() if name != "entry_point")] += 1
        return entry

    return each(rows, entry)


def _rows(config: ProblemsConfig, path: Path) -> Rows:
    """Return the rows of a table, or those that a function of the user's reads."""
    read = LOADER.load(config.source)
    wanted = wanted_columns(PLACES, config.columns)
    return read(path, wanted) if LOADER.is_ours(config.source) else given_rows(read, path)


def _with_source(row: Row) -> Row:
    if "source" not in row.values:
        known = ", ".join(f"`{name}`" for name in SOURCES)
        raise InputError(
            f"{row.where}: expected the problem's source in a column {known} or one that {_COLUMNS} names; found "
            f"{', '.join(row.found) or 'none'}"
        )
    return row


def _with_kernelbook(row: Row, found: dict[str, str]) -> Row:
    """Return a row of KernelBook with the class that its `entry_point` names as `Model`; any other row unchanged."""
    source, name = row.values["source"], row.values.get("entry_point")
    if found["source"] != _KERNELBOOK or not isinstance(source, str) or not isinstance(name, str):
        return row
    try:
        return row._replace(values={"name": name, **row.values, "source": convert_problem(source, name)})
    except UnconvertibleError as error:
        raise InputError(f"{row.where}: no KernelBench problem can be made of `{_KERNELBOOK}`: {error}") from error


def _with_distinct_ids(entries: Iterator[Entry | InputError]) -> Iterator[Entry | InputError]:
    """Yield the entries; instead of another problem under an earlier one's id the InputError that names both."""
    first: dict[str, Entry] = {}
    for entry in entries:
        if not isinstance(entry, InputError):
            other = first.setdefault(entry.problem.problem_id, entry)
            if other.problem.digest != entry.problem.digest:
                yield InputError(
                    f"{entry.where}: problem_id {entry.problem.problem_id} names another problem in {other.where}"
                )
                continue
        yield entry


def _in_words(entries: list[Entry], understood: _Understood) -> str:
    """Return what was understood: the number of problems, where their parts were found, levels and families."""
    levels = Counter(entry.problem.level for entry in entries)
    families = {entry.problem.family for entry in entries} - {""}
    parts = [
        f"{len(entries)} problems",
        "; ".join(f"{places} ({number})" if len(understood) > 1 else places for places, number in understood.items()),
        "levels " + ", ".join(f"{level} ({number})" for level, number in sorted(levels.items())),
        f"{len(families)} families" if families else "",
    ]
    return "; ".join(part for part in parts if part)
