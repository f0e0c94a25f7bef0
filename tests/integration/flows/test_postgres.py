"""What deployments/compose.yaml starts, started by hand: PostgreSQL, Prefect's server on it, a worker, a deployment's run."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.configuration import load_configuration
from flows.server import start_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]


def _program(name: str) -> str | None:
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else None)


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start PostgreSQL on loopback; as `nobody` where this is root, which PostgreSQL refuses to run as."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(f"/tmp/kernelmill-postgres-{os.getpid()}")
    folder.mkdir(mode=0o700)
    user: list[str] = []
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
        user = ["setpriv", "--reuid=nobody", "--clear-groups"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    data = folder / "data"
    subprocess.run(
        [*user, initdb, "-D", data, "-U", "prefect", "--auth=trust"], check=True, capture_output=True, cwd="/"
    )
    options = ["-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", folder]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        server = subprocess.Popen([*user, postgres, *options], stdout=log, stderr=log, cwd="/")
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        time.sleep(1)
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_server_worker_and_deployment_on_postgresql(database: str, tmp_path: Path):
    server, api = start_server(tmp_path / "server", database=database)
    environment = {
        **os.environ,
        "PREFECT_API_URL": api,
        "PREFECT_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
    }

    def prefect(*arguments: str) -> str:
        command = [sys.executable, "-m", "prefect", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    worker = None
    try:
        prefect("work-pool", "create", "kernelmill", "--type", "process")
        prefect("--no-prompt", "deploy", "--all")
        with (tmp_path / "worker.log").open("wb") as log:
            command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "kernelmill"]
            worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        small = [
            "problems.train=16",
            "problems.heldout=4",
            "sft.steps=4",
            "sft.data.compositions=8",
            "sft.warmup_steps=1",
        ]
        config = load_configuration(ROOT / "deployments/configs/test.yaml", [*small, f"runs_dir={tmp_path / 'runs'}"])
        parameters = json.dumps({"config": config.model_dump(mode="json")})
        said = prefect("deployment", "run", "sft/local", "--params", parameters)
        found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said)
        assert found is not None
        deadline = time.monotonic() + 600
        while (state := httpx.get(f"{api}/flow_runs/{found[0]}", timeout=30).json()["state"])["type"] not in (
            "COMPLETED",
            "FAILED",
            "CRASHED",
        ):
            assert time.monotonic() < deadline, state
            time.sleep(0.5)
        assert state["type"] == "COMPLETED", state
        assert (tmp_path / "runs" / config.run_id / "checkpoints" / "policy-000" / "config.json").exists()
    finally:
        if worker is not None:
            worker.terminate()
            worker.wait(timeout=60)
        server.terminate()
        server.wait()
