"""A real run whose services are killed in the middle of a stage: Ray's raylet, its control process, Prefect's server."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

CONFIG = Path("deployments/configs/test.yaml").resolve()
STEPS = 600
AGAIN = "Ray has died: it is started again"
SMALL = [
    "problems.train=16", "problems.heldout=4", f"sft.steps={STEPS}", "sft.data.compositions=24", "sft.save_interval=10",
    "sft.warmup_steps=5", "stages.backoff_s=0.5", "update.threads_per_rank=1", "rollout.threads=1",
    "iterations=1", "control=false",
]  # fmt: skip


def kill(driver: subprocess.Popen[bytes], name: str) -> None:
    """Kill the driver's child with this word in its command line."""
    for child in psutil.Process(driver.pid).children():
        if any(name in part for part in child.cmdline()[:4]):
            child.kill()
            return
    raise AssertionError(f"no {name}")


def test_a_run_outlives_its_services(tmp_path: Path):
    log, runs = tmp_path / "log.txt", tmp_path / "runs"
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    command = [sys.executable, "-u", "-m", "flows.cli.main", "train", "--config", str(CONFIG)]
    command += [part for setting in (*SMALL, f"runs_dir={runs}") for part in ("--set", setting)]
    with log.open("wb") as out:
        driver = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def wait_for(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 400
        while not condition():
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def saved() -> int:
        steps = runs.glob("work/sft/*/step-*")
        return max((int(found[1]) for step in steps if (found := re.search(r"step-0*(\d+)$", step.name))), default=0)

    try:
        wait_for(lambda: saved() > 0)
        kill(driver, "raylet")
        wait_for(lambda: log.read_text().count(AGAIN) == 1)
        for name in ("gcs_server", "prefect"):  # a stage that computes needs neither; the next ones do
            before = saved()
            wait_for(lambda before=before: saved() > before)
            kill(driver, name)
        assert driver.wait(timeout=600) == 0, log.read_text()
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    said = log.read_text()
    assert said.count(AGAIN) == 2
    assert said.count("Prefect's server has died: it is started again, the run goes on") == 1
    assert "Traceback" not in said
    assert "Raylet is terminated" not in said
