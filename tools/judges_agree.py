"""Agreement of the judge without a GPU with the one on a GPU, on answers that a policy wrote.

    python tools/judges_agree.py PROBLEMS.parquet TURNS.parquet… [--most N] [--workers 2] [--kept FOLDER] [--out FILE]

TURNS are a run's batches (`turns.parquet`) that were judged on a GPU, PROBLEMS its set (`problems.parquet`). Each
distinct pair of problem and kernel is judged again on the CPU. It prints statuses, GPU's by CPU's; each answer that one
judge calls correct and the other does not; and how estimated speeds order pairs of right kernels of one problem whose
measured times differ by 10 % or more. `--kept` keeps verdicts: the same command continues.
"""

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from kernels_eval import Judge, JudgeConfig, Problem, Verdict
from tasks.trajectories.reader import read_turns_file

_APART = math.log(1.1)
"""Logarithm of the ratio of two measured times that differ."""
_SAME = math.log(1.01)
"""Logarithm of the ratio of two estimates that say nothing of which is faster."""


class Pair(NamedTuple):
    """An answer and both verdicts."""

    problem_id: str
    status: str
    speedup: float | None
    verdict: Verdict


def answers_of(turns: list[Path], sources: dict[str, str]) -> list[dict[str, Any]]:
    """Return the first turn of each distinct pair of problem and kernel that a GPU judged."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in turns:
        rows = read_turns_file(path).select("problem_id", "kernel_source", "verdict")
        for row in rows.filter(pl.col("kernel_source") != "").iter_rows(named=True):
            if row["problem_id"] in sources and row["verdict"]["status"] != "infrastructure_error":
                found.setdefault((row["problem_id"], row["kernel_source"]), row)
    return list(found.values())


def judged(answers: list[dict[str, Any]], sources: dict[str, str], workers: int, kept: str | None) -> Iterator[Pair]:
    """Yield the answers with their verdicts of the CPU."""
    config = JudgeConfig(device="cpu", workers=workers, full_size_share=1.0, cache_dir=kept)
    items = [
        (Problem(problem_id=row["problem_id"], source=sources[row["problem_id"]]), row["kernel_source"])
        for row in answers
    ]
    with Judge(config) as judge:
        for row, verdict in zip(answers, judge.evaluate_many(items), strict=True):
            yield Pair(row["problem_id"], row["verdict"]["status"], row["verdict"]["speedup"], verdict)


def order_of(pairs: list[Pair]) -> Counter[str]:
    """Count the pairs of right kernels of one problem by whether the estimate orders them as measured."""
    right: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for pair in pairs:
        if pair.status == "correct" and pair.speedup and pair.verdict.correct and pair.verdict.speedup:
            right[pair.problem_id].append((math.log(pair.speedup), math.log(pair.verdict.speedup)))
    orders: Counter[str] = Counter()
    for kernels in right.values():
        for (measured, estimate), (other_measured, other_estimate) in combinations(kernels, 2):
            if abs(measured - other_measured) >= _APART:
                apart = (estimate - other_estimate) * math.copysign(1.0, measured - other_measured)
                orders["as measured" if apart > _SAME else "the other way" if apart < -_SAME else "equal"] += 1
    return orders


def main() -> None:
    """Judge, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path)
    parser.add_argument("turns", type=Path, nargs="+")
    parser.add_argument("--most", type=int, help="of the distinct answers, the first so many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kept", help="folder for the verdicts")
    parser.add_argument("--out", type=Path, help="JSON with the counts")
    arguments = parser.parse_args()
    sources: dict[str, str] = dict(pl.read_parquet(arguments.problems).select("problem_id", "source").iter_rows())
    answers = answers_of(arguments.turns, sources)[: arguments.most]
    pairs = list(judged(answers, sources, arguments.workers, arguments.kept))
    statuses = Counter((pair.status, pair.verdict.status.value) for pair in pairs)
    for (measured, estimated), number in statuses.most_common():
        print(f"{number:6}  {measured} on the GPU, {estimated} without one")
    for pair in pairs:
        if (pair.status == "correct") != pair.verdict.correct:
            print(f"{pair.problem_id}: {pair.status} on the GPU; without one: {pair.verdict.error_message}")
    orders = order_of(pairs)
    print(f"pairs of right kernels whose measured times differ by 10 %, by estimate: {dict(orders)}")
    if arguments.out:
        rows = [[*both, number] for both, number in statuses.most_common()]
        arguments.out.write_text(json.dumps({"statuses": rows, "orders": orders}, indent=1))


if __name__ == "__main__":
    main()
