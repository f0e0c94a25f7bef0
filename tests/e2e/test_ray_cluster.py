"""The loop on three Ray nodes, two of which are killed: one in the middle of a rollout, its successor's in the middle of an update.

Asks that the run completes, and that no trajectory is lost or there twice.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

CONFIG = Path("deployments/configs/test.yaml").resolve()
PROBLEMS, SAMPLES = 8, 16
SMALL = [
    "iterations=1", "control=false", "problems.train=24", "problems.heldout=4", "sft.steps=40", "sft.data.compositions=24", "rollout.episode.reward=kernelbench - 0.2*length",
    "sft.warmup_steps=5", f"rollout.problems_per_iteration={PROBLEMS}", f"rollout.samples_per_problem={SAMPLES}",
    "rollout.batch_size=16", "evaluation.samples_per_problem=1", "evaluation.pass_at=[1]", "update.optimizer_steps=8", "stages.backoff_s=1",
    "ray.worker_resource=worker", "update.threads_per_rank=1", "rollout.threads=1",
]  # fmt: skip
RESOURCES = {"worker": 1000}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    import ray
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        started.add_node(num_cpus=1, resources=RESOURCES, object_store_memory=100 * 2**20)
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()


def wait_for(condition: Callable[[], Any], driver: subprocess.Popen[bytes], log: Path, timeout_s: float = 900) -> Any:
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert driver.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.02)


def node_of(cluster: Any, actor_class: str) -> Any:
    """Return the cluster's node that the living actor of this class runs on."""
    from ray._private.state import state

    for actor in state.actor_table(None).values():
        if actor["State"] == "ALIVE" and actor["ActorClassName"] == actor_class:
            return next(node for node in cluster.list_all_nodes() if node.node_id == actor["Address"]["NodeID"])
    return None


def test_a_node_that_dies_costs_no_trajectory(cluster: Any, tmp_path: Path):
    runs, log = tmp_path / "runs", tmp_path / "log.txt"
    settings = [*SMALL, f"runs_dir={runs}", f"ray.address={cluster.address}"]
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    arguments = [sys.executable, "-m", "flows.cli.main", "train", "-c", str(CONFIG)]
    arguments += [part for setting in settings for part in ("-s", setting)]
    with log.open("wb") as out:
        driver = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        for label, actor_class in (("rollout 0", "RolloutWorker"), ("update 0", "Rank")):
            begun = re.compile(rf"^  {label}(, \d+% of the run)? …$", re.MULTILINE)
            wait_for(lambda begun=begun: begun.search(log.read_text()), driver, log)
            node = wait_for(lambda kind=actor_class: node_of(cluster, kind), driver, log)
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1, resources=RESOURCES, object_store_memory=100 * 2**20)
        assert driver.wait(timeout=900) == 0, log.read_text()[-3000:]
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    told = (runs / "latest" / "log.txt").read_text()
    assert "Retry 1/" in told
    turns = pl.read_parquet(runs / "latest" / "trajectories" / "iteration=0" / "turns.parquet")
    trajectories = pl.read_parquet(runs / "latest" / "trajectories" / "iteration=0" / "trajectories.parquet")
    assert trajectories.height == PROBLEMS * SAMPLES
    assert trajectories["trajectory_id"].n_unique() == PROBLEMS * SAMPLES
    assert set(turns["trajectory_id"]) == set(trajectories["trajectory_id"])
    assert turns.select("trajectory_id", "turn_index").is_duplicated().sum() == 0
