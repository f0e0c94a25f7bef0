"""From easy to hard, as a function of what is stored: nothing is remembered anywhere else."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.verdict import Status, Verdict
from tasks.agents.config import SOLVER
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import publish
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set
from tasks.rollout.config import CurriculumConfig, EpisodeConfig, HorizonConfig, RolloutConfig
from tasks.rollout.curriculum import (
    CurriculumState,
    capped,
    next_state,
    record_of,
    recorded_state,
    rows_up_to,
    state_for,
)
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

CONFIG = CurriculumConfig(enabled=True, success_rate=0.5, iterations=2)


def test_it_rises_when_the_mean_of_the_last_iterations_suffices() -> None:
    state = CurriculumState(turns=1, level=1)
    path = []
    for rate in (0.9, 0.05, 0.9, 0.2, 0.9, 0.5, 0.5):
        state = next_state(state, rate, CONFIG, most_turns=2, levels=[1, 3])
        path.append((state.turns, state.level, state.rates))
    assert path == [
        (1, 1, (0.9,)),
        (1, 1, (0.9, 0.05)),
        (1, 1, (0.05, 0.9)),
        (2, 1, ()),
        (2, 1, (0.9,)),
        (2, 3, ()),
        (2, 3, (0.5,)),
    ]


def test_levels_first() -> None:
    config = CONFIG.model_copy(update={"first": "levels", "iterations": 1})
    state, seen = CurriculumState(turns=1, level=1), []
    for _ in range(4):
        state = next_state(state, 1.0, config, most_turns=2, levels=[1, 2, 3])
        seen.append((state.turns, state.level))
    assert seen == [(1, 2), (1, 3), (2, 3), (2, 3)]


@given(
    rates=st.lists(st.none() | st.floats(0, 1), max_size=40),
    most_turns=st.integers(1, 4),
    levels=st.lists(st.integers(1, 5), min_size=1, unique=True).map(sorted),
    first=st.sampled_from(["turns", "levels"]),
    iterations=st.integers(1, 3),
)
def test_it_never_falls_nor_leaves_what_there_is(
    rates: list[float | None], most_turns: int, levels: list[int], first: Any, iterations: int
) -> None:
    config = CurriculumConfig(enabled=True, success_rate=0.5, iterations=iterations, first=first)
    state = CurriculumState(turns=1, level=levels[0])
    for rate in rates:
        following = next_state(state, rate, config, most_turns, levels)
        assert 1 <= state.turns <= following.turns <= most_turns
        assert state.level <= following.level
        assert following.level in levels
        assert (following.turns - state.turns) + (following.level != state.level) <= 1, "one step at a time"
        assert len(following.rates) <= iterations
        if rate is None:
            assert following == state
        state = following


def test_episodes_are_capped() -> None:
    episode = EpisodeConfig(max_turns=3, horizon=HorizonConfig(level_turns=(2, 4), extension=2))
    assert capped(episode, 1).max_turns == 1
    assert capped(episode, 1).horizon == HorizonConfig(level_turns=(1, 1), extension=0)
    assert capped(episode, 3).horizon == HorizonConfig(level_turns=(2, 3), extension=0)
    assert capped(episode, 4) == episode


def test_only_problems_up_to_the_level(simulation: Any) -> None:
    rows = simulation.problem_rows(9)
    assert {row.problem.level for row in rows_up_to(rows, 2)} == {1, 2}


def batch(
    folder: Path, iteration: int, correct: list[bool | None], state: CurriculumState | None
) -> TrajectoryBatchRef:
    trajectories = []
    for sample, is_correct in enumerate(correct):
        status = Status.INFRASTRUCTURE_ERROR if is_correct is None else Status.CORRECT if is_correct else Status.TIMEOUT
        verdict = Verdict(status=status, compiled=bool(is_correct), correct=bool(is_correct))
        reward = None if is_correct is None else 0.3 * is_correct
        turn = Turn(
            0,
            SOLVER,
            (1,),
            (2,),
            (-0.1,),
            True,
            "stop",
            "x",
            "x",
            verdict,
            reward,
            0.1,
            0.1,
            datetime.now(UTC),
        )
        trajectories.append(
            Trajectory(
                "r", iteration, "d", "p", "d", "train", 1, "g", f"t{sample}", sample, (turn,), Termination.TURN_LIMIT
            )
        )
    metadata = {"curriculum": None if state is None else state.model_dump(mode="json")}
    return write_trajectories(trajectories, 0.4, folder / f"iteration={iteration}", metadata)


@pytest.fixture(scope="module")
def levels_1_to_3(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return problems_from(1, tmp_path_factory)


@pytest.fixture(scope="module")
def levels_2_to_4(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return problems_from(2, tmp_path_factory)


def problems_from(lowest: int, tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    folder = tmp_path_factory.mktemp("problems")
    source = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * {number}\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 4)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    rows = [
        {
            "problem_id": f"p{number}",
            "source": source.format(number=number),
            "level": lowest + number % 3,
            "split": "train" if number < 6 else "heldout",
        }
        for number in range(8)
    ]
    (folder / "problems.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    config = ProblemsConfig(source="jsonl", path=str(folder / "problems.jsonl"), train=6, heldout=2, flag_trivial=False)
    return build_problem_set(config, folder / "set")


def test_the_state_of_an_iteration_follows_from_the_batch_before_it(
    levels_1_to_3: ProblemSetRef, tmp_path: Path
) -> None:
    config = RolloutConfig(curriculum=CONFIG)
    assert state_for(RolloutConfig(), levels_1_to_3, None) is None
    state = state_for(config, levels_1_to_3, None)
    assert state == CurriculumState(turns=1, level=1)
    # Faults of the machine say nothing of the policy: 2 of 3 are correct.
    first = batch(tmp_path, 0, [True, True, False, None], state)
    state = state_for(config, levels_1_to_3, first)
    assert state is not None
    assert (state.turns, state.level, state.rates) == (1, 1, (pytest.approx(2 / 3),))
    second = batch(tmp_path, 1, [True, False, False], state)
    assert recorded_state(second) == state
    risen = state_for(config, levels_1_to_3, second)
    assert risen == CurriculumState(turns=2, level=1)
    assert state_for(config, levels_1_to_3, second) == risen, "asked again after a kill"
    # A batch of faults alone changes nothing; one made without a curriculum begins it.
    assert state_for(config, levels_1_to_3, batch(tmp_path, 2, [None], risen)) == risen
    assert state_for(config, levels_1_to_3, batch(tmp_path, 3, [True], None)) == CurriculumState(turns=1, level=1)


def test_a_checkpoint_brings_its_stage_along(levels_1_to_3: ProblemSetRef, tmp_path: Path) -> None:
    """Drawn without the trajectories before it."""
    config = RolloutConfig(curriculum=CONFIG)
    made_with = CurriculumState(turns=2, level=1, rates=(0.9,))
    before = batch(tmp_path, 0, [True, True, False, None], made_with)
    record = record_of(before)
    assert record is not None
    assert record.success_rate == pytest.approx(2 / 3)
    folder = tmp_path / "policy"
    with publish(folder, {"curriculum": record.model_dump(mode="json")}) as partial:
        (partial / "config.json").write_text("{}")
    policy = CheckpointRef(uri=str(folder), digest="d", weight_version=1)
    assert state_for(config, levels_1_to_3, None, policy) == state_for(config, levels_1_to_3, before)
    assert state_for(config, levels_1_to_3, None, policy) == CurriculumState(turns=3, level=1)
    # One that was trained without a curriculum begins it.
    plain = CheckpointRef(uri=str(tmp_path / "nowhere"), digest="d")
    assert state_for(config, levels_1_to_3, None, plain) == CurriculumState(turns=1, level=1)


def test_a_stage_below_the_lowest_level_that_there_is_becomes_that_level(
    levels_2_to_4: ProblemSetRef, tmp_path: Path
) -> None:
    """Going on from a checkpoint with other problems: without any of its level nothing could be drawn."""
    begun = batch(tmp_path, 0, [False], CurriculumState(turns=1, level=1))
    state = state_for(RolloutConfig(curriculum=CONFIG), levels_2_to_4, begun)
    assert state is not None
    assert state.level == 2


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    broken = batch(tmp_path, 0, [True], None)
    manifest = broken.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"curriculum": null', '"curriculum": {"turns": 0}'))
    with pytest.raises(InputError, match="not a curriculum's state"):
        recorded_state(broken)


def test_the_module_is_light() -> None:
    """Flows import it before anything starts."""
    import subprocess
    import sys

    code = "import sys, tasks.rollout.curriculum; print([m for m in ('torch', 'ray', 'polars') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
