"""Tables are read as they were written; old files are read, newer and foreign ones refused."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.verdict import Issue, IssueKind, Resources, Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import read_manifest
from tasks.trajectories.derived import rescore
from tasks.trajectories.reader import (
    load_trajectories,
    read_trajectories,
    read_turn_leaves,
    read_turn_rows,
    read_turns,
    read_turns_file,
)
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import (
    SCHEMA_VERSION,
    TURNS_SCHEMA,
    VERSION_KEY,
    Termination,
    Trajectory,
    Turn,
    verdict_from_row,
    verdict_row,
)
from tasks.trajectories.writer import write_trajectories
from tasks.update.config import UpdateConfig
from tasks.update.dataset import read_samples

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
VERDICTS = st.builds(
    Verdict,
    status=st.sampled_from([status for status in Status if status is not Status.INFRASTRUCTURE_ERROR]),
    compiled=st.booleans(),
    correct=st.booleans(),
    speedup=st.none() | FLOAT,
    candidate_ms=st.none() | FLOAT,
    timing_source=st.none() | st.sampled_from(TimingSource),
    error_category=st.none() | TEXT,
    error_message=st.none() | TEXT,
    max_abs_error=st.none() | st.floats(0, math.inf),
    resources=st.lists(
        st.builds(Resources, kernel=TEXT, architecture=TEXT, registers=st.none() | st.integers(0, 255)), max_size=2
    ).map(tuple),
    issues=st.lists(
        st.builds(Issue, kind=st.sampled_from(IssueKind), kernel=st.none() | TEXT, value=FLOAT, limit=FLOAT), max_size=2
    ).map(tuple),
    hardware=TEXT,
)
IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6).map(tuple)


@st.composite
def turn(draw: Any, index: int, fault: bool) -> Turn:
    response = () if fault else draw(IDS)
    return Turn(
        turn_index=index,
        role=SOLVER,
        prompt_token_ids=draw(IDS),
        response_token_ids=response,
        response_logprobs=tuple(draw(st.floats(-50, 0, width=32)) for _ in response),
        prompt_extends_previous=draw(st.booleans()),
        finish_reason="fault" if fault else "stop",
        response_text=draw(TEXT),
        kernel_source=draw(st.none() | TEXT),
        verdict=Verdict(status=Status.INFRASTRUCTURE_ERROR) if fault else draw(VERDICTS),
        reward=None if fault else draw(st.floats(0, 2.3)),
        generation_s=draw(st.floats(0, 100)),
        evaluation_s=draw(st.floats(0, 100)),
        created_at=datetime(2025, 1, 2, 3, 4, 5, draw(st.integers(0, 999_999)), tzinfo=UTC),
    )


@st.composite
def batch(draw: Any) -> list[Trajectory]:
    trajectories = []
    for problem in range(draw(st.integers(1, 3))):
        for sample in range(draw(st.integers(1, 3))):
            count, fault = draw(st.integers(1, 3)), draw(st.booleans())
            turns = tuple(draw(turn(index, fault and index == count - 1)) for index in range(count))
            end = Termination.INFRASTRUCTURE_ERROR if fault else Termination.TURN_LIMIT
            trajectories.append(
                Trajectory(
                    run_id="run",
                    iteration=3,
                    policy_digest="policy",
                    problem_id=f"p{problem}",
                    problem_digest="digest",
                    split="train",
                    level=1,
                    group_id=f"g{problem}",
                    trajectory_id=f"g{problem}-{sample}",
                    sample_index=sample,
                    turns=turns,
                    termination=end,
                )
            )
    return draw(st.permutations(trajectories))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trajectories=batch(), gamma=st.floats(0, 1))
def test_round_trip(tmp_path: Path, trajectories: list[Trajectory], gamma: float) -> None:
    reference = write_trajectories(trajectories, gamma, tmp_path / "iteration=3", {"seconds": 1.5})
    ordered = sorted(trajectories, key=lambda trajectory: trajectory.trajectory_id)
    turns = read_turns(reference).rows(named=True)
    expected = [(trajectory, index, turn) for trajectory in ordered for index, turn in enumerate(trajectory.turns)]
    assert (reference.run_id, reference.iteration) == ("run", 3)
    assert (reference.trajectories, reference.turns) == (len(ordered), len(expected)) == (len(ordered), len(turns))
    for row, (trajectory, index, turn) in zip(turns, expected, strict=True):
        returns = turn_returns([turn.reward for turn in trajectory.turns], gamma)
        assert row["trajectory_id"] == trajectory.trajectory_id
        assert row["turn_index"] == index
        for name in ("prompt_token_ids", "response_token_ids", "response_logprobs"):
            assert tuple(row[name]) == getattr(turn, name)
        for name in ("response_text", "kernel_source", "reward", "created_at", "finish_reason"):
            assert row[name] == getattr(turn, name)
        assert verdict_from_row(row["verdict"]) == turn.verdict
        assert row["return"] == returns[index]
        assert row["termination"] == trajectory.termination.value
    for row, trajectory in zip(read_trajectories(reference).rows(named=True), ordered, strict=True):
        assert row["turns"] == len(trajectory.turns)
        assert row["final_reward"] == trajectory.turns[-1].reward
        assert verdict_from_row(row["final_verdict"]) == trajectory.turns[-1].verdict
        assert row["return"] == turn_returns([turn.reward for turn in trajectory.turns], gamma)[0]
    assert (read_manifest(reference.path) or {})["metadata"]["seconds"] == 1.5


def example(**changes: Any) -> Trajectory:
    turn = Turn(
        0, SOLVER, (1, 2), (3,), (-0.5,), True, "stop", "text", "kernel",
        Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.5), 0.8, 0.1, 0.2, datetime.now(UTC),
    )  # fmt: skip
    values: dict[str, Any] = {
        "run_id": "run", "iteration": 1, "policy_digest": "d", "problem_id": "p", "problem_digest": "d", "split": "train",
        "level": 1, "group_id": "g", "trajectory_id": "t", "sample_index": 0, "turns": (turn,),
        "termination": Termination.SUCCESS,
    }  # fmt: skip
    return Trajectory(**values | changes)


def rewritten(path: Path, table: pa.Table, version: int | str | None) -> None:
    metadata = {} if version is None else {VERSION_KEY: str(version).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_an_older_file_is_read_with_nulls_for_what_it_lacks(tmp_path: Path) -> None:
    reference = write_trajectories([example()], 0.4, tmp_path / "batch")
    path = tmp_path / "old.parquet"
    table = pq.read_table(reference.path / "turns.parquet")
    row = table.to_pylist()[0]
    old_verdict = {name: row["verdict"][name] for name in ("status", "compiled", "correct", "speedup")}
    old = pa.Table.from_pylist([{"trajectory_id": "t", "turn_index": 0, "reward": 0.8, "verdict": old_verdict}])
    rewritten(path, old.cast(pa.schema([
        ("trajectory_id", pa.string()), ("turn_index", pa.int32()), ("reward", pa.float64()), old.schema.field("verdict"),
    ])), SCHEMA_VERSION - 1)  # fmt: skip
    turns = read_turns_file(path)
    assert turns.columns == TURNS_SCHEMA.names
    found = turns.row(0, named=True)
    assert found["reward"] == 0.8
    assert found["return"] is None
    assert verdict_from_row(found["verdict"]) == Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=1.5
    )


SCHEMA_1 = Path(__file__).parent / "schema_1"
"""Two tables as they were written when turns had a stored advantage."""


def test_tables_of_the_first_schema_are_still_read() -> None:
    assert "advantage" in pq.read_schema(SCHEMA_1 / "turns.parquet").names
    turns = read_turns_file(SCHEMA_1 / "turns.parquet")
    assert turns.columns == TURNS_SCHEMA.names
    assert turns["return"].to_list() == pytest.approx([0.42, 0.8, 0.8, 0.1, None])
    loaded = load_trajectories(SCHEMA_1)
    assert [turn.reward for trajectory in loaded for turn in trajectory.turns] == [0.1, 0.8, 0.8, 0.1, None]


def test_tables_of_the_first_schema_are_trained_on() -> None:
    batch = TrajectoryBatchRef(uri=str(SCHEMA_1), digest="", run_id="r", iteration=0, trajectories=3, turns=5)
    samples = read_samples(batch, UpdateConfig(credit="return"), vocabulary=10)
    assert [sample.return_ for sample in samples.samples] == pytest.approx([0.42, 0.8, 0.1])
    assert (samples.groups_used, samples.groups_single, samples.turns_excluded) == (1, 1, 1)


def test_tables_of_the_first_schema_are_scored_again_into_the_new_one(tmp_path: Path) -> None:
    again = rescore(SCHEMA_1, "kernelbench", tmp_path / "again")
    assert read_turns(again).drop("verdict").equals(read_turns_file(SCHEMA_1 / "turns.parquet").drop("verdict"))
    assert [each.turns for each in load_trajectories(again.path)] == [
        each.turns for each in load_trajectories(SCHEMA_1)
    ]
    stored = pq.read_schema(again.path / "turns.parquet")
    assert "advantage" not in stored.names
    assert stored.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()


def test_a_column_that_is_not_ours_is_ignored(tmp_path: Path) -> None:
    reference = write_trajectories([example()], 0.4, tmp_path / "batch")
    table = pq.read_table(reference.path / "turns.parquet")
    rewritten(tmp_path / "extra.parquet", table.append_column("extra", pa.array([1])), SCHEMA_VERSION)
    assert "extra" not in read_turns_file(tmp_path / "extra.parquet").columns


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    reference = write_trajectories([example()], 0.4, tmp_path / "batch")
    path = tmp_path / "newer.parquet"
    rewritten(path, pq.read_table(reference.path / "turns.parquet"), SCHEMA_VERSION + 1)
    with pytest.raises(InputError, match=r"newer\.parquet: schema version 4"):
        read_turns_file(path)
    rewritten(path, pq.read_table(reference.path / "turns.parquet"), "two")
    with pytest.raises(InputError, match=r"schema_version: expected a whole number, found b'two'"):
        read_turns_file(path)


def test_what_is_no_table_of_ours_is_refused_by_name(tmp_path: Path) -> None:
    corrupt = tmp_path / "corrupt.parquet"
    corrupt.write_bytes(b"PAR1 not really")
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"a": [1]}), foreign)
    for path in (corrupt, foreign, tmp_path / "missing.parquet"):
        with pytest.raises(InputError, match=path.name):
            read_turns_file(path)


def test_a_damaged_page_is_refused_by_name(tmp_path: Path) -> None:
    reference = write_trajectories([example()], 0.4, tmp_path / "batch")
    path = reference.path / "turns.parquet"
    content = bytearray(path.read_bytes())
    content[8:200] = b"\xff" * 192
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"turns\.parquet"):
        read_turns(reference)


def test_an_unpublished_folder_does_not_exist(tmp_path: Path) -> None:
    reference = write_trajectories([example()], 0.4, tmp_path / "batch")
    (reference.path / "manifest.json").unlink()
    with pytest.raises(InputError, match="manifest"):
        read_turns(reference)


@pytest.mark.parametrize(
    ("trajectories", "message"),
    [
        ([], "at least one"),
        ([example(), example()], "t is there twice"),
        ([example(), example(iteration=2, trajectory_id="u")], "one run and iteration"),
    ],
)
def test_what_cannot_be_a_partition_is_not_published(
    tmp_path: Path, trajectories: list[Trajectory], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        write_trajectories(trajectories, 0.4, tmp_path / "batch")
    assert not list(tmp_path.iterdir())


def test_verdict_rows_are_json(tmp_path: Path) -> None:
    json.dumps(verdict_row(example().turns[0].verdict))


@pytest.mark.parametrize("age", ["now", "schema_1"])
def test_single_columns_and_rows_are_those_of_the_whole_table(age: str, stored: Any, tmp_path: Path) -> None:
    file = Path(__file__).parent / "schema_1" / "turns.parquet"
    if age == "now":
        file = stored.batch(stored.trajectories(7), tmp_path / "batch").path / "turns.parquet"
    leaves = read_turn_leaves(file, ["trajectory_id", "turn_index", "agent", "verdict.status", "verdict.speedup"])
    whole = read_turns_file(file).sort("trajectory_id", "turn_index")
    ordered = leaves.sort("trajectory_id", "turn_index")
    assert ordered["status"].to_list() == [verdict["status"] for verdict in whole["verdict"]]
    assert ordered["speedup"].to_list() == [verdict["speedup"] for verdict in whole["verdict"]]
    assert ordered["agent"].to_list() == whole["agent"].to_list()
    for place in (0, len(whole) - 1):
        assert read_turn_rows(file, ordered["row"][place], 1) == [whole.row(place, named=True)]
    assert read_turn_rows(file, len(whole), 1) == []


def test_single_columns_of_a_foreign_file_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"trajectory_id": ["x"]}), tmp_path / "turns.parquet")
    with pytest.raises(InputError, match=r"expected kernelmill\.schema_version"):
        read_turn_leaves(tmp_path / "turns.parquet", ["trajectory_id"])
