"""The drill: a server, a worker, a deployment, and everything that goes wrong with them.

The worker is killed with all that it started in each stage in turn, runs are cancelled, a validation is broken on purpose, a disk is
filled. Each time the server must say what failed and why, and the next run must complete without repeating what was finished.
With KERNELMILL_DRILL_SCREENSHOTS=FOLDER the UI's page of each failure is kept there (needs chromium).
KERNELMILL_DRILL_DATABASE=postgresql+asyncpg://… has the server use that database instead of SQLite.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from flows.services.alerts import VANISHED_TEMPLATE, mark_vanished_runs
from flows.services.prefect_server import start_server
from flows.services.server_access import server_auth
from flows.settings.configuration import RunConfig, load_configuration

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(5400)]

ROOT = Path(__file__).parents[2]
_PR_SET_CHILD_SUBREAPER = 36
STAGES = {
    "problems": "problem set",
    "validate_problems": "check of the problem set",
    "sft_data": "SFT data",
    "validate_sft_data": "check of the SFT data",
    "sft": "SFT",
    "heldout_rollout": "held-out rollout of policy 0",
    "evaluation": "evaluation of policy 0",
    "rollout": "rollout 0",
    "validate_trajectories": "check of rollout 0",
    "update": "update 0",
    "validate_update": "check of update 0",
    "control": "control: more SFT",
}
"""The label of each stage in a run of one iteration, in the order in which they come."""
NOT_IN_THE_DRILL = {
    "given_policy", "heldout_answers", "team", "joint_rollout", "joint_pairs", "joint_epoch", "repair_rollout",
    "repair_pairs", "repairs", "rejection_rollout", "rejection_pairs", "rejection_epoch",
}  # fmt: skip
"""Stages of a run without SFT, of evaluations of models behind a server, of a team of agents, of SFT that goes on, and
of the rejection-sampling control."""
CANCELLED_IN = {
    "SFT data": "kernels_eval.pool.zygote",
    "SFT": "ray::Rank",
    "held-out rollout of policy 0": "sglang_server.py",
    "update 0": "ray::Rank",
}
"""Long stages, and what a process of theirs is called."""
DISK_MIB = 2600
"""A little more than a run wants to find free."""
SILENCE_S = 75
"""Without a heartbeat until a run counts as gone: shorter than in the shipped automation, so that the drill takes no longer than it must."""
WAIT_S = 900.0
"""Only a hang takes longer."""
SETTINGS = [
    "name=drill", "iterations=1", "control=true", "problems.train=16", "problems.heldout=4", "sft.steps=40", "sft.data.compositions=24",
    "sft.save_interval=10", "sft.warmup_steps=5", "rollout.episode.reward=kernelbench - 0.2*length", "rollout.problems_per_iteration=4",
    "rollout.samples_per_problem=4", "evaluation.samples_per_problem=2", "tracking.mode=disabled", "stages.retries=0",
    "update.threads_per_rank=1", "rollout.threads=1", "evaluation.greedy=false",
]  # fmt: skip
SERVED = [
    "rollout.engine=sglang",
    f"rollout.sglang.command=[{sys.executable}, {ROOT / 'tests/doubles/sglang_server.py'}]",
    "rollout.sglang.gpus_per_server=0",
]
"""Rollouts by an SGLang server that the run starts (a double of one)."""


class Drill:
    """A server that stays, and workers that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server, self.api = start_server(folder / "server", database=os.environ.get("KERNELMILL_DRILL_DATABASE"))
        self.auth = server_auth(folder / "server")
        self.environment = {
            **os.environ,
            "PREFECT_API_URL": self.api,
            "PREFECT_API_AUTH_STRING": self.auth,
            "PREFECT_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT),
        }
        self.worker: subprocess.Popen[bytes] | None = None
        self.logs: dict[str, tuple[Path, int]] = {}
        """Each run's log, and how long it was before that run."""
        deploy = [sys.executable, "-m", "flows.cli.main", "deploy", "deployments/configs/local.yaml"]
        subprocess.run(deploy, cwd=ROOT, env=self.environment, check=True, timeout=WAIT_S)
        self.mark_vanished_runs()

    def signed(self, path: str) -> str:
        return f"{self.api}/{path}".replace("http://", f"http://{self.auth}@")

    def prefect(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "prefect", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def mark_vanished_runs(self) -> None:
        """Install the shipped automation, less patient."""
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        automation = yaml.safe_load(VANISHED_TEMPLATE.read_text(encoding="utf-8"))
        automation["trigger"]["within"] = SILENCE_S
        changed = self.folder / "vanished-runs.yaml"
        changed.write_text(yaml.safe_dump(automation), encoding="utf-8")
        with temporary_settings({PREFECT_API_URL: self.api, PREFECT_API_AUTH_STRING: self.auth}):
            mark_vanished_runs(changed)

    def start_worker(self) -> None:
        """Start a worker, unless one is there, and wait until the server knows it."""
        if self.worker is not None and self.worker.poll() is None:
            return
        known = set(self.workers())
        with (self.folder / "worker.log").open("ab") as log:
            command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "kernelmill"]
            self.worker = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
        wait_until(lambda: set(self.workers()) - known, "the server knows the worker")

    def workers(self) -> dict[str, str]:
        """Name and status of every worker that the server has seen."""
        found = httpx.post(self.signed("work_pools/kernelmill/workers/filter"), json={}, timeout=60).json()
        return {worker["name"]: worker["status"] for worker in found}

    def processes(self) -> dict[int, str]:
        """Command line of every living process that a worker started, the worker included, by its number."""
        servers = {
            self.server.pid,
            *(process.pid for process in psutil.Process(self.server.pid).children(recursive=True)),
        }
        found: dict[int, str] = {}
        for process in psutil.Process().children(recursive=True):
            try:
                if process.pid in servers:
                    continue
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
                elif self.worker is None or process.pid != self.worker.pid:
                    os.waitpid(process.pid, os.WNOHANG)  # an adopted one; nobody else waits for it
            except (psutil.Error, ChildProcessError):
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

    def configuration(self, *settings: str) -> RunConfig:
        return load_configuration(
            ROOT / "deployments/configs/test.yaml", [*SETTINGS, f"runs_dir={self.runs_dir}", *settings]
        )

    def start_run(self, *settings: str) -> str:
        """Have the deployment run; return the flow run's id."""
        config = self.configuration(*settings)
        log = self.runs_dir / config.run_id / "log.txt"
        before = log.stat().st_size if log.exists() else 0
        parameters = json.dumps({"config": config.model_dump(mode="json")})
        said = self.prefect("deployment", "run", "training/local", "--params", parameters)
        found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said)
        assert found is not None, said
        self.logs[found[0]] = log, before
        return found[0]

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    def log_of(self, run_id: str) -> str:
        """Log of this flow run; earlier ones of the same configuration have not."""
        path, before = self.logs[run_id]
        return path.read_bytes()[before:].decode(errors="replace") if path.exists() else ""

    def cached(self, run_id: str) -> set[str]:
        """Labels of the stages that a run found finished."""
        return set(re.findall(r"prefect\.flow_runs: (.+): cached$", self.log_of(run_id), re.MULTILINE))

    def state(self, run_id: str) -> dict[str, Any]:
        return httpx.get(self.signed(f"flow_runs/{run_id}"), timeout=60).json()["state"]

    def wait_for_stage(self, run_id: str, label: str) -> None:
        """Wait until a stage begins to compute."""

        def begun() -> bool:
            if f"prefect.flow_runs: {label}: started\n" in self.log_of(run_id):
                return True
            state = self.state(run_id)
            assert state["type"] not in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), state
            return False

        wait_until(begun, f"{label} begins", 0.05)

    def end_of(self, run_id: str) -> dict[str, Any]:
        """Return the final state."""
        final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
        wait_until(lambda: self.state(run_id)["type"] in final, f"{run_id} ends", 0.5)
        return self.state(run_id)

    def photograph(self, run_id: str, name: str) -> None:
        """Keep the pages of a flow run as the UI shows them: its log, and its state with the reason."""
        folder, browser = os.environ.get("KERNELMILL_DRILL_SCREENSHOTS"), shutil.which("chromium")
        if folder is None or browser is None:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1500,2600",
            "--virtual-time-budget=20000",
        ]
        for tab in ("Logs", "Details"):
            target = f"--screenshot={Path(folder) / name}-{tab.lower()}.png"
            address = f"{self.api.removesuffix('/api')}/runs/flow-run/{run_id}?tab={tab}"
            subprocess.run([browser, *options, target, address], capture_output=True, timeout=WAIT_S, check=False)

    def stop(self) -> None:
        if self.worker is not None:
            self.kill_worker()
        self.server.terminate()
        self.server.wait()


def wait_until(condition: Callable[[], object], what: str, interval_s: float = 0.5) -> None:
    """Wait for something that comes, unless something hangs."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s until {what}"
        time.sleep(interval_s)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    # What outlives its parent becomes a child of this process: judges start theirs with an environment of their own, so that no mark
    # in it would tell whose they are.
    adopting = ctypes.CDLL(None).prctl
    adopting(_PR_SET_CHILD_SUBREAPER, 1)
    folder = tmp_path_factory.mktemp("drill")
    (folder / "runs").mkdir()
    mounted = _mount(folder / "runs")
    try:
        started = Drill(folder)
        try:
            yield started
        finally:
            started.stop()
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder / "runs")], check=False)
        adopting(_PR_SET_CHILD_SUBREAPER, 0)


def _mount(folder: Path) -> bool:
    """Put a small file system there, where this user may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_worker_killed_in_each_stage_costs_no_finished_stage(drill: Drill):
    finished: list[str] = []
    for stage, label in STAGES.items():
        drill.start_worker()
        run_id = drill.start_run()
        drill.wait_for_stage(run_id, label)
        drill.kill_worker()
        assert drill.state(run_id)["type"] == "RUNNING"  # a dead worker says nothing
        # What was killed last time may have come to its end just before.
        assert set(finished[:-1]) <= drill.cached(run_id) <= set(finished), stage
        finished.append(label)
        state = drill.end_of(run_id)
        assert state["type"] == "CRASHED", state
        assert "No heartbeat" in state["message"]
        drill.photograph(run_id, f"killed-in-{stage}")
    wait_until(lambda: set(drill.workers().values()) == {"OFFLINE"}, "the server has noticed that the workers are gone")
    drill.start_worker()
    run_id = drill.start_run()
    state = drill.end_of(run_id)
    assert state["type"] == "COMPLETED", state
    assert set(finished[:-1]) <= drill.cached(run_id)
    assert (drill.runs_dir / "latest" / "report.html").exists()
    drill.photograph(run_id, "completed")


def test_a_cancelled_run_leaves_no_process(drill: Drill):
    drill.start_worker()
    settings = ["seed=1", *SERVED]
    for label, process in CANCELLED_IN.items():
        before = set(drill.processes())
        run_id = drill.start_run(*settings)
        drill.wait_for_stage(run_id, label)
        wait_until(lambda name=process: any(name in line for line in drill.processes().values()), f"{process} is there")
        drill.prefect("flow-run", "cancel", run_id)
        state = drill.end_of(run_id)
        assert state["type"] == "CANCELLED", state
        wait_until(lambda known=before: set(drill.processes()) <= known, f"all processes of {label} are gone")
        drill.photograph(run_id, f"cancelled-in-{label.lower().replace(' ', '-')}")
    state = drill.end_of(run_id := drill.start_run(*settings))
    assert state["type"] == "COMPLETED", state
    assert {"SFT data", "SFT", "held-out rollout of policy 0", "rollout 0"} <= drill.cached(run_id)


def test_a_suspended_run_stays_suspended_and_resumes(drill: Drill):
    drill.start_worker()
    before = set(drill.processes())
    run_id = drill.start_run("seed=2")
    drill.wait_for_stage(run_id, "SFT data")
    suspended = {"state": {"type": "PAUSED", "name": "Suspended", "state_details": {"pause_reschedule": True}}}
    assert httpx.post(drill.signed(f"flow_runs/{run_id}/set_state"), json=suspended, timeout=60).is_success
    wait_until(lambda: set(drill.processes()) <= before, "its process has ended")
    assert "not begun: the flow run is suspended" in drill.log_of(run_id)
    time.sleep(SILENCE_S + 60)
    assert drill.state(run_id)["name"] == "Suspended"
    drill.photograph(run_id, "suspended")
    assert httpx.post(drill.signed(f"flow_runs/{run_id}/resume"), json={}, timeout=60).is_success
    state = drill.end_of(run_id)
    assert state["type"] == "COMPLETED", state
    assert {"problem set", "SFT data"} <= drill.cached(run_id)


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
    state = drill.end_of(run_id := drill.start_run(f"validation.suites={suites}"))
    assert state["type"] == "COMPLETED", state
    assert "rollout 0" in drill.cached(run_id)


def test_a_full_disk_is_named_and_the_next_run_completes(drill: Drill):
    if not os.path.ismount(drill.runs_dir):
        pytest.skip("no small file system could be mounted")
    drill.start_worker()
    run_id = drill.start_run("iterations=2")
    filler = drill.runs_dir / "filler"
    drill.wait_for_stage(run_id, "rollout 1")
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
    state = drill.end_of(run_id := drill.start_run("iterations=2"))
    assert state["type"] == "FAILED"
    assert "GiB are free" in state["message"]
    drill.photograph(run_id, "disk-still-full")
    filler.unlink()
    state = drill.end_of(run_id := drill.start_run("iterations=2"))
    assert state["type"] == "COMPLETED", state
    assert "update 0" in drill.cached(run_id)
