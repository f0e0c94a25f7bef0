"""What it costs to start training processes: our warm ranks against Ray Train, for a program that only imports what an update imports.

    python benchmarks/launch.py [--ranks 1 2] [--times 3]

Both run on one local Ray of two CPUs; `loop` and `program` do the same. The decision that follows: docs/decisions/0004.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from tasks.cluster.workers import stop_workers
from tasks.training.program import RankContext
from tasks.training.ranks import run_on_ranks
from tasks.update.config import UpdateConfig


def main() -> None:
    """Time both, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    environment = {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[1])}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    for ranks in given.ranks:
        print(f"our ranks: {ranks}: {[ours(ranks) for _ in range(given.times)]} s", flush=True)
    stop_workers()
    for ranks in given.ranks:
        print(f"Ray Train: {ranks}: {[ray_train(ranks) for _ in range(given.times)]} s", flush=True)


def import_all() -> None:
    """Import what an update needs."""
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401

    from tasks.update import program  # noqa: F401


def ours(ranks: int) -> float:
    """Seconds until a program has run; the second time the ranks are warm."""

    def program(rank: RankContext, job: None) -> Iterator[int]:
        import_all()
        yield os.getpid()

    began = time.perf_counter()
    list(run_on_ranks(UpdateConfig(ranks=ranks, threads_per_rank=1), program, None))
    return round(time.perf_counter() - began, 2)


def ray_train(ranks: int) -> float:
    """The same with a TorchTrainer, whose workers live as long as one `fit`."""
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
            scaling_config=ScalingConfig(num_workers=ranks, resources_per_worker={"CPU": 0.5}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(storage_path=folder, name="launch"),
        ).fit()
    return round(time.perf_counter() - began, 2)


if __name__ == "__main__":
    main()
