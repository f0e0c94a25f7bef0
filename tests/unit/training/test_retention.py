"""The newest interim checkpoints stay, and the best one; what belongs to another training goes."""

import errno
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import is_available, publish, published_digest
from tasks.training.checkpoint import OPTIMIZER_FILE
from tasks.training.retention import (
    Metric,
    best_policy,
    checkpoint_metadata,
    find_interim,
    find_newest,
    keep_newest_and_best,
    keep_optimizers,
    keep_weights,
)

LOSSES = (0.9, 0.4, 0.6, 0.4, 0.8)


def write(folder: Path) -> None:
    for number, loss in enumerate(LOSSES, start=1):
        row = {"loss": loss, "return_mean": -loss, "validation_loss": None}
        with publish(folder / f"step-{number:08d}", checkpoint_metadata("this", number, row)):
            pass
    with publish(folder / "step-00000009", checkpoint_metadata("another", 9, {"loss": 0.0})):
        pass
    (folder / "step-00000010").mkdir()  # killed while it was written


@pytest.mark.parametrize(
    ("keep", "metric", "kept"),
    [
        (1, None, [5]),
        (2, None, [4, 5]),
        (1, "loss", [2, 5]),
        (2, "return_mean", [2, 4, 5]),
        (1, "validation_loss", [5]),
        (9, "loss", [1, 2, 3, 4, 5]),
    ],
)
def test_the_newest_and_the_best_stay(tmp_path: Path, keep: int, metric: Metric | None, kept: list[int]) -> None:
    write(tmp_path)
    assert find_newest(tmp_path, "this") == (tmp_path / "step-00000005", 5)
    keep_newest_and_best(tmp_path, "this", keep, metric)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{number:08d}" for number in kept]
    assert find_newest(tmp_path, "another") == (None, 0)


def test_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    for number in (1, 2):
        with publish(tmp_path / f"step-{number:08d}", checkpoint_metadata("this", number, {"loss": 1.0})) as folder:
            (folder / "weights").write_bytes(bytes(9))
    assert find_newest(tmp_path, "this") == (tmp_path / "step-00000002", 2)
    (tmp_path / "step-00000002" / "weights").write_bytes(bytes(8) + b"x")
    assert find_newest(tmp_path, "this") == (tmp_path / "step-00000001", 1)


def cut(manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:40])


def without_steps(manifest: Path) -> None:
    content = json.loads(manifest.read_text())
    del content["metadata"]["steps"]
    manifest.write_text(json.dumps(content))


def is_a_folder(manifest: Path) -> None:
    manifest.unlink()
    manifest.mkdir()


FAULTS: dict[str, Callable[[Path], object]] = {
    "truncated": cut,
    "empty": lambda manifest: manifest.write_bytes(b""),
    "no JSON": lambda manifest: manifest.write_text("<html>503</html>"),
    "no text": lambda manifest: manifest.write_bytes(bytes(range(128, 256))),
    "another JSON": lambda manifest: manifest.write_text("[1, 2]"),
    "without steps": without_steps,
    "folder": is_a_folder,
    "no permission": lambda manifest: manifest.chmod(0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_whose_manifest_cannot_be_read_is_no_checkpoint(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"step": step, "loss": 1.0} for step in range(4)]
    start = find_interim(tmp_path, "this")
    for steps in (1, 2, 3):
        with start.save(0, rows[:steps], steps, keep=3, metric=None) as folder:
            (folder / "weights").write_bytes(bytes(9))
    manifest = tmp_path / "step-00000003" / "manifest.json"
    FAULTS[fault](manifest)
    read_text = Path.read_text

    def refused(path: Path, *arguments: str, **named: str) -> str:
        if path.exists() and path.stat().st_mode & 0o777 == 0:  # the superuser may read all the same
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", refused)
    with caplog.at_level(logging.WARNING, "kernelmill.training"):
        found = find_interim(tmp_path, "this")
    assert (found.resume, found.steps, found.rows) == (tmp_path / "step-00000002", 2, tuple(rows[:2]))
    (said,) = caplog.messages
    assert f"{manifest.parent}: no interim checkpoint" in said
    assert "\n" not in said
    with found.save(0, rows[:3], 3, keep=2, metric="loss"):
        pass  # its place is taken by the checkpoint that is made again
    assert find_interim(tmp_path, "this").resume == tmp_path / "step-00000003"
    FAULTS[fault](manifest)
    with found.save(0, rows[:4], 4, keep=2, metric="loss"):
        pass
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000001", "step-00000002", "step-00000004"]


def test_a_disk_that_fails_removes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"step": step, "loss": 1.0} for step in range(3)]
    start = find_interim(tmp_path, "this")
    with start.save(0, rows[:1], 1, keep=1, metric=None) as folder:
        (folder / "weights").write_bytes(bytes(9))
    read_text = Path.read_text

    def fails(path: Path, *arguments: str, **named: str) -> str:
        if path.parent.name.startswith("step-"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read_text(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", fails)
        with pytest.raises(OSError, match="Input/output error"):
            keep_newest_and_best(tmp_path, "this", 1, None)
    assert find_interim(tmp_path, "this").steps == 1


@pytest.mark.parametrize(("interval", "whole"), [(1, range(8)), (3, (0, 3, 6, 7)), (50, (0, 6, 7))])
def test_some_policies_keep_their_optimizer_and_all_their_weights(tmp_path: Path, interval: int, whole: range) -> None:
    policies: dict[int, CheckpointRef] = {}
    for version in range(8):
        folder = tmp_path / f"policy-{version}"
        with publish(folder, {"policy": version}) as partial:
            for file in ("model.safetensors", OPTIMIZER_FILE, f"critic/{OPTIMIZER_FILE}", "critic/model.safetensors"):
                (partial / file).parent.mkdir(parents=True, exist_ok=True)
                (partial / file).write_text("x")
        policies[version] = CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=version)
        keep_optimizers(policies, interval)
    for version, policy in policies.items():
        assert is_available(policy)
        assert (policy.path / OPTIMIZER_FILE).exists() == (version in whole)
        assert (policy.path / "critic" / OPTIMIZER_FILE).exists() == (version in whole)
        assert (policy.path / "model.safetensors").exists()
        assert (policy.path / "critic/model.safetensors").exists()


@pytest.mark.parametrize(
    ("interval", "staleness", "kept"),
    [(1, 0, range(9)), (4, 0, (0, 3, 4, 7, 8)), (100, 0, (0, 3, 7, 8)), (100, 2, (0, 1, 5, 6, 7, 8))],
)
def test_weights_are_kept_of_the_newest_the_best_every_nth_and_the_first(
    tmp_path: Path, interval: int, staleness: int, kept: Sequence[int]
) -> None:
    returns = [0.1, 0.3, 0.2, 0.9, 0.4, 0.5, 0.1, 0.2]  # of batch 0, 1, …: who wrote batch 3 is the best
    policies: dict[int, CheckpointRef] = {}
    for version in range(9):
        folder = tmp_path / f"policy-{version}"
        with publish(folder, {"policy": version}) as partial:
            for file in ("model.safetensors", OPTIMIZER_FILE, "critic/model.safetensors", "config.json"):
                (partial / file).parent.mkdir(parents=True, exist_ok=True)
                (partial / file).write_text("x")
            if version:
                pl.DataFrame({"return_mean": [returns[version - 1]] * 2}).write_parquet(partial / "metrics.parquet")
        policies[version] = CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=version)
    assert best_policy(policies, staleness) == 3 - staleness
    keep_weights(policies, interval, staleness)
    for version, policy in policies.items():
        assert is_available(policy)
        assert (policy.path / "model.safetensors").exists() == (version in kept)
        assert (policy.path / "critic/model.safetensors").exists() == (version in kept)
        assert (policy.path / OPTIMIZER_FILE).exists() == (version in kept)
        assert (policy.path / "config.json").exists()
        assert (policy.path / "metrics.parquet").exists() == (version > 0)


def test_the_weights_beside_the_newest_optimizer_state_stay(tmp_path: Path) -> None:
    """Of policies 0 to 7, every third has the state; later updates may have to be made again from the last of them."""
    policies: dict[int, CheckpointRef] = {}
    for version in range(8):
        folder = tmp_path / f"policy-{version}"
        with publish(folder, {"policy": version}) as partial:
            (partial / "model.safetensors").write_text("x")
            if version % 3 == 0:
                (partial / OPTIMIZER_FILE).parent.mkdir()
                (partial / OPTIMIZER_FILE).write_text("x")
        policies[version] = CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=version)
        keep_weights(policies, 100)
        newest = version - version % 3
        kept = {number for number, policy in policies.items() if (policy.path / "model.safetensors").exists()}
        assert kept == {0, newest, version, max(version - 1, 0)}
