"""The drill: a server, a worker, a deployment, and everything that goes wrong with them.

The worker is killed with all that it started in the middle of each stage in turn, a run is cancelled, a validation is broken on purpose,
a disk is filled. Each time the server must say what failed and why, and the next run must complete without repeating what was
finished. With KERNELMILL_DRILL_SCREENSHOTS=FOLDER the UI's page of each failure is kept there (needs chromium).
KERNELMILL_DRILL_DATABASE=postgresql+asyncpg://… has the server use that database instead of SQLite.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.configuration import load_configuration
from flows.server import start_server

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
MARK = "KERNELMILL_DRILL"
STAGES = ("sft_data", "sft", "heldout_rollout", "rollout", "update")
NAMES = {
    "sft_data": r"SFT data",
    "sft": r"SFT(:|$)",
    "heldout_rollout": r"held-out rollout",
    "rollout": r"rollout \d",
    "update": r"update \d",
}
"""How the names of a stage's task runs begin."""
DISK_MIB = 2600
"""A little more than a run wants to find free."""
SETTINGS = [
    "name=drill", "iterations=1", "control=false", "problems.train=16", "problems.heldout=4", "sft.steps=40", "sft.data.compositions=24",
    "sft.save_interval=10", "sft.warmup_steps=5", "rollout.episode.reward=kernelbench - 0.2*length", "rollout.problems_per_iteration=4", "rollout.samples_per_problem=4", "evaluation.samples_per_problem=2",
    "tracking.mode=disabled", "stages.retries=0", "update.threads_per_rank=1", "rollout.threads=1",
]  # fmt: skip


def is_run_of(stage: str, task_run: dict[str, Any]) -> bool:
    """True for a task run of this stage."""
    return re.match(NAMES[stage], task_run["name"]) is not None


class Drill:
    """A server that stays, and workers that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.server, self.api = start_server(folder / "server", database=os.environ.get("KERNELMILL_DRILL_DATABASE"))
        self.environment = {
            **os.environ,
            "PREFECT_API_URL": self.api,
            "PREFECT_HOME": str(folder / "home"),
            MARK: self.mark,
        }
        self.environment["PYTHONPATH"] = str(ROOT)
        self.worker: subprocess.Popen[bytes] | None = None
        self.prefect("work-pool", "create", "kernelmill", "--type", "process")
        self.prefect("--no-prompt", "deploy", "--all")

    def prefect(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "prefect", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_worker(self) -> None:
        """Start a worker, unless one is there."""
        if self.worker is not None and self.worker.poll() is None:
            return
        with (self.folder / "worker.log").open("ab") as log:
            command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "kernelmill"]
            self.worker = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def processes(self) -> list[int]:
        """Every living process that a worker started, the worker included."""
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill_worker(self) -> None:
        """End the worker and all that it started, as a machine that goes down does."""
        while left := self.processes():
            for process in left:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)
        assert self.worker is not None
        self.worker.wait()

    def start_run(self, *settings: str) -> str:
        config = load_configuration(
            ROOT / "deployments/configs/test.yaml", [*SETTINGS, f"runs_dir={self.runs_dir}", *settings]
        )
        parameters = json.dumps({"config": config.model_dump(mode="json")})
        said = self.prefect("deployment", "run", "training/local", "--params", parameters)
        found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said)
        assert found is not None, said
        return found[0]

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    def run(self, run_id: str) -> dict[str, Any]:
        return httpx.get(f"{self.api}/flow_runs/{run_id}", timeout=30).json()

    def stages(self, run_id: str) -> list[dict[str, Any]]:
        wanted = {"flow_runs": {"id": {"any_": [run_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
        return httpx.post(f"{self.api}/task_runs/filter", json=wanted, timeout=30).json()

    def wait_for_stage(self, run_id: str, stage: str) -> None:
        def begun() -> bool:
            return any(
                is_run_of(stage, run) and run["state_type"] in ("RUNNING", "COMPLETED") for run in self.stages(run_id)
            )

        self.wait(run_id, begun)

    def wait(self, run_id: str, condition: Callable[[], bool], timeout_s: float = 600) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            state = self.run(run_id)["state"]
            assert state["type"] not in ("FAILED", "CRASHED"), state["message"]
            assert time.monotonic() < deadline, state
            time.sleep(0.2)

    def end_of(self, run_id: str, timeout_s: float = 900) -> dict[str, Any]:
        """Return the final state."""
        deadline = time.monotonic() + timeout_s
        while (state := self.run(run_id)["state"])["type"] not in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            assert time.monotonic() < deadline, state
            time.sleep(0.5)
        return state

    def mark_crashed(self, run_id: str) -> None:
        """Say of a run whose worker is gone what heartbeats with an automation would say."""
        state = {"type": "CRASHED", "message": "The worker that ran this is gone."}
        httpx.post(
            f"{self.api}/flow_runs/{run_id}/set_state", json={"state": state, "force": True}, timeout=30
        ).raise_for_status()

    def cached(self) -> set[str]:
        """Labels of the stages that the last run found finished."""
        log = (self.runs_dir / "latest" / "log.txt").read_text(encoding="utf-8")
        return set(re.findall(r": ([^:\n]+): cached", log.rpartition("Beginning flow run")[2] or log))

    def photograph(self, run_id: str, name: str) -> None:
        folder, browser = os.environ.get("KERNELMILL_DRILL_SCREENSHOTS"), shutil.which("chromium")
        if folder is None or browser is None:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        address = f"{self.api.removesuffix('/api')}/runs/flow-run/{run_id}"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1500,1100",
            "--virtual-time-budget=20000",
        ]
        subprocess.run(
            [browser, *options, f"--screenshot={Path(folder) / name}.png", address],
            capture_output=True,
            timeout=180,
            check=False,
        )

    def stop(self) -> None:
        if self.worker is not None:
            self.kill_worker()
        self.server.terminate()
        self.server.wait()


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    folder = tmp_path_factory.mktemp("drill")
    (folder / "runs").mkdir()
    mounted = _mount(folder / "runs")
    started = Drill(folder)
    yield started
    started.stop()
    if mounted:
        subprocess.run(["umount", "--lazy", str(folder / "runs")], check=False)


def _mount(folder: Path) -> bool:
    """Put a small file system there, where this user may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_worker_killed_in_each_stage_costs_no_finished_stage(drill: Drill):
    for stage in STAGES:
        drill.start_worker()
        run_id = drill.start_run()
        drill.wait_for_stage(run_id, stage)
        drill.kill_worker()
        assert drill.run(run_id)["state"]["type"] == "RUNNING"  # a dead worker says nothing
        drill.mark_crashed(run_id)
        drill.photograph(run_id, f"killed-in-{stage}")
    drill.start_worker()
    run_id = drill.start_run()
    state = drill.end_of(run_id)
    assert state["type"] == "COMPLETED", state
    assert {"problem set", "SFT data", "check of the SFT data", "SFT"} <= drill.cached()
    assert (drill.runs_dir / "latest" / "report.html").exists()
    drill.photograph(run_id, "completed")


def test_a_cancelled_run_leaves_no_process(drill: Drill):
    drill.start_worker()
    time.sleep(15)  # until the worker is all there
    before = len(drill.processes())
    run_id = drill.start_run("seed=1")
    drill.wait_for_stage(run_id, "sft")
    assert len(drill.processes()) > before + 3  # driver, Ray, its workers
    drill.prefect("flow-run", "cancel", run_id)
    assert drill.end_of(run_id, 180)["type"] == "CANCELLED"
    deadline = time.monotonic() + 120
    while len(drill.processes()) > before and time.monotonic() < deadline:
        time.sleep(0.5)
    assert len(drill.processes()) <= before
    drill.photograph(run_id, "cancelled")


def test_a_broken_validation_is_named_and_mended(drill: Drill):
    drill.start_worker()
    suites = drill.folder / "suites"
    shutil.copytree(ROOT / "tasks/validation/suites", suites)
    suite = json.loads((suites / "turns.json").read_text())
    impossible = {"column": "reward", "min_value": 100, "max_value": 101}
    suite["expectations"].append(
        {"type": "expect_column_values_to_be_between", "kwargs": impossible, "notes": "rewards are huge"}
    )
    (suites / "turns.json").write_text(json.dumps(suite))
    run_id = drill.start_run(f"validation.suites={suites}")
    state = drill.end_of(run_id)
    assert state["type"] == "FAILED"
    assert "expect_column_values_to_be_between on column reward" in state["message"]
    drill.photograph(run_id, "broken-validation")
    shutil.copy(ROOT / "tasks/validation/suites/turns.json", suites / "turns.json")
    state = drill.end_of(drill.start_run(f"validation.suites={suites}"))
    assert state["type"] == "COMPLETED", state
    assert "rollout 0" in drill.cached()


def test_a_full_disk_is_named_and_the_next_run_completes(drill: Drill):
    if not os.path.ismount(drill.runs_dir):
        pytest.skip("no small file system could be mounted")
    drill.start_worker()
    run_id = drill.start_run("iterations=2")
    filler = drill.runs_dir / "filler"
    drill.wait(run_id, lambda: sum(is_run_of("rollout", run) for run in drill.stages(run_id)) >= 2)
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(2**20))
        except OSError:
            pass
    state = drill.end_of(run_id)
    assert state["type"] == "FAILED"
    assert "No space left on device" in state["message"], state
    drill.photograph(run_id, "disk-full")
    state = drill.end_of(drill.start_run("iterations=2"))
    assert state["type"] == "FAILED"
    assert "GiB are free" in state["message"]
    drill.photograph(run_id, "disk-still-full")
    filler.unlink()
    state = drill.end_of(drill.start_run("iterations=2"))
    assert state["type"] == "COMPLETED", state
    assert "update 0" in drill.cached()
