"""The published problem set: one folder with `problems.parquet`.

Columns: problem_id, problem_digest, split (`train` | `heldout`), level int32, family, name, composition, source,
reference_kernel (null if none is known), tier (tasks.problems.row.Tier; not in version 1, where all are standard). The
schema's version is in the file's metadata. The manifest's metadata counts problems: loaded, duplicates, beyond the
limits, passed by a trivial answer, random, similar across the split; and rows that were left out as no problems.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError, first_line
from kernels_eval.problem import Problem
from kernels_eval.reference.triviality import check_suitability
from tasks.pipeline.references import ProblemSetRef, Progress, silent
from tasks.pipeline.store import publish, published_digest
from tasks.pipeline.tables import PROBLEMS_FILE
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import Overlap, contaminated, drop_contaminated
from tasks.problems.loaders import Found, load_problems
from tasks.problems.modules.rows import draw_rows, draw_training_rows
from tasks.problems.row import Entry, ProblemRow, Split
from tasks.problems.split import check_split, split_entries

_log = logging.getLogger(__name__)

SCHEMA_VERSION = "2"
_VERSION_KEY = b"kernelmill.problems.version"
SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("problem_digest", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("composition", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("reference_kernel", pa.string()),
        pa.field("tier", pa.string(), nullable=False),
    ],
    metadata={_VERSION_KEY: SCHEMA_VERSION.encode()},
)
_SCHEMAS = {SCHEMA_VERSION: SCHEMA, "1": SCHEMA.remove(SCHEMA.get_field_index("tier"))}
"""Schemas that are read, by version."""


def build_problem_set(config: ProblemsConfig, destination: Path, progress: Progress = silent) -> ProblemSetRef:
    """Generate or load the problems, split them, check the split, and publish them at `destination`.

    `progress` is told how many problems of files were tried, which takes seconds each.
    """
    rows, counts = split_problems(config, progress)
    check_split(rows, tuple(Split) if config.train else (Split.HELDOUT,))
    sides = {split: [row for row in rows if row.split is split] for split in Split}
    overlaps = contaminated(*([row.problem.source for row in sides[split]] for split in (Split.TRAIN, Split.HELDOUT)))
    counts |= {"train": len(sides[Split.TRAIN]), "heldout": len(sides[Split.HELDOUT])}
    counts["train_similar_to_heldout"] = overlaps.count(Overlap.SIMILAR)
    for name in ("duplicates", "trivial", "random", "train_similar_to_heldout"):
        if counts.get(name):
            _log.warning("problem set: %s: %d", name.replace("_", " "), counts[name])
    with publish(destination, {"source": config.source, **counts}) as folder:
        pq.write_table(_table(rows), folder / PROBLEMS_FILE, compression="zstd", write_page_checksum=True)
    return ProblemSetRef(
        uri=str(destination.resolve()),
        digest=published_digest(destination),
        train=len(sides[Split.TRAIN]),
        heldout=len(sides[Split.HELDOUT]),
    )


def read_problems(reference: ProblemSetRef, split: Split | str | None = None) -> list[ProblemRow]:
    """Return the problems of one split (or all) in their stored order.

    Raises InputError if the folder is not the published one, or its Parquet is damaged or of another schema version.
    """
    digest = published_digest(reference.path)
    if digest != reference.digest:
        raise InputError(f"{reference.path}: expected the problem set {reference.digest}, found {digest}")
    wanted = None if split is None else Split(split)
    rows = [_row(values) for values in _read_table(reference.path / PROBLEMS_FILE).to_pylist()]
    return [row for row in rows if wanted is None or row.split is wanted]


def deduplicate(entries: Sequence[Entry]) -> list[Entry]:
    """Return the first entry of each normalised source. Raises InputError if a duplicate is on both sides."""
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.problem.digest, entry)
        if other.split != entry.split:
            raise InputError(
                f"{entry.where}: {entry.problem.problem_id} ({entry.split}) is the same program as "
                f"{other.problem.problem_id} ({other.split}) in {other.where}; a problem is on one side only"
            )
    return list(first.values())


def split_problems(config: ProblemsConfig, progress: Progress = silent) -> tuple[list[ProblemRow], dict[str, int]]:
    """Return the generated or loaded problems with their split, and counts for the manifest."""
    heldout = config.of_heldout_files()
    if heldout is not None:
        found = _all_on(Split.HELDOUT, load_problems(heldout))
        return _with_training(config, *_split(found, heldout, progress), progress)
    if config.source == "generated":
        from tasks.problems.synthetic.suite import generate_problems  # imports torch

        return generate_problems(config), {}
    if config.source == "modules":
        return draw_rows(config), {}
    return _split(load_problems(config), config, progress)


def _with_training(
    config: ProblemsConfig, rows: list[ProblemRow], counts: dict[str, int], progress: Progress
) -> tuple[list[ProblemRow], dict[str, int]]:
    """Return the training problems of `config.source` that are none of the held-out `rows`, then these."""
    sources = [row.problem.source for row in rows]
    cleaned = drop_contaminated(_training_rows(config, progress), sources, lambda row: row.problem.source)
    counts = counts | {"dropped_contaminated": cleaned.dropped}
    return [*cleaned.clean, *rows], counts


def _training_rows(config: ProblemsConfig, progress: Progress) -> list[ProblemRow]:
    """Return `config.train` problems of `config.source` at most, all of them to train on."""
    if config.train == 0:
        return []
    if config.source == "modules":
        return draw_training_rows(config)
    if config.source == "generated":
        from tasks.problems.synthetic.suite import generate_problems  # imports torch

        return [row for row in generate_problems(config) if row.split is Split.TRAIN]
    return _split(_all_on(Split.TRAIN, load_problems(config)), config, progress)[0]


def _all_on(side: Split, found: Found) -> Found:
    return Found([entry.model_copy(update={"split": side}) for entry in found.entries], found.left_out)


def _split(found: Found, config: ProblemsConfig, progress: Progress) -> tuple[list[ProblemRow], dict[str, int]]:
    """Return the distinct problems of files with their split, those that are good for anything, and counts."""
    entries, left_out = found
    distinct = deduplicate(entries)
    rows = split_entries(distinct, config)
    counts = {
        "loaded": len(entries),
        "left_out": left_out,
        "duplicates": len(entries) - len(distinct),
        "beyond_limits": len(distinct) - len(rows),
    }
    if config.flag_trivial:
        rows, flaws = _without_random(rows, progress)
        counts |= flaws
    return rows, counts


def _without_random(rows: Sequence[ProblemRow], progress: Progress) -> tuple[list[ProblemRow], dict[str, int]]:
    """Leave out problems whose reference is random, and log them and those that a trivial answer would pass.

    Returns the other rows, and the numbers of both kinds.
    """
    kept: list[ProblemRow] = []
    trivial = 0
    tried = check_suitability([row.problem.source for row in rows], progress=progress)
    for row, found in zip(rows, tried, strict=True):
        name = row.problem.problem_id
        if found.random is not None:
            _log.warning("problem set: %s is left out: %s", name, found.random)
            continue
        kept.append(row)
        if found.trivial:
            trivial += 1
            _log.warning("problem set: %s is passed by a trivial answer: %s", name, ", ".join(found.trivial))
    return kept, {"trivial": trivial, "random": len(rows) - len(kept)}


def _table(rows: Sequence[ProblemRow]) -> Any:
    return pa.Table.from_pylist(
        [
            {
                **row.problem.model_dump(),
                "problem_digest": row.problem.digest,
                **row.model_dump(mode="json", exclude={"problem"}),
            }
            for row in rows
        ],
        schema=SCHEMA,
    )


def _read_table(path: Path) -> Any:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found = file.schema_arrow
            version = (found.metadata or {}).get(_VERSION_KEY, b"none").decode()
            if version not in _SCHEMAS or not found.equals(_SCHEMAS[version]):
                raise InputError(
                    f"{path}: expected a problem set of schema version {SCHEMA_VERSION}; "
                    f"found version {version}, columns {', '.join(found.names)}"
                )
            table = file.read()
            table.validate(full=True)
            return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable problem set: {first_line(error)}") from error


def _row(values: dict[str, Any]) -> ProblemRow:
    problem = Problem(**{name: values[name] for name in Problem.model_fields})
    others = ("split", "composition", "reference_kernel", "tier")
    return ProblemRow(problem=problem, **{name: values[name] for name in others if name in values})
