"""`ray.placement` on real Ray clusters of several nodes: who lands where, and what is refused before anything waits.

Each cluster is a process's own, so that it meets no other test's Ray: this file, run as a program, is that process.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SMALL_STORE = 80 * 2**20
WORKER = {"worker": 1000}


def configured(address: str, **settings: Any) -> Any:
    from flows.settings.configuration import check_configuration

    ray = {"address": address, "worker_resource": "worker", **settings.pop("ray")}
    return check_configuration({"runs_dir": "/tmp", "ray": ray, **settings}, "here")


def whereabouts(config: Any) -> dict[str, set[str]]:
    """Start the workers of a run as its stages do; return the nodes of each kind."""
    import ray

    from flows.capacity.planner import needs_of
    from flows.services.ray_cluster import RayCluster
    from tasks.cluster.workers import placed, warm_worker

    @ray.remote(num_cpus=0)
    class Somebody:
        def ping(self) -> bool:
            return True

        def node(self) -> str:
            return ray.get_runtime_context().get_node_id()

        def starts(self, kind: str, **options: Any) -> str:
            """Start another one, as the process that generates does, and say where that is."""
            from tasks.cluster.placement import options_in_worker

            self.other = Somebody.options(
                **{"scheduling_strategy": "SPREAD", **options, **options_in_worker(kind)}
            ).remote()
            return ray.get(self.other.node.remote())

    RayCluster(config.ray, needs_of(config)).start()
    update, rollout = config.update, config.rollout
    server_gpus = rollout.sglang.gpus_per_server if rollout.engine == "sglang" else 0
    ranks = [
        warm_worker(f"rank-{number}", Somebody, num_gpus=update.gpus_per_rank, **placed("update", number, update.ranks))
        for number in range(update.ranks)
    ]
    generating = warm_worker("rollout", Somebody, num_gpus=rollout.gpus, **placed("rollout"))
    return {
        "update": set(ray.get([rank.node.remote() for rank in ranks])),
        "rollout": {ray.get(generating.node.remote())},
        "server": {ray.get(generating.starts.remote("rollout", num_gpus=server_gpus))},
        "judge": {ray.get(generating.starts.remote("judge", num_gpus=rollout.judge_actors.gpus))},
    }


def apart_and_together(cluster: Any) -> None:
    """Without GPUs: kinds of one group share a node, those of different groups do not, and none is on the head."""
    import ray

    judged = {"judge_actors": {"count": 1}}
    for placement, shared in (
        ([["update"], ["rollout"], ["judge"]], ()),
        ([["update", "judge"], ["rollout"]], (("update", "judge"),)),
        ([["update", "rollout", "judge"]], (("update", "rollout"), ("rollout", "judge"))),
    ):
        found = whereabouts(configured(cluster.address, ray={"placement": placement}, rollout=judged))
        assert all(len(nodes) == 1 for nodes in found.values()), (placement, found)
        assert found["server"] == found["rollout"]
        nodes = set().union(*found.values())
        assert len(nodes) == len(placement), (placement, found)
        assert all(found[one] == found[other] for one, other in shared), (placement, found)
        assert cluster.head_node.node_id not in nodes
        end_of_run()
    assert ray.is_initialized() is False


def gpus_are_reserved(cluster: Any) -> None:
    """Ranks that no node has room for are dealt out to two; servers and judges find their GPUs in what is reserved."""
    config = configured(
        cluster.address,
        ray={"placement": [["update", "judge"], ["rollout"]]},
        update={"ranks": 2, "gpus_per_rank": 0.9},
        rollout={
            "engine": "sglang",
            "sglang": {"servers": 1, "gpus_per_server": 1},
            "judge_actors": {"count": 1, "gpus": 0.1},
        },
    )
    found = whereabouts(config)
    assert found["update"] == found["judge"]
    assert found["rollout"] == found["server"]
    assert found["update"] != found["rollout"]
    end_of_run()
    found = whereabouts(
        configured(
            cluster.address,
            ray={"placement": [["update"], ["rollout"]]},
            update={"ranks": 4, "gpus_per_rank": 1},
            rollout={"gpus": 1},
        )
    )
    assert len(found["update"]) == 2
    assert not found["update"] & found["rollout"]
    end_of_run()


def refusals(cluster: Any) -> None:
    """Reservations that the nodes can never hold are said in a sentence, and Ray is left as it was."""
    import ray

    from flows.checks.preflight import check_before_start
    from kernels_eval.errors import InputError

    for settings, words in (
        (
            {
                "ray": {"placement": [["update"], ["rollout"], ["judge"]]},
                "rollout": {"judge_actors": {"count": 1, "cpus": 3}},
            },
            r"expected 3, one of them for judge alone \(3 CPU, worker\)",
        ),
        (
            {"ray": {"placement": [["update"], ["rollout"]]}, "update": {"gpus_per_rank": 1}},
            r"expected 2, one of them for update alone \(1 GPU, worker\)",
        ),
    ):
        with pytest.raises(InputError, match=f"found 4 nodes .*{words}"):
            check_before_start(configured(cluster.address, **settings))
        assert not ray.is_initialized()
    check_before_start(configured(cluster.address, ray={"placement": [["update"], ["rollout"]]}))
    assert not ray.is_initialized()


def a_node_that_dies_is_replaced(cluster: Any) -> None:
    """The group moves to a node that is left, and a worker made anew goes with it."""
    import ray

    from flows.capacity.planner import needs_of
    from flows.services.ray_cluster import RayCluster

    config = configured(cluster.address, ray={"placement": [["update"], ["rollout"]]})
    found = whereabouts(config)
    (lost,) = found["rollout"]
    cluster.remove_node(next(node for node in cluster.list_all_nodes() if node.node_id == lost), allow_graceful=False)
    while any(node["Alive"] and node["NodeID"] == lost for node in ray.nodes()):
        time.sleep(0.2)
    RayCluster(config.ray, needs_of(config)).start()  # the next attempt at the stage
    again = whereabouts(config)
    assert again["update"] == found["update"]
    assert again["rollout"] not in (found["rollout"], found["update"])
    end_of_run()
    assert not ray.is_initialized()


def others_hold_the_nodes(cluster: Any) -> None:
    """A reservation waits as long as the settings say, and is made once the others have gone."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    from flows.capacity.planner import needs_of
    from flows.services.ray_cluster import RayCluster
    from kernels_eval.errors import InfrastructureError

    def start(within_s: float) -> None:
        groups = {"placement": [["update"], ["rollout"]], "placement_timeout_s": within_s}
        config = configured(cluster.address, ray=groups, update={"gpus_per_rank": 1}, rollout={"gpus": 1})
        RayCluster(config.ray, needs_of(config)).start()

    ray.init(address=cluster.address, log_to_driver=False)
    others = placement_group([{"GPU": 2}] * 3, strategy="STRICT_SPREAD")
    assert others.wait(200)
    with pytest.raises(InfrastructureError, match=r"no nodes were free for it within 2 s \(ray.placement_timeout_s\)"):
        start(2)
    remove_placement_group(others)
    start(200)
    end_of_run()


def end_of_run() -> None:
    """As RayCluster.stop does for the cluster object that started."""
    import ray

    from tasks.cluster.workers import release, stop_workers

    stop_workers()
    release()
    ray.shutdown()


SCENARIOS: dict[str, tuple[Callable[[Any], None], int]] = {
    scenario.__name__: (scenario, gpus)
    for scenario, gpus in (
        (apart_and_together, 0),
        (gpus_are_reserved, 2),
        (refusals, 0),
        (a_node_that_dies_is_replaced, 0),
        (others_hold_the_nodes, 2),
    )
}
"""By name, with the GPUs that each node says it has."""


@pytest.mark.slow
@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_on_a_cluster(scenario: str):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0"}
    done = subprocess.run(
        [sys.executable, __file__, scenario], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=290
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def main(name: str) -> None:
    """Run one scenario on a cluster of a head and three nodes."""
    from ray.cluster_utils import Cluster

    scenario, gpus = SCENARIOS[name]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=1, num_gpus=gpus, resources=WORKER, object_store_memory=SMALL_STORE)
        scenario(cluster)
    finally:
        end_of_run()
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
