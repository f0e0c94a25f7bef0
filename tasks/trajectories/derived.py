"""Data sets made from data sets: scored with another reward, compacted into one, or exported to other formats.

Rescoring: rewards and returns are computed again into a new data set; nothing is judged or generated again, and
episodes keep the length that the old reward gave them. The new manifest has the old metadata with `episode.reward` and
`episode.gamma` changed, and `rescored_from`.

Compaction: many partitions as one data set of the current schema, with fewer files and larger row groups. It is read
like any other; the partitions stay: the run's later stages were made from them.

Export: JSON Lines have one turn per line, every column by its name, the verdict as an object, times as ISO 8601. A
Hugging Face folder has `data/turns-*.parquet` and `data/trajectories-*.parquet`, one file per partition, and a
README.md whose head declares them as the configurations `turns` (default) and `trajectories`:
`datasets.load_dataset(FOLDER, "turns")`.

Compaction and export hold one partition in memory at a time. Their output appears with one rename.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError
from kernels_eval.rewards import Answer, reward_bounds, reward_of
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import MANIFEST, publish, published_digest, read_manifest
from tasks.trajectories.reader import load_trajectories, read_trajectories_file, read_turns_file
from tasks.trajectories.schema import TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA, TURNS_FILE, TURNS_SCHEMA, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories


def rescore(folder: Path, reward: str, destination: Path, gamma: float | None = None) -> TrajectoryBatchRef:
    """Publish the batch in `folder` with this reward at `destination`, which must not exist yet.

    `gamma`: discount of the returns; None: the one that the batch was made with. Raises InputError for an unknown
    reward, a batch that cannot be read or does not say its discount, or a destination that is taken.
    """
    reward_bounds(reward)  # an unknown name is refused before anything is read
    if destination.exists():
        raise InputError(f"{destination}: is there already; a data set is never changed in place")
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder}: expected a published data set with a {MANIFEST}, found none")
    metadata: dict[str, Any] = dict(manifest.get("metadata") or {})
    episode: dict[str, Any] = dict(metadata.get("episode") or {})
    discount = episode.get("gamma") if gamma is None else gamma
    if discount is None:
        raise InputError(
            f"{folder / MANIFEST}: expected the discount of its returns (metadata.episode.gamma), found none; "
            "name one (--gamma)"
        )
    discount = float(discount)
    metadata |= {
        "episode": episode | {"reward": reward, "gamma": discount},
        "rescored_from": {"uri": str(folder.resolve()), "digest": manifest["digest"]},
    }
    return write_trajectories(rescored(load_trajectories(folder), reward), discount, destination, metadata)


def rescored(trajectories: Sequence[Trajectory], reward: str) -> list[Trajectory]:
    """Return the trajectories with every turn's reward computed again from its verdict and answer; faults have none."""
    return [
        replace(trajectory, turns=tuple(_rescored_turn(turn, reward) for turn in trajectory.turns))
        for trajectory in trajectories
    ]


def _rescored_turn(turn: Turn, reward: str) -> Turn:
    if turn.verdict.is_fault:
        return turn
    answer = Answer(turn.response_text, len(turn.response_token_ids))
    return replace(turn, reward=reward_of(reward, turn.verdict, answer))


ROW_GROUP = 65_536
_TABLES: dict[str, tuple[pa.Schema, Callable[[Path], pl.DataFrame]]] = {
    TRAJECTORIES_FILE: (TRAJECTORIES_SCHEMA, read_trajectories_file),
    TURNS_FILE: (TURNS_SCHEMA, read_turns_file),
}


def compact(folders: Sequence[Path], destination: Path) -> int:
    """Publish all rows; return the number of turns. Raises InputError if it exists, or an iteration occurs twice."""
    if destination.exists():
        raise InputError(f"{destination}: is there already; name another folder, or remove it first")
    seen: dict[tuple[str, int], Path] = {}
    metadata: dict[str, Any] = {"compacted_from": [published_digest(folder) for folder in folders]}
    with publish(destination, metadata) as partial:
        _copy(folders, partial, TRAJECTORIES_FILE, seen)
        turns = _copy(folders, partial, TURNS_FILE, seen)
        metadata["iterations"] = sorted({iteration for _, iteration in seen})
    return turns


def _copy(folders: Sequence[Path], partial: Path, name: str, seen: dict[tuple[str, int], Path]) -> int:
    """Write one table of all data sets; return its rows. `seen`: by run and iteration, its data set."""
    schema, read = _TABLES[name]
    rows = 0
    with pq.ParquetWriter(partial / name, schema, compression="zstd") as writer:
        for folder in folders:
            table = read(folder / name)
            for run_id, iteration in table.select("run_id", "iteration").unique().iter_rows():
                other = seen.setdefault((run_id, iteration), folder)
                if other != folder:
                    raise InputError(f"{folder} and {other}: both hold iteration {iteration} of {run_id}")
            writer.write_table(table.to_arrow().cast(schema), row_group_size=ROW_GROUP)
            rows += table.height
    return rows


_CARD = """\
---
configs:
- config_name: turns
  default: true
  data_files: data/turns-*.parquet
- config_name: trajectories
  data_files: data/trajectories-*.parquet
---

# Trajectories of kernel writing

One row a turn (`turns`) and one row a trajectory (`trajectories`).
Speedups whose `timing_source` is `roofline` are estimates.
"""


def export_json_lines(folders: Sequence[Path], destination: Path) -> int:
    """Write every turn as a line of JSON; return their number. Raises InputError if the file exists."""
    lines = 0
    with _appearing(destination) as partial, partial.open("w", encoding="utf-8") as file:
        for folder in folders:
            for row in read_turns_file(folder / TURNS_FILE).iter_rows(named=True):
                file.write(json.dumps(row, default=lambda value: value.isoformat(), ensure_ascii=False) + "\n")
                lines += 1
    return lines


def export_huggingface(folders: Sequence[Path], destination: Path) -> int:
    """Write a folder for `datasets.load_dataset`; return the number of turns. Raises InputError if it exists."""
    turns = 0
    with _appearing(destination) as partial:
        (partial / "data").mkdir(parents=True)
        for number, folder in enumerate(folders):
            for name, (schema, read) in _TABLES.items():
                table = read(folder / name).to_arrow().cast(schema)
                numbered = f"{Path(name).stem}-{number:05d}.parquet"
                pq.write_table(table, partial / "data" / numbered, compression="zstd")
                turns += table.num_rows if name == TURNS_FILE else 0
        (partial / "README.md").write_text(_CARD, encoding="utf-8")
    return turns


@contextmanager
def _appearing(destination: Path) -> Generator[Path]:
    """Yield a path beside the destination; it is renamed to the destination at the end, and removed on an error."""
    if destination.exists():
        raise InputError(f"{destination}: is there already; name another place, or remove it first")
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(f".partial-{destination.name}-{uuid.uuid4().hex[:8]}")
    try:
        yield partial
        os.rename(partial, destination)  # noqa: PTH104 (fails where pathlib's replace would overwrite a folder)
    except BaseException:
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
        raise
