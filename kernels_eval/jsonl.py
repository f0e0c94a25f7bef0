"""JSONL files of kernels: one object a line in, one verdict a line out, in the same order.

In: `problem_source`, `kernel_source`, and optionally `backend`; other fields are ignored. The output file is written
in one step at the end. Until then verdicts are kept in `<out>.verdicts/` (in `cache_dir` if that is set): the same
call after a crash judges only the missing ones.
"""

import difflib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.judge import Judge
from kernels_eval.problem import Problem
from kernels_eval.streaming import Item
from kernels_eval.verdict import Verdict

_FIELDS = frozenset({"problem_source", "kernel_source", "backend"})
_ALIKE = 0.8
_MOST_BATCH_MIB = 1024
"""Size of a batch, which is held in memory."""


def judge_file(
    batch: Path, out: Path, config: JudgeConfig, progress: Callable[[int, int], None] | None = None
) -> list[Verdict]:
    """Judge every line of `batch` and write `out`; returns the verdicts.

    Raises InputError before anything is judged: a file cannot be read or written, or a line is wrong (the first, by
    number).
    """
    lines = _lines(batch)
    if not out.parent.is_dir():
        raise InputError(f"{out}: no such folder: {out.parent}")
    kept = None if config.cache_dir else out.with_name(f"{out.name}.verdicts")
    config = config.model_copy(update={"cache_dir": str(kept)}) if kept else config
    with Judge(config) as judge:
        items = [_item(judge, line, f"{batch}:{number}") for number, line in enumerate(lines, start=1)]
        verdicts = judge.evaluate_many(items, progress)
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        partial.write_text("".join(verdict.model_dump_json() + "\n" for verdict in verdicts), encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"{out}: cannot be written: {error}") from error
    if kept is not None and not any(verdict.is_fault for verdict in verdicts):
        shutil.rmtree(kept, ignore_errors=True)
    return verdicts


def read_source(path: Path, most_mib: int = 16) -> str:
    """Return a file's text. Raises InputError if it cannot be read, is not UTF-8, or longer: a device never ends."""
    try:
        with path.open("rb") as file:
            content = file.read(most_mib * 2**20 + 1)
        if len(content) > most_mib * 2**20:
            raise InputError(f"{path}: expected a text of at most {most_mib} MiB, found more")
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")  # as files of text are read
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _lines(path: Path) -> list[str]:
    # Not splitlines(): JSON strings may hold other characters that it splits at.
    lines = read_source(path, _MOST_BATCH_MIB).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{path}: expected one JSON object a line, found nothing")
    return lines


def _item(judge: Judge, line: str, where: str) -> Item:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: expected a JSON object, found {line[:40]!r}: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(row).__name__}")
    sources: list[str] = []
    for name in ("problem_source", "kernel_source"):
        if name not in row:
            raise InputError(f"{where}: expected the fields problem_source and kernel_source; missing: {name}")
        value: Any = row[name]
        if not isinstance(value, str):
            raise InputError(f"{where}: {name}: expected text, found {type(value).__name__}")
        sources.append(value)
    backend: Any = row.get("backend")
    for name in row.keys() - _FIELDS if backend is None else ():
        if meant := difflib.get_close_matches(name, ["backend"], 1, _ALIKE):
            raise InputError(f"{where}: {name}: no such field; did you mean {meant[0]}?")
    if backend is not None and not isinstance(backend, str):
        raise InputError(f"{where}: backend: expected text, found {type(backend).__name__}")
    problem = Problem(problem_id=where, source=sources[0])
    try:
        judge.check(problem, backend)
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}: {message}") from error
    return problem, sources[1], backend
