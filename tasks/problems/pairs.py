"""Pairs of problem and kernel to imitate, from JSON, Parquet or a dataset folder.

The columns of a row say which format it has, the first of `FORMATS` that fits (tasks.problems.pair_formats). Columns
with other names are known for some of them (`PLACES`); `sft.data.columns` names further ones.

A row that is bad, as people's rows are, is named in the log, counted and left out; too many of them are an InputError
(tasks.problems.left_out). A row of a scraped corpus that cannot be converted is dropped and counted by reason.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kernels_eval.errors import InputError
from kernels_eval.problem import normalise_source
from tasks.problems.config import PAIR_READER
from tasks.problems.left_out import LeftOut, each
from tasks.problems.pair_formats import conversation, cuda_archive, input_output, kernelbook, own
from tasks.problems.pair_formats.pair import Pair, Reason, UnconvertibleError
from tasks.problems.pair_formats.speed_steps import speed_steps
from tasks.problems.places import check_columns, placed, wanted_columns
from tasks.problems.row import Row
from tasks.problems.table_files import Rows, given_rows, read_dataset_folder, read_json, read_parquet

_log = logging.getLogger(__name__)
_COLUMNS = "sft.data.columns"


class Format(NamedTuple):
    """A set of columns, and what makes a pair of a row that has them."""

    columns: tuple[str, ...]
    pair_of: Callable[[Row], Pair]


FORMATS = (
    Format(kernelbook.COLUMNS, kernelbook.pair_of),
    Format(cuda_archive.COLUMNS, cuda_archive.pair_of),
    Format(own.COLUMNS, own.pair_of),
    Format(("messages",), conversation.pair_of_messages),
    Format(("prompt", "completion"), conversation.pair_of_completion),
    Format(("instruction", "output"), input_output.pair_of),
    Format(input_output.COLUMNS, input_output.pair_of),
)
PLACES: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in (*kernelbook.COLUMNS, *cuda_archive.COLUMNS, *own.OPTIONAL)},
    "problem_source": ("problem_source", "pytorch_code", "ref_arch_src", "reference_code"),
    "kernel_source": ("kernel_source", "triton_code", "cuda_code", "kernel_code"),
    "messages": ("messages", "conversations", "conversation", "chat"),
    "prompt": ("prompt", "question", "query"),
    "completion": ("completion", "response", "answer"),
    "instruction": ("instruction",),
    "input": ("input",),
    "output": ("output",),
    "reasoning": ("reasoning", "reasoning_content", "thinking", "thought", "cot"),
}
"""Places of each column of the formats, in the order in which they are tried."""
_READERS = {".parquet": read_parquet, ".jsonl": read_json, ".json": read_json}
_DUPLICATE = "duplicate"


def load_pairs(
    path: Path, columns: Mapping[str, str] | None = None, bad_rows: float = 0.5, reader: str | None = None
) -> list[Pair]:
    """Return the distinct pairs of a file or folder, pairs of an earlier and a faster kernel after those of the rows.

    `columns`, `bad_rows`, `reader`: as in SftDataConfig. Dropped rows are counted in the log, by `Reason` or as
    `duplicate`. Raises InputError if there is no pair, or more rows than `bad_rows` allows are bad.
    """
    columns = columns or {}
    check_columns(_COLUMNS, columns, PLACES)
    understood: Counter[str] = Counter()
    left_out = LeftOut(str(path), "rows", bad_rows, "sft.data.bad_rows")
    pairs: dict[str, Pair] = {}
    dropped: Counter[str] = Counter()
    contents: set[str] = set()

    def pair_of(row: Row) -> tuple[Pair | Reason, str]:
        try:
            return _pair(row, columns, understood), row.where
        except UnconvertibleError as error:
            return error.reason, row.where

    read = 0
    for pair, where in left_out.keep(each(_rows(path, wanted_columns(PLACES, columns), reader), pair_of)):
        read += 1
        if isinstance(pair, Reason):
            dropped[pair] += 1
            continue
        content = _content_digest(pair)
        if content in contents:
            dropped[_DUPLICATE] += 1
            continue
        contents.add(content)
        pair = _named(pair, content)
        if pair.pair_id in pairs:
            left_out.errors.append(
                InputError(f"{where}: pair_id {pair.pair_id} occurs more than once with other content")
            )
            read -= 1
            continue
        pairs[pair.pair_id] = pair
    left_out.check(read)
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()))
    if not pairs:
        found = reasons or "the source is empty"
        raise InputError(f"{path}: expected pairs of problem and kernel, found none ({found})")
    words = ", ".join(f"from {places} ({count})" for places, count in understood.items())
    _log.info("%s: %d pairs, %s", path, len(pairs), words)
    steps = [_named(pair, _content_digest(pair)) for pair in speed_steps(list(pairs.values()))]
    if steps:
        _log.info("%s: %d pairs to make an earlier kernel faster", path, len(steps))
    if dropped:
        _log.warning("%s: %d pairs; dropped: %s", path, len(pairs), reasons)
    return [*pairs.values(), *steps]


def _rows(path: Path, wanted: frozenset[str], reader: str | None) -> Rows:
    if not path.exists():
        raise InputError(f"sft.data.path: {path}: no such file or folder")
    if reader is not None:
        return given_rows(PAIR_READER.load(reader), path)
    if path.is_dir():
        return read_dataset_folder(path, wanted)
    if path.suffix in _READERS:
        return _READERS[path.suffix](path, wanted)
    raise InputError(
        f"sft.data.path: {path}: expected a .json, .jsonl or .parquet file or a Hugging Face dataset folder"
    )


def _pair(row: Row, columns: Mapping[str, str], understood: Counter[str]) -> Pair:
    ours, found = placed(row, PLACES, columns, _COLUMNS)
    for form in FORMATS:
        if all(column in found or column in row.found for column in form.columns):
            values = dict.fromkeys(form.columns) | ours.values
            pair = form.pair_of(ours._replace(values=values))
            thought = values.get("reasoning")
            if isinstance(thought, str) and not pair.reasoning:
                pair = pair.model_copy(update={"reasoning": thought.strip()})
            understood[" and ".join(f"`{found.get(column, column)}`" for column in form.columns)] += 1
            return pair
    expected = " or ".join(", ".join(form.columns) for form in FORMATS)
    raise InputError(f"{row.where}: expected the columns {expected}; found {', '.join(row.found) or 'none'}")


def _named(pair: Pair, content: str) -> Pair:
    return pair if pair.pair_id else pair.model_copy(update={"pair_id": f"pair_{content}"})


def _content_digest(pair: Pair) -> str:
    # The id of a pair without an earlier kernel stays what it was before pairs could have one.
    earlier = [] if pair.earlier_source is None else [pair.earlier_source]
    sources = [pair.problem_source, pair.kernel_source, *earlier, *pair.before]
    content = "\0".join(normalise_source(source) for source in sources)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
