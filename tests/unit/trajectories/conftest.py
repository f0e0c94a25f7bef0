"""Random trajectories, with faults among them, stored as a batch and as JSON logs."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels_eval.rewards import reward_of
from kernels_eval.verdict import Efficiency, Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.models.chat_templates import Message, Role
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.trajectories.json_logs import JsonLogs
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories


def random_verdict(generator: random.Random) -> Verdict:
    kind = generator.randrange(6)
    if kind == 0:
        return Verdict(status=Status.COMPILE_ERROR, error_category="syntax_error", error_message="bad [syntax]")
    if kind == 1:
        return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
    if kind == 2 and generator.random() < 0.4:
        return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="lost worker")
    source = generator.choice([TimingSource.GPU, TimingSource.ROOFLINE])
    speedup = generator.uniform(0.2, 5)
    return Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, candidate_ms=1 / speedup, timing_source=source,
        efficiency=Efficiency(memory=speedup / 5, registers=0.5),
    )  # fmt: skip


def random_trajectories(seed: int, problems: int = 4, samples: int = 6, iteration: int = 0) -> list[Trajectory]:
    generator = random.Random(f"{seed}/{iteration}")
    trajectories: list[Trajectory] = []
    for problem in range(problems):
        for sample in range(samples):
            turns: list[Turn] = []
            for index in range(generator.randint(1, 4)):
                verdict = random_verdict(generator)
                answer = (5, 6 + index, 7)
                turns.append(
                    Turn(
                        turn_index=index,
                        role=SOLVER,
                        prompt_token_ids=(1, 2, 3),
                        response_token_ids=answer,
                        response_logprobs=(-0.5, -0.25, -0.125),
                        prompt_extends_previous=index == 0,
                        finish_reason="stop",
                        response_text=f"```python\n# {sample}\n```",
                        kernel_source=f"# {sample}\n",
                        verdict=verdict,
                        reward=None if verdict.is_fault else reward_of("kernelbench", verdict),
                        generation_s=0.5,
                        evaluation_s=0.1,
                        created_at=datetime(2025, 1, 2, 3, 4, 5, index, tzinfo=UTC),
                    )
                )
                if verdict.is_fault:
                    break
            fault = turns[-1].reward is None
            trajectories.append(
                Trajectory(
                    run_id="run",
                    iteration=iteration,
                    policy_digest="policy",
                    problem_id=f"p{problem}",
                    problem_digest="digest",
                    split="train",
                    level=1,
                    group_id=f"g{iteration}-{problem}",
                    trajectory_id=f"train-{iteration:04d}-p{problem}-{sample:03d}",
                    sample_index=sample,
                    turns=tuple(turns),
                    termination=Termination.INFRASTRUCTURE_ERROR if fault else Termination.TURN_LIMIT,
                )
            )
    return trajectories


def store_batch(trajectories: list[Trajectory], folder: Path) -> TrajectoryBatchRef:
    return write_trajectories(
        trajectories, 0.4, folder, {"episode": {"reward": "kernelbench", "gamma": 0.4}, "engine": "x"}
    )


def store_logs(trajectories: list[Trajectory], folder: Path) -> None:
    logs = JsonLogs(folder)
    for trajectory in trajectories:
        messages = [Message(role=Role.USER, content="class Model: ...")]
        for turn in trajectory.turns:
            logs.log_turn(trajectory.problem_id, messages, turn, {"trajectory_id": trajectory.trajectory_id})
            messages += [
                Message(role=Role.ASSISTANT, content=turn.response_text),
                Message(role=Role.USER, content="judged"),
            ]
        logs.log_trajectory(trajectory, messages[:-1], 0.4)
    logs.close()


@pytest.fixture(scope="session")
def stored() -> SimpleNamespace:
    """The functions above, for tests that have no other way to import them."""
    return SimpleNamespace(trajectories=random_trajectories, batch=store_batch, logs=store_logs)


@pytest.fixture
def run_folder(tmp_path: Path) -> Callable[[int], Path]:
    """Return the folder of a run of so many iterations, with links to its batches as runs have them."""

    def make(iterations: int) -> Path:
        run = tmp_path / "runs" / "demo-12345678"
        (run / "trajectories").mkdir(parents=True)
        for iteration in range(iterations):
            reference = store_batch(random_trajectories(3, iteration=iteration), tmp_path / "store" / f"key{iteration}")
            (run / "trajectories" / f"iteration={iteration}").symlink_to(reference.path)
        return run

    return make
