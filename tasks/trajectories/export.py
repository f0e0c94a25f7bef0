"""Data sets for other programs: JSON Lines, or a folder that Hugging Face `datasets` loads.

JSON Lines: one turn a line, every column by its name, the verdict as an object, times as ISO 8601.
Hugging Face: `data/turns-*.parquet` and `data/trajectories-*.parquet`, one file a partition, and a README.md whose head declares
them as the configurations `turns` (default) and `trajectories`: `datasets.load_dataset(FOLDER, "turns")`.

One partition is in memory at a time. What is written appears with one rename.
"""

import json
import os
import shutil
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from kernels_eval.errors import InputError
from tasks.trajectories.reader import read_trajectories_file, read_turns_file
from tasks.trajectories.schema import TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA, TURNS_FILE, TURNS_SCHEMA

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

One row a turn (`turns`) and one row a trajectory (`trajectories`). Speedups whose `timing_source` is `roofline` are estimates.
"""


def export_json_lines(folders: Sequence[Path], destination: Path) -> int:
    """Write every turn of the data sets as a line of JSON; return how many. InputError where the file is there already."""
    lines = 0
    with _appearing(destination) as partial, partial.open("w", encoding="utf-8") as file:
        for folder in folders:
            for row in read_turns_file(folder / TURNS_FILE).iter_rows(named=True):
                file.write(json.dumps(row, default=lambda value: value.isoformat(), ensure_ascii=False) + "\n")
                lines += 1
    return lines


def export_huggingface(folders: Sequence[Path], destination: Path) -> int:
    """Write a folder for `datasets.load_dataset`; return the number of turns. InputError where the folder is there already."""
    turns = 0
    with _appearing(destination) as partial:
        (partial / "data").mkdir(parents=True)
        for number, folder in enumerate(folders):
            table = read_turns_file(folder / TURNS_FILE).to_arrow().cast(TURNS_SCHEMA)
            turns += table.num_rows
            pq.write_table(table, partial / "data" / f"turns-{number:05d}.parquet", compression="zstd")
            table = read_trajectories_file(folder / TRAJECTORIES_FILE).to_arrow().cast(TRAJECTORIES_SCHEMA)
            pq.write_table(table, partial / "data" / f"trajectories-{number:05d}.parquet", compression="zstd")
        (partial / "README.md").write_text(_CARD, encoding="utf-8")
    return turns


@contextmanager
def _appearing(destination: Path) -> Generator[Path]:
    """Yield a place beside the destination; what is there in the end becomes it, on an error nothing does."""
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
