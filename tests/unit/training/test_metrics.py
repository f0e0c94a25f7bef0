"""Updates on one batch are compared metric by metric; updates on different batches are not."""

from pathlib import Path

import polars as pl
import pytest

from kernels_eval.errors import InputError
from tasks.pipeline.store import publish
from tasks.training.metrics import compare_updates


def checkpoint(folder: Path, batch: str, loss: list[float]) -> Path:
    with publish(folder, {"batch": batch}) as partial:
        pl.DataFrame({"step": range(len(loss)), "loss": loss, "samples": [8] * len(loss)}).write_parquet(
            partial / "metrics.parquet"
        )
    return folder


def test_means_and_the_largest_difference(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "a", "b1", [1.0, 2.0, 3.0])
    second = checkpoint(tmp_path / "b", "b1", [1.0, 2.5, 2.9])
    found = compare_updates(first, second)
    assert found.row(0, named=True) == {
        "metric": "loss",
        "first": 2.0,
        "second": pytest.approx(6.4 / 3),
        "largest_difference": 0.5,
        "at_step": 1,
    }
    assert found.row(1) == ("samples", 8.0, 8.0, 0.0, 0)
    shorter = compare_updates(first, checkpoint(tmp_path / "c", "b1", [1.0]))
    assert shorter["largest_difference"].to_list() == [None, None]


def test_other_batches_and_other_folders_are_refused(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "a", "b1", [1.0])
    with pytest.raises(InputError, match=r"trained on the batch b2, expected b1"):
        compare_updates(first, checkpoint(tmp_path / "b", "b2", [1.0]))
    with pytest.raises(InputError, match=r"nowhere: expected the published checkpoint of an update"):
        compare_updates(first, tmp_path / "nowhere")
