"""Runs of one folder follow each other; deployments on a real server; a suspended run says that its process ends."""

import contextvars
import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import flow
from prefect.exceptions import Pause
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Suspended
from signed import signed

from flows.run import lock as lock_module
from flows.run.prefect_ui import SUSPENDED_EVENT, announced_suspension
from flows.run.run import open_run
from flows.services.deployments import FLOWS, WORK_POOL, deploy, schedule_of
from flows.services.prefect_server import PrefectServer
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval.errors import InputError

pytestmark = pytest.mark.long

WAIT_S = 240.0
"""Only a hang takes longer."""


@pytest.fixture
def configured(server: PrefectServer) -> Iterator[PrefectServer]:
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        yield server


def test_a_run_of_a_deployment_waits_for_its_folder(
    configured: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lock_module, "LOCK_POLL_S", 0.05)
    config = RunConfig(name="queued", runs_dir=str(tmp_path))
    (tmp_path / config.run_id).mkdir()
    events: list[str] = []

    @flow(name="training")
    def training() -> None:
        with open_run(config):
            events.append("open")

    with (tmp_path / config.run_id / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="going on in another process"):
            training()  # started by a person, who is told at once
        monkeypatch.setenv("PREFECT__RUNTIME__DEPLOYMENT__ID", "1")
        # A new thread begins with an empty context: it would not know the server and would start one of its own.
        queued = threading.Thread(target=contextvars.copy_context().run, args=[training])
        queued.start()
        log = tmp_path / config.run_id / "log.txt"
        time.sleep(1)
        assert events == []
        assert not log.exists()
        events.append("released")
        fcntl.flock(held, fcntl.LOCK_UN)
        queued.join(WAIT_S)
    assert events == ["released", "open"]


def test_deployments_are_named_queued_and_keep_their_schedule(configured: PrefectServer):
    configs = [load_configuration(f"deployments/configs/{name}.yaml") for name in ("local", "test")]
    said: list[str] = []
    names = deploy(configs, schedule_of("0 3 * * *", "Europe/Berlin"), said.append)
    assert names == [f"{deployed.flow_name}/{config.name}" for config in configs for deployed in FLOWS]
    assert f"  prefect deployment run {names[0]}" in said
    queues = httpx.post(
        signed(f"{configured.api_url}/work_pools/{WORK_POOL}/queues/filter"), json={}, timeout=60
    ).json()
    assert {(queue["name"], queue["concurrency_limit"]) for queue in queues} >= {("local", 1), ("test", 1)}
    iteration = deployment(configured, "training-iteration", "local")
    assert (iteration["work_queue_name"], iteration["concurrency_limit"]) == ("local", None)
    (schedule,) = iteration["schedules"]
    address = f"{configured.api_url}/deployments/{iteration['id']}/schedules/{schedule['id']}"
    change(address, {"active": False})  # as in the UI
    deploy(configs[:1])
    (schedule,) = deployment(configured, "training-iteration", "local")["schedules"]
    assert (schedule["active"], schedule["schedule"]["timezone"]) == (False, "Europe/Berlin")
    deploy(configs[:1], schedule_of("0 4 * * *"))
    (schedule,) = deployment(configured, "training-iteration", "local")["schedules"]
    assert (schedule["active"], schedule["schedule"]["cron"]) == (True, "0 4 * * *")


def change(address: str, values: dict[str, Any]) -> None:
    """Change what the server has. While its database is locked it answers 503, and its clients ask again."""
    deadline = time.monotonic() + WAIT_S
    while (
        answer := httpx.patch(signed(address), json=values, timeout=60)
    ).status_code == httpx.codes.SERVICE_UNAVAILABLE:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert answer.is_success


def deployment(server: PrefectServer, flow_name: str, name: str) -> dict[str, Any]:
    response = httpx.get(signed(f"{server.api_url}/deployments/name/{flow_name}/{name}"), timeout=60)
    return response.json()


def test_settings_are_overridden_by_name_and_wrong_forms_are_refused(configured: PrefectServer):
    deploy([load_configuration("deployments/configs/local.yaml")])
    found = deployment(configured, "training", "local")
    address = f"{configured.api_url}/deployments/{found['id']}/create_flow_run"
    wanted = {"parameters": {"overrides": ["seed=1"]}, "state": {"type": "SCHEDULED"}}
    created = httpx.post(signed(address), json=wanted, timeout=60).json()
    assert created["parameters"]["overrides"] == ["seed=1"]
    assert created["parameters"]["config"]["name"] == "local"
    refused = httpx.post(signed(address), json={"parameters": {"overrides": "seed=1"}}, timeout=60)
    assert refused.status_code in (409, 422), refused.text


def test_a_suspended_run_says_that_its_process_ends(configured: PrefectServer):
    ids: list[str] = []

    @flow(name="training")
    def training() -> None:
        from prefect.runtime import flow_run

        ids.append(str(flow_run.id))
        with announced_suspension():
            raise Pause(state=Suspended())

    with pytest.raises(Pause):
        training()
    resource = f"prefect.flow-run.{ids[0]}"
    wanted = {"filter": {"event": {"name": [SUSPENDED_EVENT]}, "resource": {"id": [resource]}}}
    deadline = time.monotonic() + WAIT_S
    while not (
        events := httpx.post(signed(f"{configured.api_url}/events/filter"), json=wanted, timeout=60).json()["events"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    (related,) = [entry for entry in events[0]["related"] if entry["prefect.resource.role"] == "flow"]
    assert related["prefect.resource.name"] == "training"  # which the automation of vanished runs looks for
