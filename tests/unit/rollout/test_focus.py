"""Problems of families that teach something are drawn more often, as a function of what is stored."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernels_eval import Problem
from kernels_eval.verdict import Status, Verdict
from tasks.agents.config import SOLVER
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import RolloutConfig
from tasks.rollout.episode import plan_episodes
from tasks.rollout.focus import MANIFEST_KEY, FocusState, Played, focus_for
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

CONFIG = RolloutConfig(focus=1.0)


def rows(families: dict[str, int]) -> list[ProblemRow]:
    return [
        ProblemRow(
            problem=Problem(problem_id=f"{family}-{number}", source="class Model: ...", level=1, family=family),
            split=Split.TRAIN,
            composition=f"{family}-{number}",
        )
        for family, count in families.items()
        for number in range(count)
    ]


def drawn(problems: list[ProblemRow], weights: list[float] | None, iterations: int = 60) -> Counter[str]:
    plans = [plan_episodes(problems, Split.TRAIN, 10, 1, each, 7, 0, weights) for each in range(iterations)]
    return Counter(plan.row.problem.family for each in plans for plan in each)


def test_a_family_that_teaches_is_drawn_more_often() -> None:
    problems = rows({"solved": 50, "mixed": 50, "new": 50})
    state = FocusState(families={"solved": Played(groups=30, useful=0), "mixed": Played(groups=30, useful=24)})
    even, focused = drawn(problems, None), drawn(problems, state.weights(problems, 1.0))
    assert max(even.values()) < 1.4 * min(even.values())
    assert focused["mixed"] > focused["new"] > 5 * focused["solved"] > 0
    halfway = drawn(problems, state.weights(problems, 0.5))
    assert focused["mixed"] > halfway["mixed"] > even["mixed"]
    assert set(state.weights(problems, 0.0)) == {1.0}


def test_further_draws_of_an_iteration_are_other_problems() -> None:
    problems = rows({"solved": 30, "mixed": 30})
    weights = FocusState(families={"mixed": Played(groups=9, useful=9)}).weights(problems, 1.0)
    parts = [plan_episodes(problems, Split.TRAIN, 12, 1, 3, 7, skip, weights) for skip in (0, 12, 24)]
    ids = [plan.row.problem.problem_id for part in parts for plan in part]
    assert len(set(ids)) == 36
    assert ids[:12] == [
        plan.row.problem.problem_id for plan in plan_episodes(problems, Split.TRAIN, 12, 1, 3, 7, 0, weights)
    ]


def trajectory(problem_id: str, sample: int, reward: float | None) -> Trajectory:
    status = Status.INFRASTRUCTURE_ERROR if reward is None else Status.CORRECT
    verdict = Verdict(status=status, compiled=reward is not None, correct=reward is not None)
    now = datetime.now(UTC)
    turn = Turn(0, SOLVER, (1,), (2,), (-0.1,), True, "stop", "x", "x", verdict, reward, 0.1, 0.1, now)
    name = f"{problem_id}-{sample}"
    return Trajectory(
        "r", 0, "d", problem_id, "d", "train", 1, problem_id, name, sample, (turn,), Termination.TURN_LIMIT
    )


def batch(folder: Path, rewards: dict[str, list[float | None]], metadata: dict[str, object]) -> TrajectoryBatchRef:
    made = [trajectory(name, number, each) for name, values in rewards.items() for number, each in enumerate(values)]
    return write_trajectories(made, 1.0, folder, metadata)


def test_counts_are_those_of_all_batches_before(tmp_path: Path) -> None:
    problems = build_problem_set(ProblemsConfig(train=8, heldout=2, levels=(1,)), tmp_path / "problems")
    ids = [row.problem for row in read_problems(problems, Split.TRAIN)]
    before = FocusState(families={ids[0].family: Played(groups=5, useful=2)})
    assert focus_for(RolloutConfig(), problems, None) is None
    assert focus_for(CONFIG, problems, None) == FocusState()
    rewards: dict[str, list[float | None]] = {
        ids[0].problem_id: [1.0, 0.0],
        ids[1].problem_id: [0.5, 0.5, None],  # the machine failed on the third
        "of another problem set": [1.0, 0.0],
    }
    made = batch(tmp_path / "batch", rewards, {MANIFEST_KEY: json.loads(before.model_dump_json())})
    found = focus_for(CONFIG, problems, made)
    assert found is not None
    expected = Counter({ids[0].family: 5}) + Counter([ids[0].family, ids[1].family])
    assert {name: each.groups for name, each in found.families.items()} == dict(expected)
    assert sum(each.useful for each in found.families.values()) == 3


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="less than or equal to 1"):
        RolloutConfig(focus=1.5)
