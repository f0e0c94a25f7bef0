"""The control: as many SFT steps as fit into RL's seconds, fixed once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from flows import sft_control as control
from flows.run.state import ControlState, RunState, StageTiming
from flows.settings.configuration import RunConfig
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef

PROBLEMS = ProblemSetRef(uri="/p", digest="p", train=1, heldout=1)


class SmallRun(SimpleNamespace):
    """The part of a run that the control reads and notes."""

    def record_control(self, noted: ControlState) -> None:
        self.state = self.state.model_copy(update={"control": noted})


@pytest.fixture
def run(tmp_path: Path) -> SmallRun:
    pl.DataFrame({"seconds": [0.1, 0.3]}).write_parquet(tmp_path / "metrics.parquet")
    sft = CheckpointRef(uri=str(tmp_path), digest="sft")
    seconds = {"sft": 100.0, "rollout": 6.0, "validate_trajectories": 1.0, "update": 2.9, "validate_update": 0.1}
    timings = {
        name: StageTiming(label=name, stage=name, seconds=took, overhead_s=9.0) for name, took in seconds.items()
    }
    state = RunState(
        sft_data=SftDataRef(uri="/s", digest="s", pairs=1, verified=True),
        policies={0: sft, 1: sft.model_copy(update={"weight_version": 1})},
        timings=timings,
    )
    return SmallRun(config=RunConfig(control=True), workspace=None, state=state)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the steps that SFT is asked for, instead of training them."""
    steps: list[int] = []

    def further(workspace: Any, data: Any, model: Any, config: Any, resources: Any, seed: int, initial: Any, **_: Any):
        assert config.epochs is None
        steps.append(config.steps if config.decay_steps is None else config.steps - config.decay_steps)
        return initial or CheckpointRef(uri="/control", digest="control")

    monkeypatch.setattr(control, "fine_tune_further", further)
    monkeypatch.setattr(
        control,
        "heldout_evaluations",
        lambda *_, **__: (EvaluationRef(uri="/e", digest="e", policy_digest="sft"), None),
    )
    return steps


def test_its_steps_fit_into_the_seconds_of_rl_alone(run: SmallRun, asked: list[int]):
    control.evaluate_sft_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    assert asked == [50]  # 10 s of RL stages, 0.2 s a step
    assert run.state.control.evaluation is not None


def test_its_optimizer_and_rate_go_on_where_sft_ended(run: SmallRun, asked: list[int], monkeypatch: pytest.MonkeyPatch):
    configs: list[tuple[Any, Any]] = []

    def further(workspace: Any, data: Any, model: Any, config: Any, engine: Any, seed: int, initial: Any, **_: Any):
        configs.append((config, initial))
        return CheckpointRef(uri="/control", digest="control")

    monkeypatch.setattr(control, "fine_tune_further", further)
    control.evaluate_sft_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    run.config = RunConfig.model_validate({"sft": {"repairs": {"problems": 8}}})
    control.evaluate_sft_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    (longer, start), (later, policy) = configs
    # SFT's two steps are made again, with the same rates; its last rate stays.
    assert (start, longer.decay_steps, longer.steps) == (None, 2, 52)
    # After repairs it begins from the policy, at the same rate.
    assert policy == run.state.policies[0]
    assert later.learning_rate == pytest.approx(longer.learning_rate * longer.final_learning_rate_fraction)
    assert (later.steps, later.final_learning_rate_fraction) == (50, 1.0)


def test_a_resumed_run_keeps_the_number(run: SmallRun, asked: list[int]):
    run.record_control(ControlState(steps=33, rl_seconds=1.0, step_seconds=1.0, after=1))
    control.evaluate_sft_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    assert asked == [33]


def test_after_further_iterations_it_is_longer(run: SmallRun, asked: list[int]):
    run.record_control(ControlState(steps=33, rl_seconds=1.0, step_seconds=1.0, after=0))
    control.evaluate_sft_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    assert asked == [50]
    assert run.state.control.after == 1
