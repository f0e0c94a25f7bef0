"""Problems from elsewhere: a KernelBench checkout, JSON Lines, Parquet, a Hugging Face dataset folder.

One module a format. A format of tables is a function from path and wanted columns to rows; what the columns mean is
said once, in `columns`. A new format is a module and one line in LOADERS.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.loaders import huggingface, jsonl, parquet
from tasks.problems.loaders.columns import WANTED, entry_of
from tasks.problems.loaders.entry import Entry, Row
from tasks.problems.loaders.kernelbench import load_checkout

RowReader = Callable[[Path, frozenset[str]], Iterator[Row]]


def _table(read_rows: RowReader) -> Callable[[Path], Iterator[Entry]]:
    return lambda path: (entry_of(row) for row in read_rows(path, WANTED))


LOADERS: dict[str, Callable[[Path], Iterator[Entry]]] = {
    "kernelbench": load_checkout,
    "jsonl": _table(jsonl.read_rows),
    "parquet": _table(parquet.read_rows),
    "huggingface": _table(huggingface.read_rows),
}


def load_entries(config: ProblemsConfig) -> list[Entry]:
    """Return the problems at `config.path` of the levels that are kept, in the order of the source.

    InputError names the file and row of whatever is not a problem, and of two different problems with one id.
    """
    if config.path is None:
        raise InputError(f"problems.path: the source `{config.source}` needs a file or folder; found none")
    path = Path(config.path)
    if not path.exists():
        raise InputError(f"problems.path: {path}: no such file or folder")
    if config.source not in LOADERS:
        raise InputError(
            f"problems.source: expected one of {', '.join(LOADERS)} to load from a path, found {config.source}"
        )
    entries = list(LOADERS[config.source](path))
    if not entries:
        raise InputError(f"{path}: expected problems, found none")
    kept = [entry for entry in entries if entry.problem.level in config.levels]
    if not kept:
        levels = sorted({entry.problem.level for entry in entries})
        raise InputError(f"problems.levels: none of {list(config.levels)} is in {path}, which has levels {levels}")
    _check_ids(kept)
    return kept


def load_problems(config: ProblemsConfig) -> list[Problem]:
    """Return the problems of `load_entries`."""
    return [entry.problem for entry in load_entries(config)]


def _check_ids(entries: list[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.problem.problem_id, entry)
        if other is not entry and other.problem.digest != entry.problem.digest:
            raise InputError(
                f"{entry.where}: problem_id {entry.problem.problem_id} names another problem in {other.where}"
            )
