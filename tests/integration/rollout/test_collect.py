"""The rollout stage on Ray: progress, warm reuse, errors that keep their kind, and what a killed one leaves."""

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError, InputError
from tasks.cluster.workers import _workers, stop_worker  # pyright: ignore[reportPrivateUsage]
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.rollout.collect import collect_trajectories
from tasks.rollout.config import CurriculumConfig, EpisodeConfig, RolloutConfig, SamplingConfig
from tasks.rollout.curriculum import CurriculumState, recorded_state, state_for
from tasks.rollout.logs import TURN_LINES
from tasks.rollout.process import WORKER
from tasks.rollout.worker import RolloutRequest
from tasks.trajectories.reader import read_trajectories, read_turns

pytestmark = pytest.mark.long

CONFIG = RolloutConfig(
    problems_per_iteration=4,
    samples_per_problem=4,
    batch_size=16,
    sampling=SamplingConfig(max_new_tokens=64),
    threads=1,
    episode=EpisodeConfig(prompt="source", feedback="brief"),
)


@pytest.fixture(scope="module", autouse=True)
def cluster(ray_local: None) -> Iterator[None]:
    yield
    stop_worker(WORKER)


class Seen:
    """Records progress."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, dict[str, float]]] = []

    def __call__(self, done: int, total: int, **figures: float) -> None:
        self.calls.append((done, total, figures))


def collect(policy: Any, problems: Any, destination: Path, config: RolloutConfig = CONFIG, **changes: Any) -> Any:
    progress = changes.pop("progress", Seen())
    arguments: dict[str, Any] = {
        "split": "train", "judge": JudgeConfig(workers=1, compile="never", trials=1), "run_id": "run", "iteration": 1,
        "seed": 0,
    } | changes  # fmt: skip
    request = RolloutRequest(policy=policy, problems=problems, config=config, destination=destination, **arguments)
    return collect_trajectories(request, progress)


def worker_pid() -> int:
    import ray

    return int(ray.get(_workers[WORKER].ping.remote()))


def test_progress_and_result(policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path) -> None:
    seen = Seen()
    reference = collect(policy, problem_set, destination, progress=seen)
    assert isinstance(reference, TrajectoryBatchRef)
    assert reference.trajectories == 16 == len(read_trajectories(reference))
    done, total, figures = seen.calls[-1]
    assert (done, total) == (16, 16)
    assert figures["tokens_per_s"] > 0
    assert {"turns", "judging", "correct"} <= set(figures)
    assert [call[0] for call in seen.calls] == sorted(call[0] for call in seen.calls)


def test_held_out_takes_every_problem_in_a_warm_process(
    policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path
) -> None:
    collect(policy, problem_set, destination.with_name("warm-up"))
    worker = _workers[WORKER]
    reference = collect(policy, problem_set, destination, split="heldout")
    assert reference.trajectories == problem_set.heldout * 4
    assert set(read_trajectories(reference)["split"]) == {"heldout"}
    assert _workers[WORKER] is worker


def test_a_kernel_that_an_earlier_rollout_had_judged_is_not_judged_again(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path
) -> None:
    """Held-out answers are sampled, then greedy: every judgement draws seeds, whose commitment tells two apart."""

    def commitments(name: str, samples: int) -> dict[tuple[str, str], set[str]]:
        sampling = CONFIG.sampling.model_copy(update={"temperature": 0.0})
        config = CONFIG.model_copy(update={"samples_per_problem": samples, "sampling": sampling})
        batch = collect(policy, problem_set, tmp_path / name, config, split="heldout")
        found: dict[tuple[str, str], set[str]] = {}
        for turn in read_turns(batch).iter_rows(named=True):
            if turn["kernel_source"] is not None:
                drawn = found.setdefault((turn["problem_id"], turn["kernel_source"]), set())
                drawn.add(turn["verdict"]["seed_commitment"])
        return found

    first, second = commitments("first", samples=2), commitments("second", samples=1)
    assert second
    assert {key: first[key] for key in second if key in first} == second
    assert all(len(drawn) == 1 and None not in drawn for drawn in first.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episode": CONFIG.episode.model_copy(update={"task": "nothing"})}, "rollout.episode.task"),
        ({"episode": CONFIG.episode.model_copy(update={"reward": "nothing"})}, "kernelbench"),
        ({"sampling": SamplingConfig(max_new_tokens=500)}, "max_new_tokens"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        collect(policy, problem_set, destination, CONFIG.model_copy(update=changes))
    assert not destination.exists()


def test_a_policy_that_is_none_is_named(problem_set: ProblemSetRef, destination: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="empty"):
        collect(CheckpointRef(uri=str(empty), digest="none"), problem_set, destination)


def test_a_rollout_that_the_judge_could_not_judge_has_failed(
    policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path
) -> None:
    hopeless = CONFIG.model_copy(update={"judge_patience_s": 1e-4})
    with pytest.raises(InfrastructureError, match=r"faults of the machine ended \d+ of 16 episodes, .* no verdict in"):
        collect(policy, problem_set, destination, hopeless)
    assert not destination.exists()


def test_a_killed_process_is_an_infrastructure_error_and_the_repeat_is_whole(
    policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path
) -> None:
    collect(policy, problem_set, destination.with_name("warm-up"))
    pid = worker_pid()
    long = CONFIG.model_copy(update={"samples_per_problem": 64})
    killer = threading.Timer(0.3, lambda: os.kill(pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(InfrastructureError):
        collect(policy, problem_set, destination, long)
    killer.join()
    assert not destination.exists()
    reference = collect(policy, problem_set, destination)
    assert reference.trajectories == 16
    assert [path.name for path in destination.parent.iterdir() if path.name.startswith(".partial")] == []


def test_turns_are_told_and_written_where_asked_for(
    policy: CheckpointRef,
    problem_set: ProblemSetRef,
    destination: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = tmp_path / "logs"
    config = CONFIG.model_copy(
        update={"trajectory_logs": str(logs), "sampling": SamplingConfig(max_new_tokens=64, top_k=50)}
    )
    with caplog.at_level(logging.INFO, TURN_LINES):
        reference = collect(policy, problem_set, destination, config)
    told = [record.getMessage() for record in caplog.records if record.name == TURN_LINES]
    assert len([line for line in told if line.startswith("[Turn ")]) == reference.turns
    assert len([line for line in told if line.startswith("=== Final Trajectory Summary")]) == reference.trajectories
    assert any("off the policy" in record.getMessage() for record in caplog.records), "warnings come along"
    assert len(list(logs.glob("turn_scale_*.json"))) == reference.turns
    files = [json.loads(file.read_text(encoding="utf-8")) for file in logs.glob("trajectory_*.json")]
    stored = {row["trajectory_id"]: row for row in read_trajectories(reference).rows(named=True)}
    assert {file["extra_info"]["trajectory_id"] for file in files} == set(stored)
    for file in files:
        row = stored[file["extra_info"]["trajectory_id"]]
        assert (file["aggregated_return"], file["num_turns"]) == (row["return"], row["turns"])
        assert file["messages"][-1]["role"] == "assistant"
    # Not asked for again: silent.
    caplog.clear()
    collect(policy, problem_set, destination.with_name("silent"))
    assert not [record for record in caplog.records if record.name == TURN_LINES]
    assert len(list(logs.iterdir())) == reference.turns + reference.trajectories


def test_a_curriculum_limits_training_and_is_in_the_manifest(
    policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path
) -> None:
    config = CONFIG.model_copy(update={"curriculum": CurriculumConfig(enabled=True, success_rate=0.0, iterations=1)})
    state = state_for(config, problem_set, None)
    assert state == CurriculumState(turns=1, level=1)
    first = collect(policy, problem_set, destination, config, curriculum=state)
    assert set(read_trajectories(first)["turns"]) == {1}
    assert recorded_state(first) == state
    risen = state_for(config, problem_set, first)
    assert risen == CurriculumState(turns=2, level=1)
    second = collect(policy, problem_set, destination.with_name("second"), config, curriculum=risen, iteration=2)
    assert set(read_trajectories(second)["turns"]) <= {1, 2}
    assert recorded_state(second) == risen
