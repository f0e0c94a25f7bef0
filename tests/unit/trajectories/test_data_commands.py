"""`kernelmill data …` on real tables."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from flows.cli.main import run
from flows.run.state import RunState, kept_artifacts, write_state
from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import find_garbage, publish, remove
from tasks.trajectories.data_sets import compare_data_sets, find_quarantines
from tasks.trajectories.derived import compact
from tasks.trajectories.reader import find_batches, read_turns_file
from tasks.validation.quarantine import write_quarantine

Runs = Callable[[int], Path]


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert run(["data", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_ls_and_show(run_folder: Runs, capsys: pytest.CaptureFixture[str]):
    folder = run_folder(3)
    listed = said(capsys, "ls", folder)
    assert "3 data sets" in listed
    turns = sum(read_turns_file(batch / "turns.parquet").height for batch in find_batches(folder))
    assert f"{turns:,} turns" in listed
    shown = said(capsys, "show", folder, "--rows", "2")
    assert "response_token_ids: List(Int32)" in shown
    assert "kernelbench" in shown
    assert said(capsys, "ls", "/nowhere", code=2).startswith("error:")


def test_a_data_set_does_not_differ_from_itself(run_folder: Runs, capsys: pytest.CaptureFixture[str]):
    folder = run_folder(2)
    assert "no difference" in said(capsys, "diff", folder, folder)


def test_what_differs_is_counted_by_column(stored: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trajectories = stored.trajectories(3)
    stored.batch(trajectories, tmp_path / "one")
    from dataclasses import replace

    first, *others = trajectories
    changed = replace(first, turns=(replace(first.turns[0], response_text="other"), *first.turns[1:]))
    stored.batch([changed, *others[:-1]], tmp_path / "two")
    found = compare_data_sets(tmp_path / "one", tmp_path / "two")
    assert found.columns["response_text"] == 1
    assert found.only_first == len(trajectories[-1].turns)
    assert found.only_second == 0
    assert found.example is not None
    assert found.example.startswith(first.trajectory_id)
    assert "response_text: 1 differ" in said(capsys, "diff", tmp_path / "one", tmp_path / "two", code=1)


def test_data_sets_of_several_runs_are_not_compared_turn_by_turn(stored: SimpleNamespace, tmp_path: Path):
    from dataclasses import replace

    trajectories = stored.trajectories(3)
    for run_id in ("a", "b"):
        stored.batch([replace(each, run_id=run_id) for each in trajectories], tmp_path / "both" / run_id)
    with pytest.raises(InputError, match=r"both: expected each turn of an iteration once, .*of the runs a, b"):
        compare_data_sets(tmp_path / "both" / "a", tmp_path / "both")


def test_json_lines_hold_every_column(run_folder: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = run_folder(2)
    said(capsys, "export", folder, tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    turns = pl.concat([read_turns_file(batch / "turns.parquet") for batch in find_batches(folder)])
    assert len(rows) == turns.height
    assert set(rows[0]) == set(turns.columns)
    assert [row["return"] for row in rows] == turns["return"].to_list()
    assert rows[0]["verdict"]["status"] == turns["verdict"].struct.field("status")[0]
    assert "is there already" in said(capsys, "export", folder, tmp_path / "out.jsonl", code=2)
    assert not list(tmp_path.glob(".partial-*"))


def test_hugging_face_datasets_load_the_export(run_folder: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    datasets = pytest.importorskip("datasets")
    folder = run_folder(2)
    assert run(["data", "export", str(folder), str(tmp_path / "hub"), "--format", "huggingface"]) == 0
    loaded: Any = datasets.load_dataset(
        str(tmp_path / "hub"), "turns", split="train", cache_dir=str(tmp_path / "cache")
    )
    turns = pl.concat([read_turns_file(batch / "turns.parquet") for batch in find_batches(folder)])
    assert loaded.num_rows == turns.height
    assert loaded["trajectory_id"][:] == turns["trajectory_id"].to_list()


def test_compacted_it_is_the_same_data_set(run_folder: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = run_folder(3)
    said(capsys, "compact", folder, tmp_path / "whole")
    assert compare_data_sets(folder, tmp_path / "whole").is_none
    assert "0–2" in said(capsys, "ls", tmp_path / "whole")
    with pytest.raises(InputError, match="is there already"):
        compact(find_batches(folder), tmp_path / "whole")


def test_one_iteration_twice_is_refused_and_leaves_nothing(run_folder: Runs, tmp_path: Path):
    (batch,) = find_batches(run_folder(1))
    copy = tmp_path / "copy"
    import shutil

    shutil.copytree(batch, copy)
    with pytest.raises(InputError, match="both hold iteration 0"):
        compact([batch, copy], tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def artifact(folder: Path, text: str = "x") -> Path:
    with publish(folder) as partial:
        (partial / "x").write_text(text)
    return folder


def test_gc_keeps_what_runs_refer_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = tmp_path / "runs"
    policy = artifact(runs / "store" / "sft" / "a")
    raw = artifact(runs / "store" / "rollout" / "b")
    gone = artifact(runs / "store" / "rollout" / "c", "of a run that was removed")
    (runs / "store" / "rollout" / ".partial-d").mkdir()
    (runs / "work" / "sft" / "a").mkdir(parents=True)
    (runs / "work" / "sft" / "unfinished").mkdir()
    run_dir = runs / "demo"
    run_dir.mkdir()
    state = RunState(policies={0: CheckpointRef(uri=str(policy), digest="d")}, artifacts={"rollout 0": str(raw)})
    write_state(run_dir, state)
    (runs / "latest").symlink_to("demo")
    assert find_garbage(runs, kept_artifacts(runs), 3600) == []  # all of it is young
    found = {item.path for item in find_garbage(runs, kept_artifacts(runs), 0)}
    assert found == {gone, runs / "store" / "rollout" / ".partial-d", runs / "work" / "sft" / "a"}
    assert "3 can go" in said(capsys, "gc", runs, "--older-than-days", "0")
    assert gone.exists()
    said(capsys, "gc", runs, "--older-than-days", "0", "--delete")
    assert not gone.exists()
    assert policy.exists()
    assert raw.exists()
    assert (runs / "work" / "sft" / "unfinished").exists()


def test_gc_keeps_what_a_run_links_to_whose_state_was_lost(tmp_path: Path):
    runs = tmp_path / "runs"
    policy, gone = artifact(runs / "store" / "sft" / "a"), artifact(runs / "store" / "sft" / "b")
    (runs / "demo" / "checkpoints").mkdir(parents=True)
    (runs / "demo" / "checkpoints" / "policy-000").symlink_to(policy)
    assert [item.path for item in find_garbage(runs, kept_artifacts(runs), -3600)] == [gone]


def test_gc_keeps_everything_of_a_run_that_did_not_note_its_artifacts(tmp_path: Path):
    runs = tmp_path / "runs"
    raw = artifact(runs / "store" / "rollout" / "b")
    (runs / "demo").mkdir()
    write_state(runs / "demo", RunState(policies={0: CheckpointRef(uri=str(raw.parent), digest="d")}))
    later = artifact(runs / "store" / "rollout" / "later")
    os.utime(later, (time.time() + 60, time.time() + 60))
    assert [item.path for item in find_garbage(runs, kept_artifacts(runs), -3600)] == [later]
    freed, kept = remove(find_garbage(runs, kept_artifacts(runs), -3600))
    assert freed > 0
    assert not kept


def test_gc_removes_cache_records_of_what_goes(tmp_path: Path):
    runs = tmp_path / "runs"
    gone = artifact(runs / "store" / "rollout" / "c")
    results = runs / "prefect" / "results"
    results.mkdir(parents=True)
    for name, uri in (("c", gone), ("other", runs / "store" / "sft" / "a")):
        (results / name).write_text(json.dumps({"result": json.dumps({"data": {"reference": {"uri": str(uri)}}})}))
    (results / "broken").write_text("{")
    found = {item.path for item in find_garbage(runs, [], 0)}
    assert found == {gone, results / "c"}


def test_quarantine_names_rows_and_reasons(stored: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trajectories = stored.trajectories(3)
    batch = stored.batch(trajectories, tmp_path / "raw").path
    bad = trajectories[0].trajectory_id
    reasons = {bad: f"{bad}-0: reward out of range\n{bad}-1: reward out of range"}
    runs = tmp_path / "runs"
    files = [batch / "trajectories.parquet", batch / "turns.parquet"]
    write_quarantine(runs / "quarantine" / "run_id=demo-1" / "iteration=0", files, "trajectory_id", reasons, str(batch))
    (found,) = find_quarantines(runs)
    assert found.reasons.rows() == [("reward out of range", 2)]
    text = said(capsys, "quarantine", runs)
    assert f"1 taken out of {batch}" in text
    assert "2 × reward out of range" in text
    assert bad in text
    assert "nothing was taken out" in said(capsys, "quarantine", runs, "--run", "other")
    assert said(capsys, "quarantine", "/nowhere", code=2).startswith("error:")
