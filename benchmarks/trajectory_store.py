"""The trajectory store against one JSON file per turn and a Hugging Face data set: rows per second, bytes per turn.

    python benchmarks/trajectory_store.py [--turns 20000] [--flat 1000000] [--work FOLDER]

All three stores hold the same synthetic turns (lengths as in the demo) and are measured in one process, one after the
other. A scan computes mean reward and share of correct kernels by turn index. `--flat N` also writes N turns in
partitions, scans them, and prints the growth of memory from the first tenth to the last.
"""

import argparse
import json
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from peers import require_peers
from polars.testing import assert_frame_equal

from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.trajectories.derived import export_huggingface
from tasks.trajectories.reader import polars_schema
from tasks.trajectories.schema import TURNS_SCHEMA, Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

TURNS_EACH = 2
GROUP = 8
PARTITION = 10_000
_KERNEL = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(x, y, n):\n" + 12 * (
    "    value = tl.load(x + place, mask=place < n, other=0.0)\n"
)


def trajectories(turns: int, iteration: int, seed: int = 0) -> list[Trajectory]:
    """Return synthetic trajectories of two turns, `turns` turns in total."""
    random = np.random.default_rng((seed, iteration))
    return [_trajectory(number, iteration, random) for number in range(turns // TURNS_EACH)]


def _trajectory(number: int, iteration: int, random: np.random.Generator) -> Trajectory:
    made: list[Turn] = []
    for index in range(TURNS_EACH):
        prompt = tuple(random.integers(0, 2048, 120 + 160 * index).tolist())
        response = tuple(random.integers(0, 2048, int(random.integers(40, 120))).tolist())
        correct = bool(random.random() < 0.6)
        speedup = float(random.uniform(0.5, 3)) if correct else None
        verdict = Verdict(
            status=Status.CORRECT if correct else Status.INCORRECT,
            compiled=True,
            correct=correct,
            speedup=speedup,
            candidate_ms=0.02,
            reference_ms=0.04,
            timing_source=TimingSource.ROOFLINE,
            error_message=None if correct else "output 0 differs at [17, 3]: expected 0.7311, got 0.5000",
        )
        source = f"{_KERNEL}# {number} {index} {random.integers(1 << 60)}\n"
        made.append(
            Turn(
                turn_index=index,
                role=SOLVER,
                prompt_token_ids=prompt,
                response_token_ids=response,
                response_logprobs=tuple((-random.exponential(0.3, len(response))).astype(np.float32).tolist()),
                prompt_extends_previous=True,
                finish_reason="stop",
                response_text=f"```python\n{source}```",
                kernel_source=source,
                verdict=verdict,
                reward=0.3 + min(max((speedup or 0) - 1, 0), 2) if correct else 0.1,
                generation_s=0.4,
                evaluation_s=0.1,
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
            )
        )
    return Trajectory(
        run_id="benchmark",
        iteration=iteration,
        policy_digest="0123456789abcdef",
        problem_id=f"problem-{number // GROUP:06d}",
        problem_digest="0123456789abcdef",
        split="train",
        level=1,
        group_id=f"{number // GROUP:06d}",
        trajectory_id=f"train-{iteration:04d}-{number:07d}",
        sample_index=number % GROUP,
        turns=tuple(made),
        termination=Termination.TURN_LIMIT,
    )


def scan_parquet(folders: list[Path]) -> pl.DataFrame:
    """Scan our tables."""
    files = [folder / "turns.parquet" for folder in folders]
    frame = pl.scan_parquet(files, schema=polars_schema(TURNS_SCHEMA), hive_partitioning=False)
    return _answer(frame).collect()


def scan_json(folder: Path) -> pl.DataFrame:
    """Scan one JSON file per turn."""
    rows: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.json")):
        row = json.loads(file.read_text(encoding="utf-8"))
        verdict = {"correct": row["verdict"]["correct"]}
        rows.append({"turn_index": row["turn_index"], "reward": row["reward"], "verdict": verdict})
    return _answer(pl.DataFrame(rows).lazy()).collect()


def scan_huggingface(folder: Path, cache: Path) -> pl.DataFrame:
    """Scan with `datasets`, as its users do: Arrow files, only the needed columns."""
    import datasets

    loaded: Any = datasets.load_dataset(str(folder), "turns", split="train", cache_dir=str(cache))
    table = loaded.select_columns(["turn_index", "reward", "verdict"]).with_format("arrow")[:]
    return _answer(pl.from_arrow(table).lazy()).collect()  # pyright: ignore[reportAttributeAccessIssue]


def _answer(frame: pl.LazyFrame) -> pl.LazyFrame:
    correct = pl.col("verdict").struct.field("correct").cast(pl.Float64)
    return frame.group_by("turn_index").agg(pl.col("reward").mean(), correct.mean().alias("correct")).sort("turn_index")


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    began = time.perf_counter()
    made = function()
    return time.perf_counter() - began, made


def best_scan(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the shortest of three times (files are in the page cache), and the result."""
    found = [timed(function) for _ in range(3)]
    return min(seconds for seconds, _ in found), found[-1][1]


def bytes_of(folder: Path, pattern: str = "*") -> int:
    """Return the bytes on disk, in whole blocks."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob(pattern) if file.is_file())


def compare(turns: int, work: Path) -> None:
    """Print the figures of the three stores."""
    parts = [trajectories(min(PARTITION, turns), number) for number in range(max(1, turns // PARTITION))]
    count = sum(len(trajectory.turns) for part in parts for trajectory in part)
    folders = [work / "store" / f"iteration={number}" for number in range(len(parts))]

    def write_ours() -> None:
        for part, folder in zip(parts, folders, strict=True):
            write_trajectories(part, 0.4, folder)

    def write_json() -> None:
        (work / "json").mkdir()
        tables = (pq.read_table(folder / "turns.parquet") for folder in folders)
        for number, row in enumerate(row for table in tables for row in table.to_pylist()):
            (work / "json" / f"turn_{number:07d}.json").write_text(json.dumps(row, default=str), encoding="utf-8")

    wrote, _ = timed(write_ours)
    wrote_json, _ = timed(write_json)
    wrote_hub, _ = timed(lambda: export_huggingface(folders, work / "hub"))
    scanned, ours = best_scan(lambda: scan_parquet(folders))
    scanned_json, theirs = timed(lambda: scan_json(work / "json"))
    scan_huggingface(work / "hub", work / "cache")  # converts to Arrow once; not counted
    scanned_hub, hub = best_scan(lambda: scan_huggingface(work / "hub", work / "cache"))
    for other in (theirs, hub):
        assert_frame_equal(ours, other, check_dtypes=False)
    measured = {
        "two Parquet tables (ours)": (wrote, scanned, bytes_of(work / "store", "turns.parquet")),
        "a JSON file a turn": (wrote_json, scanned_json, bytes_of(work / "json")),
        "Hugging Face datasets": (wrote_hub, scanned_hub, bytes_of(work / "cache", "*.arrow")),
    }
    print(f"{count:,} turns (scan: best of three but for JSON; the page cache is warm)")
    print(f"{'':28}  written rows/s  scanned rows/s  bytes a turn  scan, ours  size, ours")
    _, fastest, smallest = measured["two Parquet tables (ours)"]
    for name, (writing, scanning, size) in measured.items():
        rates = f"{count / writing:>16,.0f}{count / scanning:>16,.0f}{size / count:>14,.0f}"
        print(f"{name:28}{rates}{scanning / fastest:>11.1f}×{size / smallest:>11.1f}×")
    print("(the writing of ours includes returns; that of the others starts from ours, read back)")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stay_flat(turns: int, work: Path) -> None:
    """Write and scan `turns` turns; print the peak memory after the first tenth, the last, and the scan."""
    partitions = turns // PARTITION
    folders = [work / "flat" / f"iteration={number}" for number in range(partitions)]
    peaks: list[float] = []
    part = trajectories(PARTITION, 0)
    began = time.perf_counter()
    for folder in folders:
        write_trajectories(part, 0.4, folder)
        peaks.append(peak_mib())
    wrote = time.perf_counter() - began
    scanned, _ = timed(lambda: scan_parquet(folders))
    total = partitions * PARTITION
    print(
        f"{total:,} turns in {partitions} partitions: {total / wrote:,.0f} rows/s written, "
        f"{total / scanned:,.0f} scanned; peak memory {peaks[partitions // 10]:,.0f} MiB after the first tenth, "
        f"{peaks[-1]:,.0f} after the last, {peak_mib():,.0f} after the scan"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--flat", type=int, default=0)
    parser.add_argument("--work", type=Path, default=None, help="folder for the files; a temporary one otherwise")
    arguments = parser.parse_args()
    if arguments.turns:
        require_peers("datasets")
    work = Path(tempfile.mkdtemp(prefix="trajectory-store-", dir=arguments.work))
    try:
        if arguments.turns:
            compare(arguments.turns, work)
        if arguments.flat:
            stay_flat(arguments.flat, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
