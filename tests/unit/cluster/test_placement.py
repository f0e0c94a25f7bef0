"""Reservations on each node, and when nodes can never hold it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.capacity.planner import needs_of
from flows.checks.preflight import check_before_start
from flows.settings.configuration import check_configuration, load_configuration
from kernels_eval.errors import InputError
from tasks.cluster.placement import Bundle, Kind, Need, bundle_without_node, bundles_for, whole_gpus

GPU_NODE, CPU_NODE = {"GPU": 8.0, "CPU": 96.0}, {"CPU": 8.0}


@pytest.mark.parametrize(
    ("shares", "gpus"),
    [((), 0), ((0.0,), 0), ((0.9,) * 4, 4), ((0.9, 0.9, 0.1), 2), ((0.5,) * 3, 2), ((2.0, 1.5), 4), ((0.2,) * 5, 1)],
)
def test_shares_of_a_gpu_are_put_together_where_they_fit(shares: tuple[float, ...], gpus: int):
    assert whole_gpus(shares) == gpus


def test_the_kinds_of_a_group_share_a_node():
    needs: dict[Kind, Need] = {"update": Need((0.9,) * 4), "rollout": Need((1.0, 1.0, 0.0)), "judge": Need((0.1,), 2.0)}
    assert bundles_for([["update", "judge"], ["rollout"]], needs, [GPU_NODE, GPU_NODE]) == [
        Bundle(("update", "judge"), {"GPU": 4.0, "CPU": 2.0}),
        Bundle(("rollout",), {"GPU": 2.0}),
    ]
    (one,) = bundles_for([["update", "rollout", "judge"]], needs, [CPU_NODE, GPU_NODE])
    assert one.resources == {"GPU": 6.0, "CPU": 2.0}


def test_stages_without_gpus_reserve_a_sliver_of_the_nodes_they_may_run_on():
    marked = {**CPU_NODE, "worker": 1000.0}
    bundles = bundles_for([["update"], ["rollout"]], {}, [CPU_NODE, marked, marked], {"worker": 0.001})
    assert [dict(bundle.resources) for bundle in bundles] == [{"CPU": 0.001, "worker": 0.001}] * 2
    with pytest.raises(
        InputError, match=r"found 2 nodes \(8 CPU; 8 CPU, worker\), expected 2, one of them for rollout"
    ):
        bundles_for([["update"], ["rollout"]], {}, [CPU_NODE, marked], {"worker": 0.001})


def test_an_update_too_large_for_a_node_is_dealt_out():
    needs: dict[Kind, Need] = {"update": Need((1.0,) * 12), "rollout": Need((1.0,))}
    bundles = bundles_for([["update"], ["rollout"]], needs, [GPU_NODE] * 3)
    assert [(bundle.kinds, bundle.resources["GPU"]) for bundle in bundles] == [
        (("update",), 6.0),
        (("update",), 6.0),
        (("rollout",), 1.0),
    ]
    with pytest.raises(InputError, match=r"found 2 nodes .* expected 3, one of them for rollout alone \(1 GPU\)"):
        bundles_for([["update"], ["rollout"]], needs, [GPU_NODE] * 2)
    with pytest.raises(InputError, match=r"one of them for update and rollout alone \(13 GPU\)"):
        bundles_for([["update", "rollout"]], needs, [GPU_NODE] * 2)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_it_is_refused_exactly_where_no_assignment_of_nodes_exists(wanted: list[int], nodes: list[int]):
    fits = any(
        all(want <= has for want, has in zip(wanted, chosen, strict=True))
        for chosen in itertools.permutations(nodes, len(wanted))
    )
    bundles = [Bundle(("rollout",), {"GPU": float(want)}) for want in wanted]
    assert (bundle_without_node(bundles, [{"GPU": float(count)} for count in nodes]) is None) is fits


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ([["update"], ["update"]], "each kind in one group only"),
        ([[]], "groups with one kind or more"),
        ([["update"], ["judge"]], "a group for rollout as well"),
        ([["trainer"]], "'update', 'rollout' or 'judge'"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(placement: object, words: str):
    with pytest.raises(InputError, match="ray.placement.*" + words):
        check_configuration({"ray": {"placement": placement}}, "here")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ray": {"placement": [["update"], ["rollout"]]}}, "2 groups want a node each, a local Ray is one node"),
        ({"ray": {"placement": [["update", "rollout", "judge"]]}}, "judge: there are no judge actors"),
        (
            {
                "ray": {"placement": [["rollout", "judge"]], "cpus": 2},
                "rollout": {"judge_actors": {"count": 3, "cpus": 1}},
            },
            r"found 1 node \(2 CPU.*\), expected 1, one of them for rollout and judge alone \(3 CPU\)",
        ),
    ],
)
def test_what_one_machine_cannot_do_is_told_before_a_run(
    settings: dict[str, object], words: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
):
    # Another test may have left a Ray of its own in this process, which a run would use.
    monkeypatch.setattr("flows.services.ray_cluster._is_initialized", lambda: False)
    with pytest.raises(InputError, match="ray.placement: " + words):
        check_before_start(check_configuration({"runs_dir": f"{tmp_path}/runs", **settings}, "here"))


def test_nodes_of_no_cluster_are_refused():
    with pytest.raises(InputError, match=r"ray: found .*, expected an address as well: a local Ray is one node"):
        check_configuration({"ray": {"nodes": 2}}, "here")


def test_the_needs_of_a_checked_in_configuration():
    needs = needs_of(load_configuration("deployments/configs/qwen3-8b-multi-turn.yaml"))
    nodes = [GPU_NODE, GPU_NODE]
    assert [bundle.resources["GPU"] for bundle in bundles_for([["update", "judge"], ["rollout"]], needs, nodes)] == [
        4.0,
        2.0,
    ]
