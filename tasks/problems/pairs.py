"""Pairs of problem and kernel to imitate: KernelBook's columns or ours, from JSON Lines, Parquet or a dataset folder.

KernelBook: `python_code`, `triton_code`, `entry_point` (`original_triton_code`, the unedited compiler output, is not
read). Ours: `problem_source`, `kernel_source`, optionally `pair_id`, `composition`, `style`, `level`; in the SFT stage's
own `pairs.parquet` only the rows of kind `direct` are pairs. A KernelBook row that cannot be expressed in KernelBench's
format is dropped and counted: scraped corpora are like that. A bad row of ours is an InputError.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import check_problem_source, normalise_source
from tasks.problems.kernelbook import UnconvertibleError, convert
from tasks.problems.loaders import huggingface, jsonl, parquet
from tasks.problems.loaders.columns import text
from tasks.problems.loaders.entry import Row

_log = logging.getLogger(__name__)

KERNELBOOK_COLUMNS = ("python_code", "triton_code", "entry_point")
OWN_COLUMNS = ("problem_source", "kernel_source")
_OPTIONAL = ("pair_id", "composition", "style", "kind")
_WANTED = frozenset({*KERNELBOOK_COLUMNS, *OWN_COLUMNS, *_OPTIONAL})
_DUPLICATE = "duplicate"
_NOT_DIRECT = "not_direct"


class Pair(FrozenModel):
    """A problem and a kernel that claims to solve it; nothing is judged yet."""

    pair_id: str
    """Unique in its corpus; from the content where the source gives none."""
    problem_source: str
    """In KernelBench's format."""
    kernel_source: str
    """Defines `ModelNew`."""
    composition: str = ""
    style: str = ""


class PairCorpus(NamedTuple):
    """The pairs of one file or folder."""

    pairs: list[Pair]
    dropped: dict[str, int]
    """Rows left out, by reason (tasks.problems.kernelbook.Reason, `duplicate`, `not_direct`)."""


def load_pairs(path: Path) -> list[Pair]:
    """Return the pairs of `read_corpus`, and log what was dropped."""
    corpus = read_corpus(path)
    if corpus.dropped:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(corpus.dropped.items()))
        _log.warning("%s: %d pairs; dropped: %s", path, len(corpus.pairs), reasons)
    return corpus.pairs


def read_corpus(path: Path) -> PairCorpus:
    """Return the distinct pairs and what was dropped; InputError where there is no pair, or a row of ours is bad."""
    pairs: dict[str, Pair] = {}
    dropped: Counter[str] = Counter()
    contents: set[str] = set()
    for row in _rows(path):
        try:
            pair = _pair(row)
        except UnconvertibleError as error:
            dropped[error.reason] += 1
            continue
        if pair is None:
            dropped[_NOT_DIRECT] += 1
            continue
        content = _content_digest(pair)
        if content in contents:
            dropped[_DUPLICATE] += 1
            continue
        contents.add(content)
        pair = pair if pair.pair_id else pair.model_copy(update={"pair_id": f"pair_{content}"})
        if pair.pair_id in pairs:
            raise InputError(f"{row.where}: pair_id {pair.pair_id} occurs more than once with other content")
        pairs[pair.pair_id] = pair
    if not pairs:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items())) or "the source is empty"
        raise InputError(f"{path}: expected pairs of problem and kernel, found none ({reasons})")
    return PairCorpus(list(pairs.values()), dict(dropped))


def _rows(path: Path) -> Iterator[Row]:
    if not path.exists():
        raise InputError(f"sft.data.path: {path}: no such file or folder")
    if path.is_dir():
        return huggingface.read_rows(path, _WANTED)
    if path.suffix == ".parquet":
        return parquet.read_rows(path, _WANTED)
    if path.suffix == ".jsonl":
        return jsonl.read_rows(path, _WANTED)
    raise InputError(f"sft.data.path: {path}: expected a .jsonl or .parquet file or a Hugging Face dataset folder")


def _pair(row: Row) -> Pair | None:
    """Return the row's pair, with an empty pair_id where it has none; None for a row of another kind."""
    if all(column in row.found for column in OWN_COLUMNS):
        if (text(row, "kind") or "direct") != "direct":
            return None
        problem, kernel = _needed(row, "problem_source"), _needed(row, "kernel_source")
        check_problem_source(problem, row.where)
    elif all(column in row.found for column in KERNELBOOK_COLUMNS):
        problem, kernel = convert(*(_needed(row, column) for column in KERNELBOOK_COLUMNS))
    else:
        raise InputError(
            f"{row.where}: expected the columns {', '.join(OWN_COLUMNS)} or {', '.join(KERNELBOOK_COLUMNS)}; found {', '.join(row.found) or 'none'}"
        )
    optional = {name: text(row, name) or "" for name in ("pair_id", "composition", "style")}
    return Pair(problem_source=problem, kernel_source=kernel, **optional)


def _needed(row: Row, column: str) -> str:
    value = text(row, column)
    if value is None:
        raise InputError(f"{row.where}: column `{column}`: expected text, found null")
    return value


def _content_digest(pair: Pair) -> str:
    content = f"{normalise_source(pair.problem_source)}\0{normalise_source(pair.kernel_source)}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]
