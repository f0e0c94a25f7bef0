"""Pairs of problem and kernel to imitate, from JSON, JSON Lines, Parquet or a dataset folder.

The columns of a row say which of these formats it has (tasks.problems.pair_formats):

- `own`: `problem_source`, `kernel_source`, optionally `pair_id`, `composition`, `style`, `kind`,
  `earlier_source`;
- `kernelbook`: `python_code`, `triton_code`, `entry_point`;
- `input_output`: `input`, `output`, as agents are shown and answer;
- `cuda_archive`: `CUDA_Code`, `PyTorch_Code_Module`, `PyTorch_Code_Functional`, `Correct`, `CUDA_Runtime`.

A bad row of the formats that people write (`own`, `input_output`) is an InputError. A row of a scraped corpus that
cannot be converted is dropped and counted by reason.
"""

import hashlib
import logging
from collections import Counter
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.problem import normalise_source
from tasks.problems.pair_formats import cuda_archive, input_output, kernelbook, own
from tasks.problems.pair_formats.pair import Pair, UnconvertibleError
from tasks.problems.pair_formats.speed_steps import speed_steps
from tasks.problems.row import Row
from tasks.problems.table_files import Rows, read_dataset_folder, read_json, read_parquet

_log = logging.getLogger(__name__)

FORMATS = (
    (own.COLUMNS, own.pair_of),
    (kernelbook.COLUMNS, kernelbook.pair_of),
    (input_output.COLUMNS, input_output.pair_of),
    (cuda_archive.COLUMNS, cuda_archive.pair_of),
)
"""Columns that a row has all of, and what makes a pair of it. The first format that fits is taken."""
_WANTED = frozenset({*own.OPTIONAL, *(column for columns, _ in FORMATS for column in columns)})
_READERS = {".parquet": read_parquet, ".jsonl": read_json, ".json": read_json}
_DUPLICATE = "duplicate"


def load_pairs(path: Path) -> list[Pair]:
    """Return the distinct pairs of a file or folder, pairs of an earlier and a faster kernel after those of the rows.

    Dropped rows are counted in the log, by `Reason` or as `duplicate`. Raises InputError if there is no pair, or a row
    of ours or of `input` and `output` is bad.
    """
    pairs: dict[str, Pair] = {}
    dropped: Counter[str] = Counter()
    contents: set[str] = set()
    for row in _rows(path):
        if isinstance(row, InputError):
            raise row
        try:
            pair = _pair(row)
        except UnconvertibleError as error:
            dropped[error.reason] += 1
            continue
        content = _content_digest(pair)
        if content in contents:
            dropped[_DUPLICATE] += 1
            continue
        contents.add(content)
        pair = _named(pair, content)
        if pair.pair_id in pairs:
            raise InputError(f"{row.where}: pair_id {pair.pair_id} occurs more than once with other content")
        pairs[pair.pair_id] = pair
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()))
    if not pairs:
        found = reasons or "the source is empty"
        raise InputError(f"{path}: expected pairs of problem and kernel, found none ({found})")
    steps = [_named(pair, _content_digest(pair)) for pair in speed_steps(list(pairs.values()))]
    if steps:
        _log.info("%s: %d pairs to make an earlier kernel faster", path, len(steps))
    if dropped:
        _log.warning("%s: %d pairs; dropped: %s", path, len(pairs), reasons)
    return [*pairs.values(), *steps]


def _rows(path: Path) -> Rows:
    if not path.exists():
        raise InputError(f"sft.data.path: {path}: no such file or folder")
    if path.is_dir():
        return read_dataset_folder(path, _WANTED)
    if path.suffix in _READERS:
        return _READERS[path.suffix](path, _WANTED)
    raise InputError(
        f"sft.data.path: {path}: expected a .json, .jsonl or .parquet file or a Hugging Face dataset folder"
    )


def _pair(row: Row) -> Pair:
    for columns, pair_of in FORMATS:
        if all(column in row.found for column in columns):
            return pair_of(row)
    expected = " or ".join(", ".join(columns) for columns, _ in FORMATS)
    raise InputError(f"{row.where}: expected the columns {expected}; found {', '.join(row.found) or 'none'}")


def _named(pair: Pair, content: str) -> Pair:
    return pair if pair.pair_id else pair.model_copy(update={"pair_id": f"pair_{content}"})


def _content_digest(pair: Pair) -> str:
    # The id of a pair without an earlier kernel stays what it was before pairs could have one.
    sources = [pair.problem_source, pair.kernel_source, *([] if pair.earlier_source is None else [pair.earlier_source])]
    content = "\0".join(normalise_source(source) for source in sources)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
