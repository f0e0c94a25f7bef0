"""Stages that may compute beside the updates, by the places of judge, generation and ranks."""

import re
from typing import Any

import pytest

from flows.capacity.overlap import goes_on_beside_updates, overlap_line, times_beside_ranks
from flows.checks.settings import check_staleness
from flows.settings.configuration import RunConfig, check_configuration, load_configuration
from kernels_eval.errors import InputError


def configured(
    device: str, ranks: float, rollout: dict[str, Any] | None = None, placement: list[list[str]] | None = None
) -> RunConfig:
    return check_configuration(
        {
            "judge": {"device": device},
            "update": {"gpus_per_rank": ranks},
            "rollout": rollout or {},
            "ray": {"placement": placement or []},
        },
        "here",
    )


def judging(gpus: float, **more: Any) -> dict[str, Any]:
    return {"judge_actors": {"count": 1, "gpus": gpus}, **more}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (configured("cpu", 0.9, judging(0.1)), False),
        (configured("cuda", 0, judging(0.1)), False),
        (configured("cuda", 0.9, judging(0.1)), True),
        (configured("cuda", 1, judging(0.1)), False),
        (configured("cuda", 0.9, judging(1)), False),
        (configured("cuda", 1, judging(0)), True),
        (configured("cuda", 0.3, {"gpus": 0.2}), True),
        (configured("cuda", 1, {"gpus": 0.2}), False),
        (configured("cuda", 0.9, judging(0.1), [["update"], ["rollout", "judge"]]), False),
        (configured("cuda", 0.9, judging(0.1), [["update", "judge"], ["rollout"]]), True),
    ],
)
def test_a_judge_times_beside_ranks_where_parts_of_one_gpu_may_be_shared(config: RunConfig, expected: bool):
    assert times_beside_ranks(config) is expected


def test_staleness_is_refused_where_the_judge_would_measure_the_ranks():
    for name in ("one-gpu", "qwen3-8b-multi-turn"):
        config = load_configuration(name, ["rollout.staleness=1"])
        with pytest.raises(InputError, match=re.escape("rollout.staleness: found 1, expected 0 where the judge times")):
            check_staleness(config)
        assert not goes_on_beside_updates(config)
        check_staleness(load_configuration(name, ["rollout.staleness=1", "judge.device=cpu"]))


def test_evaluations_go_on_beside_updates_only_where_both_have_gpus_of_their_own():
    apart = configured("cuda", 1, judging(1, engine="sglang"))
    assert goes_on_beside_updates(apart)
    assert "evaluations go on beside updates" in overlap_line(apart)
    for config in (load_configuration("test"), load_configuration("one-gpu")):
        assert not goes_on_beside_updates(config)
        assert "take turns" in overlap_line(config)
    assert goes_on_beside_updates(load_configuration("test", ["rollout.staleness=1"]))
