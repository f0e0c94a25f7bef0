"""Optimizer steps of a run: each is written once, whatever is killed, and a training that begins anew replaces them."""

from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pipeline.references import CheckpointRef
from tasks.tracking.steps import STEPS_FILE, StepRecord, read_steps, step_lines, steps_of, training_of


def rows(*steps: int, loss: float = 1.0) -> list[dict[str, Any]]:
    return [{"step": step, "loss": loss + step, "validation_loss": None, "kl": float("nan")} for step in steps]


def known(folder: Path, training: str = "sft") -> list[tuple[int, dict[str, float]]]:
    return [(line.step, line.figures) for line in read_steps(folder).get(training, [])]


@settings(deadline=None, max_examples=30)
@given(kills=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=6))
def test_a_training_that_is_killed_again_and_again_has_each_step_once_and_in_order(
    kills: list[tuple[int, int, bool]], tmp_path_factory: Any
) -> None:
    folder: Path = tmp_path_factory.mktemp("run")
    reached = 0
    for back, on, torn in [*kills, (20, 20, False)]:
        begin = max(reached - back, 0)
        StepRecord(folder).add(step_lines("sft", "key", rows(*range(begin, begin + on))))
        reached = max(reached, begin + on)
        if torn:
            with (folder / STEPS_FILE).open("a") as file:
                file.write('{"time": "2026')
    assert known(folder) == [(step, {"loss": 1.0 + step}) for step in range(reached)]
    steps = (folder / STEPS_FILE).read_text().count('"step"')
    assert steps == reached, "no step is in the file twice"


def test_a_training_under_another_key_replaces_what_follows_its_first_step(tmp_path: Path) -> None:
    record = StepRecord(tmp_path)
    assert len(record.add(step_lines("update", "a", rows(0, 1)))) == 2
    record.add(step_lines("update", "b", rows(2, 3)))
    record.add(step_lines("sft", "s", rows(0, 1, 2)))
    record.add(step_lines("update", "c", rows(2, loss=5.0)))
    assert known(tmp_path, "update") == [(0, {"loss": 1.0}), (1, {"loss": 2.0}), (2, {"loss": 7.0})]
    assert len(known(tmp_path)) == 3
    assert record.add(step_lines("update", "a", rows(0, 1))) == []


def test_what_is_no_step_is_skipped(tmp_path: Path) -> None:
    (tmp_path / STEPS_FILE).write_bytes(b'\xff\n[1]\n{"step": -1}\n{"step": 0}\n')
    StepRecord(tmp_path).add(step_lines("sft", "key", rows(0)))
    assert known(tmp_path) == [(0, {"loss": 1.0})]
    assert read_steps(tmp_path / "nowhere") == {}


def test_the_steps_of_a_published_training_are_those_of_its_table(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "sft" / "0123"
    folder.mkdir(parents=True)
    pl.DataFrame(rows(0, 1)).write_parquet(folder / "metrics.parquet")
    found = steps_of(CheckpointRef(uri=str(folder), digest="d"))
    assert [(line.training, line.key, line.step) for line in found] == [("sft", "0123", 0), ("sft", "0123", 1)]
    assert steps_of(CheckpointRef(uri=str(tmp_path), digest="d")) == []


def test_a_training_is_named_after_its_stage_and_its_agent() -> None:
    assert training_of("sft", "SFT") == "sft"
    assert training_of("sft", "SFT of the tester") == "sft/tester"
    assert training_of("update", "update 3 of the generator") == "update/generator"
    assert training_of("repairs", "repairs of all agents, after repairs") == "repairs/all_agents"
    assert training_of("control", "control: more SFT") == "control"
