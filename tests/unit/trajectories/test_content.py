"""The content digest of a batch: what later stages read changes it; seconds, drawn errors and layout do not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernels_eval import Status, Verdict
from tasks.agents.config import SOLVER
from tasks.trajectories.content import table_digest
from tasks.trajectories.schema import TURNS_FILE, Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="output[3] is 7")
TURN = Turn(
    turn_index=0,
    role=SOLVER,
    prompt_token_ids=(1, 2),
    response_token_ids=(3, 4),
    response_logprobs=(-0.5, -0.25),
    prompt_extends_previous=True,
    finish_reason="stop",
    response_text="text",
    kernel_source="kernel",
    verdict=WRONG,
    reward=0.1,
    generation_s=1.0,
    evaluation_s=2.0,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)
TRAJECTORY = Trajectory(
    run_id="one",
    iteration=0,
    policy_digest="p",
    problem_id="q",
    problem_digest="d",
    split="train",
    level=1,
    group_id="g",
    trajectory_id="t",
    sample_index=0,
    turns=(TURN,),
    termination=Termination.TURN_LIMIT,
)


def digest_of_batch(folder: Path, trajectory: Trajectory, **turn: object) -> str:
    changed = replace(trajectory, turns=tuple(replace(each, **turn) for each in trajectory.turns))
    return write_trajectories([changed], 0.4, folder).digest


def verdict(**changes: object) -> Verdict:
    return WRONG.model_copy(update=changes)


@pytest.mark.parametrize(
    "turn",
    [
        {"generation_s": 9.0},
        {"evaluation_s": 9.0},
        {"created_at": datetime(2027, 2, 2, tzinfo=UTC)},
        {"verdict": verdict(error_message="output[4] is 8")},
        {"verdict": verdict(error_message=None)},
        {"verdict": verdict(max_abs_error=0.5, max_rel_error=0.25)},
        {"verdict": verdict(seed_commitment="c" * 64, sandbox="rlimits")},
    ],
    ids=str,
)
def test_what_was_measured_or_drawn_does_not_count(tmp_path: Path, turn: dict[str, object]):
    other = replace(TRAJECTORY, run_id="two")
    assert digest_of_batch(tmp_path / "a", TRAJECTORY) == digest_of_batch(tmp_path / "b", other, **turn)


@pytest.mark.parametrize(
    "turn",
    [
        {"prompt_token_ids": (1, 3)},
        {"response_token_ids": (3, 5)},
        {"response_logprobs": (-0.5, -0.125)},
        {"kernel_source": None},
        {"reward": 0.2},
        {"reward": None},
        {"verdict": verdict(status=Status.TIMEOUT)},
        {"verdict": verdict(error_category="wrong_shape")},
        {"verdict": verdict(speedup=2.0)},
        {"verdict": verdict(candidate_ms=2.0)},
    ],
    ids=str,
)
def test_what_a_later_stage_reads_counts(tmp_path: Path, turn: dict[str, object]):
    assert digest_of_batch(tmp_path / "a", TRAJECTORY) != digest_of_batch(tmp_path / "b", TRAJECTORY, **turn)


def test_the_order_of_rows_counts_their_layout_in_the_file_does_not(tmp_path: Path):
    several = [replace(TRAJECTORY, trajectory_id=f"t{number}") for number in range(5)]
    write_trajectories(several, 0.4, tmp_path / "batch")
    table = pq.ParquetFile(tmp_path / "batch" / TURNS_FILE).read()

    def rewritten(name: str, change: Callable[[pa.Table], pa.Table], **how: object) -> str:
        pq.write_table(change(table), tmp_path / name, **how)
        return table_digest(tmp_path / name)

    whole = table_digest(tmp_path / "batch" / TURNS_FILE)
    assert rewritten("groups", lambda rows: rows, row_group_size=2, compression="none") == whole
    assert rewritten("chunks", lambda rows: pa.concat_tables([rows[:2], rows[2:]])) == whole
    assert rewritten("turned", lambda rows: rows.take([4, 3, 2, 1, 0])) != whole
    assert rewritten("fewer", lambda rows: rows[:4]) != whole
