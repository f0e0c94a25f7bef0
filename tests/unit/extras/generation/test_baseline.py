"""Held-out conversations of a model behind a server: the tables of a rollout, faults and refusals as there, and no
question asked twice."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from extras.adapters.scoring import Scorer
from extras.generation.baseline import Baseline
from extras.generation.writers import RefusedConversationError
from extras.generation.writers.remembered import RememberedWriter
from kernels_eval.errors import InputError
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem
from tasks.evaluation.chat_model import ChatModel
from tasks.evaluation.per_problem import with_outcomes
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.episode import EpisodePlan, plan_episodes
from tasks.trajectories.schema import Termination, Trajectory
from tasks.trajectories.writer import write_trajectories

Make = Callable[..., Any]


@pytest.fixture
def scorer(judge: Any):
    with Scorer(judge, EpisodeConfig(max_turns=3)) as scorer:
        yield scorer


def plans(problems: int = 1, samples: int = 1) -> list[EpisodePlan]:
    rows = [
        ProblemRow(
            problem=Problem(problem_id=f"p{number}", source=EXAMPLE_PROBLEM.replace("2.0", f"{number + 2}.0")),
            split=Split.HELDOUT,
            composition="f",
        )
        for number in range(problems)
    ]
    return plan_episodes(rows, Split.HELDOUT, problems, samples, 0, seed=1)


def held(writer: Any, scorer: Scorer, wanted: Sequence[EpisodePlan]) -> tuple[list[Trajectory], Baseline]:
    baseline = Baseline("run", writer, scorer)
    return asyncio.run(baseline.run(wanted)), baseline


def test_a_conversation_is_a_trajectory_with_its_cost(writer: Make, scorer: Scorer):
    asked = writer(["nothing", "incorrect", "speedup 1.5"])
    (trajectory,), baseline = held(asked, scorer, plans())
    assert [turn.verdict.status.value for turn in trajectory.turns] == ["compile_error", "incorrect", "correct"]
    assert trajectory.termination is Termination.TURN_LIMIT
    assert trajectory.policy_digest == asked.digest
    assert (baseline.turns, baseline.prompt_tokens, baseline.generated_tokens) == (3, 300, 30)
    assert len({seed for _, seed in asked.asked}) == 3
    assert asked.asked[2][0][-1]["role"] == "user"
    assert "0 ≠ 1" in asked.asked[2][0][-1]["content"]


def test_answers_without_tokens_have_no_likelihood(writer: Make, scorer: Scorer, tmp_path: Path):
    found, _ = held(writer(["speedup 2.0"]), scorer, plans(2))
    write_trajectories(found, 0.4, tmp_path / "batch")
    outcomes = with_outcomes(pl.read_parquet(tmp_path / "batch" / "turns.parquet"), [1.0])
    assert outcomes["answer_nats"].null_count() == outcomes.height
    assert outcomes["fast_1"].all()


def test_a_fault_ends_its_conversation_and_is_no_reward(writer: Make, scorer: Scorer):
    (trajectory,), _ = held(writer(["incorrect", "fault"]), scorer, plans())
    assert trajectory.termination is Termination.INFRASTRUCTURE_ERROR
    assert trajectory.rewards[-1] is None


def test_a_refused_first_prompt_is_left_out_and_a_later_one_ends_the_conversation(writer: Make, scorer: Scorer):
    refusal = RefusedConversationError("http://server: HTTP 400 too long")
    found, baseline = held(writer(["incorrect", refusal]), scorer, plans())
    assert [trajectory.termination for trajectory in found] == [Termination.CONTEXT_LIMIT]
    assert baseline.finished == 1
    found, baseline = held(writer([refusal, "speedup 2.0"]), scorer, plans(2))
    assert len(found) == 1
    assert baseline.finished == 2
    with pytest.raises(RefusedConversationError, match="too long"):
        held(writer([refusal]), scorer, plans(2))


def test_what_was_answered_is_not_asked_again(writer: Make, scorer: Scorer, tmp_path: Path):
    file = tmp_path / "work" / "answers.jsonl"
    wanted = plans(3, samples=2)
    first = writer(["speedup 1.5", "incorrect"])
    found, _ = held(RememberedWriter(first, file), scorer, wanted)
    asked, lines = len(first.asked), file.read_text().splitlines()
    assert asked == sum(len(trajectory.turns) for trajectory in found)
    file.write_text("\n".join(lines)[:-5])  # killed in the middle of the last line
    second = writer(["speedup 1.5"])
    again, baseline = held(RememberedWriter(second, file), scorer, wanted)
    assert len(second.asked) <= 3  # the lost answer, and the turns after it
    assert len(again) == len(found)
    assert baseline.prompt_tokens == 100 * baseline.turns
    other = writer(["speedup 1.5"])
    other.digest = "another model"
    held(RememberedWriter(other, file), scorer, wanted)
    assert len(other.asked) >= len(wanted)
    assert all(json.loads(line)["key"] for line in file.read_text().splitlines() if line.endswith("}"))


def test_an_address_is_checked_before_anything_runs():
    with pytest.raises(ValueError, match="expected an address such as"):
        ChatModel(name="m", base_url="localhost:8000")
    with pytest.raises(InputError, match=r"no server answers at http://127\.0\.0\.1:9"):
        ChatModel(name="m", base_url="http://127.0.0.1:9/v1").check_reachable()
