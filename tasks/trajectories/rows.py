"""From the stored tables back to trajectories as they were played."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from tasks.trajectories.reader import read_trajectories_file, read_turns_file
from tasks.trajectories.schema import (
    TRAJECTORIES_FILE,
    TURNS_FILE,
    Termination,
    Trajectory,
    Turn,
    TurnRole,
    verdict_from_row,
)


def load_trajectories(folder: Path) -> list[Trajectory]:
    """Return the trajectories of a batch, sorted by id. Raises InputError where a table cannot be read or turns are missing."""
    turns = read_turns_file(folder / TURNS_FILE).partition_by("trajectory_id", as_dict=True, maintain_order=True)
    loaded: list[Trajectory] = []
    for row in read_trajectories_file(folder / TRAJECTORIES_FILE).iter_rows(named=True):
        of_this = turns.get((row["trajectory_id"],))
        if of_this is None or len(of_this) != row["turns"]:
            raise InputError(f"{folder}: {row['trajectory_id']}: expected {row['turns']} turns, found another number")
        loaded.append(_trajectory(row, of_this.rows(named=True)))
    return loaded


def _trajectory(row: dict[str, Any], turns: Sequence[dict[str, Any]]) -> Trajectory:
    names = ("run_id", "iteration", "policy_digest", "problem_id", "problem_digest", "split", "level", "group_id")
    return Trajectory(
        **{name: row[name] for name in names},
        trajectory_id=row["trajectory_id"],
        sample_index=row["sample_index"],
        turns=tuple(_turn(turn) for turn in turns),
        termination=Termination(row["termination"]),
    )


def _turn(row: dict[str, Any]) -> Turn:
    return Turn(
        turn_index=row["turn_index"],
        role=TurnRole(row["role"]),
        prompt_token_ids=tuple(row["prompt_token_ids"]),
        response_token_ids=tuple(row["response_token_ids"]),
        response_logprobs=tuple(row["response_logprobs"]),
        prompt_extends_previous=bool(row["prompt_extends_previous"]),
        finish_reason=row["finish_reason"],
        response_text=row["response_text"],
        kernel_source=row["kernel_source"],
        verdict=verdict_from_row(row["verdict"]),
        reward=row["reward"],
        generation_s=row["generation_s"],
        evaluation_s=row["evaluation_s"],
        created_at=row["created_at"],
    )
