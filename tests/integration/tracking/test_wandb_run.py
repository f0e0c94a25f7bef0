"""Tracking with the real library, offline, disabled, and with a server that is not there."""

import logging
import time
from pathlib import Path

import polars as pl
import pytest

from tasks.pipeline.references import CheckpointRef, EvaluationRef
from tasks.tracking.config import TrackingConfig
from tasks.tracking.wandb_run import TrackedStage, log_evaluation, log_metrics, tracked


def _stage(folder: Path, name: str = "update") -> TrackedStage:
    return TrackedStage(
        run_id="local-1a2b3c4d",
        stage=name,
        series="local",
        directory=str(folder),
        configuration={"update": {"learning_rate": 1e-3}},
        orchestration={"prefect_flow_run_id": "f-1"},
    )


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """An offline run with metrics and an evaluation; the folder, and all that was written as text."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    pl.DataFrame({"loss": [0.5, 0.25], "kl": [0.0, None], "note": ["a", "b"]}).write_parquet(
        checkpoint / "metrics.parquet"
    )
    (checkpoint / "evaluation.json").write_text(
        '{"overall": {"correct": 0.75, "correct_ci": [0.5, 0.875], "pass_4_ci": null}}'
    )
    with tracked(TrackingConfig(), _stage(tmp_path)) as tracker:
        address = tracker.address
        following = log_metrics(tracker, CheckpointRef(uri=str(checkpoint), digest="d"), "update", first_step=8)
        assert following == 10
        log_evaluation(tracker, EvaluationRef(uri=str(checkpoint), digest="d", policy_digest="p"), following)
    assert address is not None
    deadline = time.monotonic() + 120  # W&B's own process writes the file, shortly after a run has ended
    while 'value_json: "10"' not in (text := "".join(_records(Path(address)))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return Path(address), text


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


def test_offline_runs_hold_everything(written: tuple[Path, str]) -> None:
    folder, text = written
    assert folder.name.startswith("offline-run-")
    for words in ("local-1a2b3c4d-update", "update/loss", "0.25", "heldout/correct", "0.875", "f-1"):
        assert words in text
    assert "update/note" not in text
    for step in ("8", "9", "10"):
        assert f'value_json: "{step}"' in text


def test_disabled_needs_nothing_and_writes_nothing(tmp_path: Path) -> None:
    with tracked(TrackingConfig(mode="disabled"), _stage(tmp_path / "runs")) as tracker:
        tracker.log(0, {"loss": 1.0})
        assert tracker.address is None
    assert not (tmp_path / "runs").exists()


def test_two_stages_are_two_runs_and_a_stage_may_run_again(tmp_path: Path) -> None:
    for name in ("sft", "update", "update"):
        with tracked(TrackingConfig(), _stage(tmp_path, name)) as tracker:
            tracker.log(0, {"loss": 1.0})
            assert tracker.address is not None
    names = [path.name for path in (tmp_path / "wandb").glob("offline-run-*")]
    assert sum("local-1a2b3c4d-sft" in name for name in names) == 1
    assert sum("local-1a2b3c4d-update" in name for name in names) == 2


def test_a_missing_key_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with caplog.at_level(logging.WARNING), tracked(TrackingConfig(mode="online"), _stage(tmp_path)) as tracker:
        tracker.log(0, {"loss": 1.0})
        assert tracker.address is None
    assert sum("goes on without it" in record.message for record in caplog.records) == 1


def test_an_error_of_the_stage_itself_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), tracked(TrackingConfig(mode="disabled"), _stage(tmp_path)):
        _ = 1 / 0
