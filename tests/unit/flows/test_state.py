"""A run's memory: what descends from a policy that was replaced is forgotten."""

from pathlib import Path

import pytest

from flows.run.state import ControlState, RunState, read_state, write_state
from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef, EvaluationRef, TrajectoryBatchRef


def policy(version: int, digest: str = "d") -> CheckpointRef:
    return CheckpointRef(uri=f"/store/{version}", digest=f"{digest}{version}", weight_version=version)


def batch(iteration: int) -> TrajectoryBatchRef:
    return TrajectoryBatchRef(uri="/b", digest="b", run_id="r", iteration=iteration, trajectories=1, turns=1)


@pytest.fixture
def state() -> RunState:
    evaluation = EvaluationRef(uri="/e", digest="e", policy_digest="d")
    return RunState(
        policies={version: policy(version) for version in range(4)},
        batches={version: batch(version) for version in range(3)},
        evaluations={0: evaluation, 3: evaluation},
        control=ControlState(steps=5, rl_seconds=10.0, step_seconds=2.0, after=3, evaluation=evaluation),
    )


def test_newest_policy(state: RunState):
    assert state.newest_policy == policy(3)
    assert RunState().newest_policy is None


def test_the_same_policy_again_changes_nothing(state: RunState):
    assert state.with_policy(policy(1)) == state


def test_another_policy_forgets_what_descended_from_the_old_one(state: RunState):
    changed = state.with_policy(policy(1, "other"))
    assert changed.policies == {0: policy(0), 1: policy(1, "other")}
    assert set(changed.batches) == {0}
    assert set(changed.evaluations) == {0}
    assert changed.control is None
    assert state.with_policy(policy(4)).control == state.control


def test_written_and_read_it_is_the_same(state: RunState, tmp_path: Path):
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert read_state(tmp_path / "none") == RunState()


def test_a_broken_file_is_named(tmp_path: Path):
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(InputError, match=r"state\.json"):
        read_state(tmp_path)


def test_the_names_of_stages_are_those_that_are_declared():
    import importlib

    from tasks.pipeline.retries import STAGE_NAMES
    from tasks.pipeline.stage import StageTask

    modules = [importlib.import_module(f"tasks.{name}.task") for name in ("problems", "sft", "rollout", "update")]
    modules += [importlib.import_module(f"tasks.{name}.task") for name in ("validation", "evaluation")]
    declared = {value.name for module in modules for value in vars(module).values() if isinstance(value, StageTask)}
    assert declared == set(STAGE_NAMES)
