"""Live tracking with the real library, offline and with a server that is not there; and one that raises or hangs."""

import json
import logging
import multiprocessing
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.tracking.config import TrackingConfig
from tasks.tracking.figures import new_line
from tasks.tracking.live import SENT_FILE, LiveTracking
from tasks.tracking.samples import COLUMNS
from tasks.tracking.steps import StepLine, step_lines
from tasks.tracking.wandb_run import TrackedRun

ROLLOUT = {"correct": 0.75, "kl": None, "statuses": {"timeout": 0.125}, "correct_ci": [0.5, 0.875]}


@pytest.fixture(autouse=True)
def _no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


def opened(folder: Path, **settings: Any) -> LiveTracking:
    tracked = TrackedRun(
        run_id="local-1a2b3c4d",
        series="local",
        directory=str(folder),
        configuration={"update": {"learning_rate": 1e-3}},
        orchestration={"prefect_flow_run_id": "f-1"},
    )
    return LiveTracking(TrackingConfig(**settings), tracked)


def trained(folder: Path) -> CheckpointRef:
    folder = folder / "store" / "update" / "0123456789abcdef"
    folder.mkdir(parents=True)
    table = pl.DataFrame({"step": [8, 9], "loss": [0.5, 0.25], "kl": [0.0, None], "note": ["a", "b"]})
    table.write_parquet(folder / "metrics.parquet")
    return CheckpointRef(uri=str(folder), digest="d")


def play(tracking: LiveTracking, checkpoint: CheckpointRef, iterations: int) -> None:
    for iteration in range(iterations):
        tracking.log_line(new_line(iteration, "rollout", f"r{iteration}", ROLLOUT))
    tracking.log_line(new_line(7, "evaluation", "e", {"correct": 0.625}))
    tracking.log_metrics(checkpoint)
    tracking.finish()


def runs_in(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("offline-run-*"))


def written(folder: Path, until: str) -> str:
    """Return all that W&B wrote as text; its own process writes the file, shortly after a run has ended."""
    deadline = time.monotonic() + 120
    while until not in (text := "".join(_records(folder))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return text


def _records(folder: Path) -> list[str]:
    """Read W&B's log back: seven bytes of file header, then records of checksum (4), length (2), kind (1) and content."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("*.wandb")
    content = file.read_bytes()
    assert len(content) < 32768  # one block: records are not split
    records: list[str] = []
    place = 7
    while place + 7 <= len(content):
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        if place + 7 + length > len(content):
            break  # being written
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content[place + 7 : place + 7 + length])
        records.append(str(record))
        place += 7 + length
    return records


def test_one_offline_run_holds_everything_and_the_next_driver_adds_what_is_new(tmp_path: Path):
    run_dir, checkpoint = tmp_path / "run", trained(tmp_path / "checkpoint")
    first = opened(run_dir)
    play(first, checkpoint, iterations=2)
    assert first.address is not None
    text = written(Path(first.address), 'value_json: "9"')
    for words in ("local-1a2b3c4d", "rollout/correct", "0.75", "rollout/statuses/timeout", "heldout/correct", "f-1"):
        assert words in text
    assert "rollout/correct_ci_low" in text
    assert "rollout/kl" not in text
    assert "update_step/note" not in text
    assert 'step_metric: "iteration"' in text
    for number in ("0", "1", "7", "8", "9"):
        assert f'value_json: "{number}"' in text

    again = opened(run_dir)
    play(again, checkpoint, iterations=2)
    assert runs_in(run_dir) == [Path(first.address)], "everything was logged: no W&B run is begun"
    assert again.address == first.address

    third = opened(run_dir)
    play(third, checkpoint, iterations=3)
    (new,) = {*runs_in(run_dir)} - {Path(first.address)}
    text = written(new, 'value_json: "2"')
    assert text.count("rollout/correct_ci_low") <= 2, "iteration 2 alone"
    assert "heldout/correct" not in text.replace("heldout/*", "")


def test_some_kernels_of_each_rollout_are_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    run_dir = tmp_path / "run"
    tables = Path(__file__).parents[2] / "unit/trajectories/schema_1"
    batch = TrajectoryBatchRef(uri=str(tables), digest="b", run_id="r", iteration=0, trajectories=3, turns=5)
    gone = batch.model_copy(update={"uri": str(tmp_path / "gone"), "digest": "g"})
    first = opened(run_dir)
    first.log_samples(0, batch)
    first.log_samples(1, gone)
    first.log_line(new_line(1, "rollout", "r1", ROLLOUT))
    first.finish()
    assert "no samples of iteration 1 are logged" in caplog.text
    assert first.address is not None
    (file,) = Path(first.address, "files").rglob("*.table.json")
    table = json.loads(file.read_text())
    assert tuple(table["columns"]) == COLUMNS
    rewards = [row[COLUMNS.index("reward")] for row in table["data"]]
    assert rewards == sorted(rewards, reverse=True)
    assert len(rewards) == 4, "the turn in which the machine failed is left out"
    again = opened(run_dir)
    again.log_samples(0, batch)
    again.finish()
    assert len(runs_in(run_dir)) == 1


def test_a_torn_note_has_its_row_logged_again(tmp_path: Path):
    run_dir, checkpoint = tmp_path / "run", trained(tmp_path / "checkpoint")
    play(opened(run_dir), checkpoint, iterations=1)
    noted = run_dir / SENT_FILE
    noted.write_bytes(noted.read_bytes()[:-5])
    play(opened(run_dir), checkpoint, iterations=1)
    assert len(runs_in(run_dir)) == 2


def test_steps_come_while_they_are_trained_and_a_resumed_training_goes_on_where_the_killed_one_was(tmp_path: Path):
    run_dir = tmp_path / "run"
    lines = step_lines("sft", "key", [{"step": step, "loss": 8.0 - step, "validation_loss": None} for step in range(6)])
    driver = multiprocessing.get_context("spawn").Process(target=log_until_killed, args=(run_dir, lines[:4]))
    driver.start()
    driver.join(120)
    assert driver.exitcode == -signal.SIGKILL
    resumed = opened(run_dir)
    resumed.log_steps(lines[2:5])
    resumed.log_steps(lines)
    resumed.finish()
    assert resumed.address is not None
    ours = _rows(written(Path(resumed.address), 'value_json: "5"'))
    assert [(row["step"], row["sft/loss"], row["_step"]) for row in ours] == [(4, 4.0, 4), (5, 3.0, 5)]
    (first,) = {*runs_in(run_dir)} - {Path(resumed.address)}
    theirs = _rows(written(first, 'value_json: "3"'))
    assert [(row["step"], row["sft/loss"], row["_step"]) for row in theirs] == [(n, 8.0 - n, n) for n in range(4)]


def log_until_killed(run_dir: Path, lines: list[StepLine]) -> None:
    """A driver that is killed once its steps are noted as logged."""
    os.environ.pop("WANDB_SERVICE", None)  # W&B's process of the tests, which would go on
    tracking, noted = opened(run_dir), run_dir / SENT_FILE
    for line in lines:
        tracking.log_steps([line])
    while not (noted.is_file() and len(noted.read_text().splitlines()) == len(lines)):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def _rows(text: str) -> list[dict[str, float]]:
    """Return the rows of the history in W&B's log."""
    items = re.findall(r'item \{\s+(?:nested_key|key): "([^"]+)"\s+value_json: "([^"]+)"', text)
    rows: list[dict[str, float]] = [{}]
    for name, value in items:
        if name in rows[-1]:
            rows.append({})
        rows[-1][name] = json.loads(value)
    return [row for row in rows if "step" in row]


def test_another_project_gets_everything(tmp_path: Path):
    run_dir, checkpoint = tmp_path / "run", trained(tmp_path / "checkpoint")
    play(opened(run_dir), checkpoint, iterations=1)
    play(opened(run_dir, project="other"), checkpoint, iterations=1)
    assert len(runs_in(run_dir)) == 2


def test_disabled_needs_nothing_and_writes_nothing(tmp_path: Path):
    tracking = opened(tmp_path / "run", mode="disabled")
    play(tracking, trained(tmp_path / "checkpoint"), iterations=1)
    assert tracking.address is None
    assert not (tmp_path / "run").exists()


def test_a_missing_key_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    tracking = opened(tmp_path / "run", mode="online")
    with caplog.at_level(logging.WARNING):
        play(tracking, trained(tmp_path / "checkpoint"), iterations=3)
    assert tracking.address is None
    assert sum("goes on without it" in record.message for record in caplog.records) == 1
    assert not (tmp_path / "run" / SENT_FILE).exists()


class Failing:
    """A W&B run whose first rows are taken; then the library raises."""

    offline, dir = True, "/nowhere/files"

    def __init__(self) -> None:
        self.taken = 0

    def log(self, _figures: dict[str, float], step: int, commit: bool) -> None:
        if self.taken == 2:
            raise RuntimeError("the disk of W&B is full")
        self.taken += 1

    def define_metric(self, *_: object, **__: object) -> None: ...

    def finish(self) -> None: ...


def test_a_wandb_that_raises_is_one_warning_and_the_rest_is_for_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("wandb.init", lambda **_: Failing())
    with caplog.at_level(logging.WARNING):
        play(opened(tmp_path / "run"), trained(tmp_path / "checkpoint"), iterations=5)
    assert [record.message for record in caplog.records if "disk of W&B" in record.message] == [
        "Weights & Biases: the disk of W&B is full; this run goes on without it"
    ]
    assert len((tmp_path / "run" / SENT_FILE).read_text().splitlines()) == 2


def test_a_wandb_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    released = threading.Event()

    def hang(**_: object) -> Failing:
        released.wait(120)
        return Failing()

    monkeypatch.setattr("wandb.init", hang)
    tracking = opened(tmp_path / "run")
    began = time.monotonic()
    for iteration in range(1000):
        tracking.log_line(new_line(iteration, "rollout", f"r{iteration}", ROLLOUT))
    logged = time.monotonic() - began
    with caplog.at_level(logging.WARNING):
        tracking.finish(patience_s=0.2)
    released.set()
    assert logged < 20
    assert any("not done after" in record.message for record in caplog.records)
