"""The viewer's pages of a large run against reading the same Parquet files wholly: seconds, and their ratio.

    python benchmarks/viewer.py RUN [--megabytes 100] [--work FOLDER]

The batches of RUN, a real run or its evaluations, are inflated: each row again and again with another trajectory id and
drawn tokens and log-probabilities, so that no repetition makes the files small. Each page is drawn once with nothing
kept in memory, and once more. The peer is Polars, which reads all columns of the files.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from extras.viewer import episodes, pages
from extras.viewer.runs import RunFolder, find_runs
from tasks.trajectories.reader import read_turns_file
from tasks.trajectories.schema import TURNS_FILE, TURNS_SCHEMA

MEGABYTES = 1_000_000
_BATCH = 10
"""Megabytes of a batch, about."""
_DRAWN = ("prompt_token_ids", "response_token_ids")


def inflate(source: RunFolder, megabytes: int, folder: Path) -> Path:
    """Write a run of about `megabytes` whose rows come from the batches of another one; return its folder."""
    run = folder / "inflated"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("name: inflated\n")
    random, written, batch = np.random.default_rng(0), 0, 0
    frames = [read_turns_file(each.file) for each in source.batches.values()]
    while written < megabytes * MEGABYTES:
        parts: list[pl.DataFrame] = []
        size = 0
        while size < _BATCH * MEGABYTES:
            parts.append(_copy(frames[len(parts) % len(frames)], random, len(parts)))
            size += int(parts[-1].estimated_size()) // 2
        target = run / "evaluations" / f"policy-{batch:03d}" / TURNS_FILE
        target.parent.mkdir(parents=True)
        table = pl.concat(parts).sort("trajectory_id", "turn_index").to_arrow().cast(TURNS_SCHEMA)
        pq.write_table(table.replace_schema_metadata(TURNS_SCHEMA.metadata), target, compression="zstd")
        written += target.stat().st_size
        batch += 1
    return run


def _copy(frame: pl.DataFrame, random: np.random.Generator, number: int) -> pl.DataFrame:
    lengths = {name: frame[name].list.len().to_list() for name in (*_DRAWN, "response_logprobs")}
    drawn = [
        pl.Series(name, [random.integers(0, 49_152, length) for length in lengths[name]], pl.List(pl.Int32))
        for name in _DRAWN
    ]
    logprobs = [-random.exponential(0.3, length) for length in lengths["response_logprobs"]]
    return frame.with_columns(
        pl.concat_str("trajectory_id", pl.lit(f"-copy{number:04d}")),
        *drawn,
        pl.Series("response_logprobs", logprobs, pl.List(pl.Float32)),
    )


def timed(function: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    """Inflate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        source = next(iter(find_runs(arguments.run).values()))
        run = inflate(source, arguments.megabytes, Path(folder))
        files = sorted(run.glob(f"evaluations/*/{TURNS_FILE}"))
        size = sum(file.stat().st_size for file in files) / MEGABYTES
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        print(
            f"{size:.0f} MB in {len(files)} batches, {rows:,} turns; pyarrow {pa.__version__}, polars {pl.__version__}"
        )
        raw = min(timed(lambda: [pl.read_parquet(file, hive_partitioning=False) for file in files]) for _ in range(3))
        print(f"all columns read by Polars: {raw:.2f} s")
        _measure(run, raw)


def _measure(run: Path, raw: float) -> None:
    found = find_runs(run)
    shown = found[run.name]
    assert shown.newest is not None
    newest, last = shown.newest, episodes.episodes_of([shown.newest])["trajectory_id"][-1]
    site = pages.Site()
    drawn: dict[str, Callable[[], object]] = {
        "runs": lambda: pages.runs_page(site, find_runs(run.parent), []),
        "run, with its grid": lambda: pages.run_page(site, shown, {}),
        "answers of all policies": lambda: pages.answers_page(site, shown, {}, [run.name]),
        "answers with a text": lambda: pages.answers_page(site, shown, {"text": "tl.load"}, [run.name]),
        "one answer": lambda: pages.answer_page(site, shown, newest, last),
        "two policies": lambda: pages.compare_page(site, found, {}),
    }
    print(f"{'page':<26} first s   again s   first / raw")
    for name, draw in drawn.items():
        episodes.forget()
        first, again = timed(draw), timed(draw)
        print(f"{name:<26} {first:7.2f}   {again:7.2f}   {first / raw:11.2f}")


if __name__ == "__main__":
    main()
