"""What orchestration costs: the share of a run's iterations that is Prefect, Ray, validation and Parquet rather than work.

    python benchmarks/orchestration.py RUN_FOLDER...        # finished runs, e.g. runs/latest

Read from each run's own records (`state.json`): the seconds of every stage's computation, and those beside it (task engine, cache key
and record, artifacts, Ray's start). Validation is the computation of the checks. Parquet is measured here: the run's batches are
read and written again with the writer that made them. The extrapolation keeps the seconds of orchestration and validation of an
iteration and stretches its work to ten minutes; Parquet grows with the work.

With several runs of different sizes it also shows that the number of Prefect tasks does not depend on the number of trajectories.
"""

import argparse
import re
import tempfile
import time
from pathlib import Path

from flows.run.state import RunState, StageTiming, read_state
from tasks.pipeline.store import read_manifest
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.writer import write_trajectories

TEN_MINUTES = 600.0
WORK = ("rollout", "update", "heldout_rollout", "evaluation")
CHECKS = ("validate_trajectories", "validate_update")
AIMS = {"demo": 0.05, "ten minutes": 0.02}


def iteration_of(timing: StageTiming) -> int | None:
    """Return the iteration that a stage belongs to; None where it comes before the loop, or after it."""
    found = re.search(r"(?:rollout|update) (\d+)$", timing.label)
    return int(found[1]) if found and timing.stage in (*WORK[:2], *CHECKS) else None


def parquet_seconds(state: RunState) -> dict[int, float]:
    """Return how long it takes to write each iteration's batch again."""
    taken: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for iteration, batch in state.batches.items():
            trajectories = load_trajectories(batch.path)
            gamma = (read_manifest(batch.path) or {}).get("metadata", {}).get("episode", {}).get("gamma", 0.4)
            began = time.perf_counter()
            write_trajectories(trajectories, gamma, Path(folder) / str(iteration))
            # Once raw, once as the validated partition.
            taken[iteration] = 2 * (time.perf_counter() - began)
    return taken


def describe(run_dir: Path) -> tuple[int, int, int]:
    """Print one run; return its trajectories, iterations and tasks."""
    state = read_state(run_dir)
    parquet = parquet_seconds(state)
    work: dict[int, float] = {}
    checks: dict[int, float] = {}
    beside: dict[int, float] = {}
    tasks: dict[int, int] = {}
    for timing in state.timings.values():
        iteration = iteration_of(timing)
        if iteration is None:
            continue
        part = checks if timing.stage in CHECKS else work
        part[iteration] = part.get(iteration, 0.0) + timing.seconds
        beside[iteration] = beside.get(iteration, 0.0) + timing.overhead_s
        tasks[iteration] = tasks.get(iteration, 0) + 1
    print(f"{run_dir.resolve().name}")
    print(
        f"  {'iteration':>9}{'tasks':>7}{'work s':>9}{'prefect s':>11}{'checks s':>10}{'parquet s':>11}{'share':>8}{'at 10 min':>11}"
    )
    shares: list[float] = []
    stretched: list[float] = []
    for number in sorted(set(work) & set(parquet)):
        own = work[number] - parquet[number]
        fixed = beside[number] + checks.get(number, 0.0)
        shares.append((fixed + parquet[number]) / (own + fixed + parquet[number]))
        grown = parquet[number] * TEN_MINUTES / max(own, 1e-9)
        stretched.append((fixed + grown) / (TEN_MINUTES + fixed + grown))
        print(
            f"  {number:>9}{tasks[number]:>7}{own:>9.2f}{beside[number]:>11.3f}{checks.get(number, 0.0):>10.3f}"
            f"{parquet[number]:>11.3f}{shares[-1]:>8.1%}{stretched[-1]:>11.2%}"
        )
    if shares:
        mean, later = sum(shares) / len(shares), sum(stretched) / len(stretched)
        print(
            f"  mean: {mean:.1%} (aim: at most {AIMS['demo']:.0%}); at ten minutes {later:.2%} (aim: at most {AIMS['ten minutes']:.0%})"
        )
    whole = sum(timing.overhead_s for timing in state.timings.values())
    if state.wall_seconds:
        print(
            f"  whole run: {whole:.1f} s of {state.wall_seconds:.0f} s beside the stages: {whole / state.wall_seconds:.1%}"
        )
    trajectories = sum(batch.trajectories for batch in state.batches.values())
    return trajectories, len(shares), sum(tasks.values())


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    found = [describe(run_dir) for run_dir in parser.parse_args().runs]
    for trajectories, iterations, tasks in found:
        if iterations:
            print(
                f"{trajectories:,} trajectories in {iterations} iterations: {tasks / iterations:.1f} Prefect tasks an iteration"
            )


if __name__ == "__main__":
    main()
