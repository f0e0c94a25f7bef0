"""Cost of orchestration: Prefect, Ray, checks and Parquet in a run's iterations; the start of training processes.

    python benchmarks/orchestration.py RUN_FOLDER...                          # finished runs, e.g. runs/latest
    python benchmarks/orchestration.py --launch [--ranks 1 2] [--times 3]     # warm ranks against Ray Train

With run folders it reads the seconds of every stage's computation and those beside it (task engine, cache, artifacts,
Ray's start) from `state.json`, and writes the run's batches again to measure Parquet. The extrapolation stretches an
iteration's work, and Parquet with it, to ten minutes.

With `--launch` it times a program that only imports what an update imports, on our warm ranks and on Ray Train, both on
one local Ray of two CPUs. The decision that follows: docs/decisions/0004.
"""

import argparse
import os
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.run.state import RunState, StageTiming, read_state
from tasks.pipeline.store import read_metadata
from tasks.trajectories.reader import load_trajectories
from tasks.trajectories.writer import write_trajectories

TEN_MINUTES = 600.0
WORK = ("rollout", "update", "heldout_rollout", "evaluation")
CHECKS = ("validate_trajectories", "validate_update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    if options.launch:
        measure_launch(options.ranks, options.times)
    elif not options.runs:
        parser.error("expected RUN_FOLDER... or --launch")
    for trajectories, iterations, tasks in [describe(run_dir) for run_dir in options.runs]:
        if iterations:
            mean = tasks / iterations
            print(f"{trajectories:,} trajectories in {iterations} iterations: {mean:.1f} Prefect tasks per iteration")


def iteration_of(timing: StageTiming) -> int | None:
    """Return the iteration that a stage belongs to; None if it runs before or after the loop."""
    found = re.search(r"(?:rollout|update) (\d+)$", timing.label)
    return int(found[1]) if found and timing.stage in (*WORK[:2], *CHECKS) else None


def parquet_seconds(state: RunState) -> dict[int, float]:
    """Return the seconds to write each iteration's batch twice: raw, and as the validated partition."""
    taken: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for iteration, batch in state.batches.items():
            trajectories = load_trajectories(batch.path)
            gamma = read_metadata(batch.path).get("episode", {}).get("gamma", 0.4)
            began = time.perf_counter()
            write_trajectories(trajectories, gamma, Path(folder) / str(iteration))
            taken[iteration] = 2 * (time.perf_counter() - began)
    return taken


def describe(run_dir: Path) -> tuple[int, int, int]:
    """Print one run; return its trajectories, iterations and tasks."""
    state = read_state(run_dir)
    parquet = parquet_seconds(state)
    work, checks, beside = (defaultdict[int, float](float) for _ in range(3))
    tasks = Counter[int]()
    for timing in state.timings.values():
        iteration = iteration_of(timing)
        if iteration is not None:
            (checks if timing.stage in CHECKS else work)[iteration] += timing.seconds
            beside[iteration] += timing.overhead_s
            tasks[iteration] += 1
    print(run_dir.resolve().name)
    print("  iteration  tasks   work s  prefect s  checks s  parquet s   share  at 10 min")
    shares: list[float] = []
    stretched: list[float] = []
    for number in sorted(set(work) & set(parquet)):
        own = work[number] - parquet[number]
        fixed = beside[number] + checks[number]
        shares.append((fixed + parquet[number]) / (own + fixed + parquet[number]))
        grown = parquet[number] * TEN_MINUTES / max(own, 1e-9)
        stretched.append((fixed + grown) / (TEN_MINUTES + fixed + grown))
        print(
            f"{number:>11}{tasks[number]:>7}{own:>9.2f}{beside[number]:>11.3f}{checks[number]:>10.3f}"
            f"{parquet[number]:>11.3f}{shares[-1]:>8.1%}{stretched[-1]:>11.2%}"
        )
    if shares:
        mean, later = sum(shares) / len(shares), sum(stretched) / len(stretched)
        print(f"  mean: {mean:.1%} (aim: at most 5 %); at ten minutes {later:.2%} (aim: at most 2 %)")
    whole = sum(timing.overhead_s for timing in state.timings.values())
    if state.wall_seconds:
        share = whole / state.wall_seconds
        print(f"  whole run: {whole:.1f} s of {state.wall_seconds:.0f} s beside the stages: {share:.1%}")
    return sum(batch.trajectories for batch in state.batches.values()), len(shares), sum(tasks.values())


def measure_launch(rank_counts: list[int], times: int) -> None:
    """Print the seconds until a program has run on our ranks, and on Ray Train."""
    import ray

    from tasks.cluster.workers import stop_workers

    environment = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[1])}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    for ranks in rank_counts:
        print(f"our ranks: {ranks}: {[launch_ranks(ranks) for _ in range(times)]} s", flush=True)
    stop_workers()
    for ranks in rank_counts:
        print(f"Ray Train: {ranks}: {[launch_ray_train(ranks) for _ in range(times)]} s", flush=True)


def import_all() -> None:
    """Import what an update needs."""
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401

    from tasks.update import program  # noqa: F401


def launch_ranks(count: int) -> float:
    """Return the seconds until a program has run on our ranks; the second time they are warm."""
    from tasks.training.config import EngineConfig
    from tasks.training.program import RankContext
    from tasks.training.ranks import run_on_ranks

    def program(rank: RankContext, job: None) -> Iterator[int]:
        import_all()
        yield os.getpid()

    began = time.perf_counter()
    list(run_on_ranks(EngineConfig(ranks=count, threads_per_rank=1), program, None))
    return round(time.perf_counter() - began, 2)


def launch_ray_train(count: int) -> float:
    """Return the seconds of one `fit` of a TorchTrainer, whose workers end with it."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    def loop(settings: dict[str, Any]) -> None:
        import_all()
        from tasks.training.deepspeed_config import import_deepspeed

        import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=count, resources_per_worker={"CPU": 0.5}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(storage_path=folder, name="launch"),
        ).fit()
    return round(time.perf_counter() - began, 2)


if __name__ == "__main__":
    main()
