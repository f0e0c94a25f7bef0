"""Pairs of the joint epoch: every turn of a conversation is answered with the best kernel found on its problem."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kernels_eval import Status, Verdict
from tasks.agents.config import AgentConfig
from tasks.pipeline.references import ProblemSetRef, SftDataRef
from tasks.pipeline.store import read_metadata
from tasks.pipeline.tables import PAIRS_FILE
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.agent_prompts import STOP
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import answer_text
from tasks.sft.joint_pairs import build_joint_pairs
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

AGENTS = {
    "generator": AgentConfig(turns="first", shown="problem"),
    "optimizer": AgentConfig(turns="later", shown="kernel", may_stop=True),
}
WRONG = Verdict(status=Status.INCORRECT, compiled=True, correct=False, error_category="wrong_values")
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, compiled=False, correct=False)


def right(speedup: float) -> Verdict:
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, candidate_ms=1.0)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return build_problem_set(ProblemsConfig(train=4, heldout=2), tmp_path_factory.mktemp("joint") / "problems")


def trajectory(row: ProblemRow, sample: int, *turns: tuple[str, Verdict]) -> Trajectory:
    """A conversation on a problem; its kernels are told by short texts."""
    made = tuple(
        Turn(
            turn_index=place,
            role="optimizer" if place else "generator",
            prompt_token_ids=(1, 2),
            response_token_ids=(3,),
            response_logprobs=(-0.1,),
            prompt_extends_previous=place == 0,
            finish_reason="stop",
            response_text=answer_text(kernel),
            kernel_source=kernel,
            verdict=verdict,
            reward=None if verdict.is_fault else float(verdict.correct),
            generation_s=0.0,
            evaluation_s=0.0,
            created_at=datetime.now(UTC),
        )
        for place, (kernel, verdict) in enumerate(turns)
    )
    problem = row.problem
    return Trajectory(
        run_id="run", iteration=0, policy_digest="digest", problem_id=problem.problem_id, problem_digest=problem.digest,
        split="train", level=problem.level, group_id=problem.problem_id,
        trajectory_id=f"{problem.problem_id}-{sample}", sample_index=sample, turns=made,
        termination=Termination.INFRASTRUCTURE_ERROR if turns[-1][1].is_fault else Termination.TURN_LIMIT,
    )  # fmt: skip


def built(problems: ProblemSetRef, folder: Path, *conversations: Trajectory, agents: Any = AGENTS) -> SftDataRef:
    batch = write_trajectories(list(conversations), 1.0, folder / "batch")
    episode = EpisodeConfig(prompt="source", feedback="brief", agents=agents)
    return build_joint_pairs(batch, problems, episode, "triton", folder / "pairs")


def answers(data: SftDataRef) -> list[tuple[str, str, str]]:
    """Role, kernel that was shown (if any), and answer of each pair."""
    rows = pl.read_parquet(data.path / PAIRS_FILE).iter_rows(named=True)
    return [
        (row["role"], next((name for name in ("slow", "wrong", "fast") if f"\n{name}\n" in row["messages"][0]["content"]), ""), row["messages"][-1]["content"])
        for row in rows
    ]  # fmt: skip


def test_each_turn_is_answered_with_the_best_kernel_of_its_problem(problems: ProblemSetRef, tmp_path: Path) -> None:
    row = read_problems(problems, Split.TRAIN)[0]
    data = built(
        problems,
        tmp_path,
        trajectory(row, 0, ("slow", right(1.0)), ("wrong", WRONG)),
        trajectory(row, 1, ("wrong", WRONG), ("fast", right(3.0)), ("slow", right(1.0))),
        trajectory(row, 2, ("wrong", WRONG), ("wrong", WRONG)),
    )
    fast = answer_text("fast")
    assert answers(data) == [
        ("generator", "", fast),
        ("optimizer", "slow", fast),
        ("optimizer", "wrong", fast),
        ("optimizer", "fast", STOP),
    ]
    assert data.pairs == 4
    assert data.verified
    assert read_metadata(data.path)["roles"] == {"generator": 1, "optimizer": 3}


def test_an_agent_that_may_not_stop_learns_nothing_where_nothing_is_better(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    row = read_problems(problems, Split.TRAIN)[0]
    agents = {**AGENTS, "optimizer": AGENTS["optimizer"].model_copy(update={"may_stop": False})}
    data = built(problems, tmp_path, trajectory(row, 0, ("fast", right(3.0)), ("slow", right(1.0))), agents=agents)
    assert answers(data) == [("generator", "", answer_text("fast"))]


def test_problems_without_a_correct_kernel_and_turns_after_a_fault_are_left_out(
    problems: ProblemSetRef, tmp_path: Path
) -> None:
    unsolved, solved = read_problems(problems, Split.TRAIN)[:2]
    data = built(
        problems,
        tmp_path,
        trajectory(unsolved, 0, ("wrong", WRONG)),
        trajectory(solved, 0, ("wrong", WRONG), ("slow", FAULT)),
        trajectory(solved, 1, ("slow", right(1.0))),
    )
    table = pl.read_parquet(data.path / PAIRS_FILE)
    assert set(table["problem_id"]) == {solved.problem.problem_id}
    assert answers(data) == [("generator", "", answer_text("slow"))]
    assert table["used"].all()


def test_without_any_correct_kernel_there_are_no_pairs(problems: ProblemSetRef, tmp_path: Path) -> None:
    row = read_problems(problems, Split.TRAIN)[0]
    data = built(problems, tmp_path, trajectory(row, 0, ("wrong", WRONG)))
    assert data.pairs == 0
    assert read_metadata(data.path)["roles"] == {}
