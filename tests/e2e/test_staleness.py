"""Rollouts by an older policy beside the updates: equal digests after kills in both lines, and what staleness changes.

One straight run; the same one whose driver is killed while stages of both lines compute; and, where nothing
is learned, the batches of a run without staleness.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.trajectories.content import table_digest

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600), pytest.mark.usefixtures("server")]

CONFIG = Path("deployments/configs/test.yaml").resolve()
SMALL = [
    "iterations=3", "control=false", "sft.steps=24", "sft.warmup_steps=5", "sft.data.compositions=16",
    "problems.train=16", "problems.heldout=3", "problems.harder=0", "rollout.problems_per_iteration=4",
    "rollout.samples_per_problem=4", "rollout.episode.reward=kernelbench - 0.2*length", "evaluation.greedy=false",
]  # fmt: skip
WITHIN_S = 900


class Command:
    """`kernelmill train` in a folder of runs, with further settings."""

    def __init__(self, runs: Path, *settings: str) -> None:
        self.runs, self.log = runs, runs.parent / f"{runs.name}-{'-'.join(settings)}.txt"
        given = [*SMALL, *settings, f"runs_dir={runs}"]
        self.arguments = [sys.executable, "-u", "-m", "flows.cli.main", "train", "-c", str(CONFIG)]
        self.arguments += [part for setting in given for part in ("-s", setting)]

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(self.arguments, stdout=out, stderr=out)

    def finish(self) -> Path:
        """Run to the end; return the run's folder."""
        driver = self.start()
        assert driver.wait(WITHIN_S) == 0, self.log.read_text()
        return (self.runs / "latest").resolve()

    def kill_in(self, *labels: str) -> None:
        """Run until all of these stages compute at the same time, then kill the driver with -9."""
        said = self.log.stat().st_size if self.log.exists() else 0
        driver, deadline = self.start(), time.monotonic() + WITHIN_S
        try:
            while True:
                text = self.log.read_bytes()[said:].decode()
                if all(f"  {label}" in text for label in labels):
                    break
                assert driver.poll() is None, text
                assert time.monotonic() < deadline, text
                time.sleep(0.02)
        finally:
            driver.kill()
            driver.wait()
        ended = [label for label in labels if f"✓ {label}:" in text]
        assert len(ended) < len(labels), "one of them at least was going on"


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def content(run: Path, iteration: int, table: str, folder: Path) -> str:
    """Return the digest of a batch's table without what names its run and its policy, and what was measured."""
    frame = pl.read_parquet(run / f"trajectories/iteration={iteration}/{table}.parquet")
    names = {"policy_digest", "weight_version", "group_id", "trajectory_id"}
    frame.drop(names & set(frame.columns)).write_parquet(folder / "named-by-nobody.parquet")
    return table_digest(folder / "named-by-nobody.parquet")


def test_a_run_with_stale_rollouts_killed_in_both_lines_equals_the_undisturbed_one(tmp_path: Path):
    straight = summary(Command(tmp_path / "straight", "rollout.staleness=1").finish())
    assert [each["lag"] for each in straight["iterations"]] == [0, 1, 1]
    killed = Command(tmp_path / "killed", "rollout.staleness=1")
    killed.kill_in("update 0", "rollout 1")
    killed.kill_in("update 0", "held-out rollout of policy 0")
    killed.kill_in("update 1", "rollout 2")
    assert summary(killed.finish())["digests"] == straight["digests"]


@pytest.mark.slow
def test_where_nothing_is_learned_staleness_changes_no_batch(tmp_path: Path):
    still = "update.learning_rate=1.0e-30"
    without = Command(tmp_path / "runs", still, "rollout.staleness=0").finish()
    stale = Command(tmp_path / "runs", still, "rollout.staleness=1").finish()
    assert stale != without
    for iteration in range(3):
        for table in ("turns", "trajectories"):
            found, expected = (content(run, iteration, table, tmp_path) for run in (stale, without))
            assert found == expected, (iteration, table)
