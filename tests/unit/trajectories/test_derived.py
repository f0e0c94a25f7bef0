"""Another reward for what is stored: computed again, into a new place, from stored columns alone."""

from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from kernels_eval.rewards import REWARDS, Answer, reward_of
from tasks.pipeline.store import is_available, read_manifest
from tasks.trajectories.derived import rescore
from tasks.trajectories.reader import load_trajectories, read_trajectories, read_turns
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.writer import write_trajectories


def test_tables_become_trajectories_again(stored: Any, tmp_path: Path) -> None:
    trajectories = stored.trajectories(1)
    stored.batch(trajectories, tmp_path / "batch")
    assert load_trajectories(tmp_path / "batch") == sorted(trajectories, key=lambda each: each.trajectory_id)


@pytest.mark.parametrize("reward", [*sorted(REWARDS), "kevin - 0.5*length + 0.25*format"])
def test_every_reward(stored: Any, tmp_path: Path, reward: str) -> None:
    trajectories = stored.trajectories(2)
    old = stored.batch(trajectories, tmp_path / "batch")
    new = rescore(tmp_path / "batch", reward, tmp_path / "rescored", gamma=0.5)
    assert is_available(old), "the old one is as it was"
    rows = {(row["trajectory_id"], row["turn_index"]): row for row in read_turns(new).rows(named=True)}
    episodes = {row["trajectory_id"]: row for row in read_trajectories(new).rows(named=True)}
    for trajectory in trajectories:
        rewards = [
            None
            if turn.verdict.is_fault
            else reward_of(reward, turn.verdict, Answer(turn.response_text, len(turn.response_token_ids)))
            for turn in trajectory.turns
        ]
        returns = turn_returns(rewards, 0.5)
        found = [rows[trajectory.trajectory_id, turn.turn_index] for turn in trajectory.turns]
        assert [row["reward"] for row in found] == rewards
        assert [row["return"] for row in found] == returns
        episode = episodes[trajectory.trajectory_id]
        assert (episode["final_reward"], episode["return"]) == (rewards[-1], returns[0])
        assert episode["termination"] == trajectory.termination.value
    metadata = (read_manifest(new.path) or {})["metadata"]
    assert metadata["episode"] == {"reward": reward, "gamma": 0.5}
    assert metadata["rescored_from"]["digest"] == old.digest
    assert metadata["engine"] == "x"


def test_the_same_reward_gives_the_same_content(stored: Any, tmp_path: Path) -> None:
    """Everything that is computed follows from the stored columns."""
    old = stored.batch(stored.trajectories(3), tmp_path / "batch")
    assert rescore(tmp_path / "batch", "kernelbench", tmp_path / "rescored").digest == old.digest


def test_a_discount_that_nobody_wrote_down_is_not_made_up(stored: Any, tmp_path: Path) -> None:
    write_trajectories(stored.trajectories(3), 0.9, tmp_path / "batch", {"engine": "x"})
    with pytest.raises(InputError, match=r"manifest.json: expected the discount of its returns .*--gamma"):
        rescore(tmp_path / "batch", "kevin", tmp_path / "rescored")
    rescored = rescore(tmp_path / "batch", "kevin", tmp_path / "rescored", gamma=0.9)
    assert (read_manifest(rescored.path) or {})["metadata"]["episode"]["gamma"] == 0.9


def test_nothing_is_changed_in_place(stored: Any, tmp_path: Path) -> None:
    stored.batch(stored.trajectories(4), tmp_path / "batch")
    with pytest.raises(InputError, match="never changed in place"):
        rescore(tmp_path / "batch", "kevin", tmp_path / "batch")
    with pytest.raises(InputError, match="kernelbench"):
        rescore(tmp_path / "batch", "applause", tmp_path / "rescored")
    assert not (tmp_path / "rescored").exists()
