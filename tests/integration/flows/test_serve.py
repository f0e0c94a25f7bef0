"""`kernelmill serve flows`: the flows are there, their runs are started and find our packages, and all ends with the process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import pytest
from signed import signed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
MARK = "KERNELMILL_SERVE_TEST"


def processes(mark: str) -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_a_served_flow_runs_and_everything_ends_with_the_process(tmp_path: Path):
    mark = uuid.uuid4().hex
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment |= {MARK: mark, "PREFECT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    config = tmp_path / "run.yaml"
    config.write_text(f"name: served\nruns_dir: {tmp_path / 'runs'}\n")
    log = tmp_path / "log.txt"
    with log.open("wb") as out:
        command = [sys.executable, "-u", "-m", "flows.cli.main", "serve", "flows", "--config", str(config)]
        serving = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 300
        while (
            not (found := re.search(r"PREFECT_API_URL=(\S+?);", log.read_text()))
            or "compare/local" not in log.read_text()
        ):
            assert serving.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        api = signed(found[1], tmp_path / "runs" / "prefect")
        while len(deployments := httpx.post(f"{api}/deployments/filter", json={}, timeout=30).json()) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        evaluation = next(item for item in deployments if item["entrypoint"].endswith("evaluation_flow"))
        assert evaluation["parameters"]["config"]["name"] == "served"
        # A value that the form would refuse is refused by the server as well.
        wrong = {"config": {**evaluation["parameters"]["config"], "iterations": -1}}
        refused = httpx.post(
            f"{api}/deployments/{evaluation['id']}/create_flow_run", json={"parameters": wrong}, timeout=30
        )
        assert refused.status_code in (409, 422), refused.text
        assert "-1 is less than the minimum of 0" in refused.text
        # Refused by the flow itself, so that nothing expensive starts: its packages were found.
        parameters = {
            "config": {**evaluation["parameters"]["config"], "problems": {"source": "jsonl", "path": "/nowhere"}}
        }
        run = httpx.post(
            f"{api}/deployments/{evaluation['id']}/create_flow_run",
            json={"parameters": parameters, "state": {"type": "SCHEDULED"}},
            timeout=30,
        ).json()
        while (state := httpx.get(f"{api}/flow_runs/{run['id']}", timeout=30).json()["state"])["type"] not in (
            "FAILED",
            "CRASHED",
        ):
            assert time.monotonic() < deadline, json.dumps(state)
            time.sleep(0.5)
        assert state["type"] == "FAILED"
        assert "/nowhere" in state["message"]
    finally:
        serving.send_signal(signal.SIGTERM)
        try:
            serving.wait(timeout=60)
        finally:
            if serving.poll() is None:
                serving.kill()
                serving.wait()
    deadline = time.monotonic() + 60
    while processes(mark) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert processes(mark) == []
