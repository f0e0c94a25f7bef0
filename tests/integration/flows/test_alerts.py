"""Automations on a real Prefect server: a webhook is called once for a failed run, with what failed; a run whose process is gone ends."""

import http.server
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prefect import flow, tags
from signed import signed

from flows.cli.main import run
from flows.services.alerts import (
    BLOCK_NAME,
    VANISHED_TEMPLATE,
    WEBHOOK_TEMPLATE,
    call_webhook_on_failure,
    load_template,
    mark_vanished_runs,
)
from flows.services.environment import QUIET
from flows.services.prefect_server import PrefectServer
from kernels_eval.errors import InputError

DRIVER = """
import sys, time
from prefect import flow, tags

@flow(name="training", flow_run_name=sys.argv[1])
def training():
    time.sleep(3600)

with tags("kernelmill"):
    training()
"""
Calls = queue.Queue[tuple[dict[str, Any], str | None]]


@pytest.fixture
def receiver() -> Iterator[tuple[str, Calls]]:
    calls: Calls = queue.Queue()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.put((json.loads(body), self.headers.get("Authorization")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}/hook", calls
        listening.shutdown()


@pytest.mark.slow
def test_a_failed_run_is_told_and_a_good_one_is_not(server: PrefectServer, receiver: tuple[str, Calls]):
    url, calls = receiver
    first = call_webhook_on_failure(url, "secret-token")
    assert call_webhook_on_failure(url, "secret-token") != first  # made anew, not twice

    @flow(name="training", flow_run_name="demo · {kind}")
    def training(kind: str) -> None:
        if kind == "bad":
            raise InputError('a "quoted" reason')

    with tags("kernelmill"):
        training("good")
        with pytest.raises(InputError):
            training("bad")
    body, authorization = calls.get(timeout=60)
    assert (body["flow"], body["run"], body["state"]) == ("training", "demo · bad", "Failed")
    assert 'a "quoted" reason' in body["message"]
    assert "/runs/flow-run/" in body["url"]
    assert authorization == "Bearer secret-token"
    with pytest.raises(queue.Empty):
        calls.get(timeout=3)


def state_of(server: PrefectServer, name: str) -> dict[str, Any]:
    """Return the state of the flow run of this name; an empty one where it is not there yet."""
    wanted = {"flow_runs": {"name": {"any_": [name]}}}
    found = httpx.post(signed(f"{server.api_url}/flow_runs/filter"), json=wanted, timeout=60).json()
    return found[0]["state"] if found else {"type": None}


def wait_for_state(server: PrefectServer, name: str, wanted: str) -> dict[str, Any]:
    deadline = time.monotonic() + 280
    while (state := state_of(server, name))["type"] != wanted:
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    return state


@pytest.mark.slow
def test_a_run_whose_process_is_gone_crashes_and_one_that_lives_does_not(
    server: PrefectServer, receiver: tuple[str, Calls], tmp_path: Path
):
    url, calls = receiver
    call_webhook_on_failure(url)
    template = yaml.safe_load(VANISHED_TEMPLATE.read_text(encoding="utf-8"))
    template["trigger"]["within"] = 70  # two heartbeats
    (tmp_path / "vanished.yaml").write_text(yaml.safe_dump(template))
    mark_vanished_runs(tmp_path / "vanished.yaml")
    environment = {**os.environ, **QUIET, "PREFECT_API_URL": server.api_url}
    drivers = {
        name: subprocess.Popen([sys.executable, "-c", DRIVER, name], env=environment, stderr=subprocess.DEVNULL)
        for name in ("vanishes", "lives")
    }
    try:
        for name in drivers:
            wait_for_state(server, name, "RUNNING")
        drivers["vanishes"].kill()
        drivers["vanishes"].wait()
        state = wait_for_state(server, "vanishes", "CRASHED")
        assert "No heartbeat" in state["message"]
        assert state_of(server, "lives")["type"] == "RUNNING"
        body, _ = calls.get(timeout=60)
        assert (body["run"], body["state"]) == ("vanishes", "Crashed")
    finally:
        for driver in drivers.values():
            driver.kill()
            driver.wait()


def test_every_flow_is_watched():
    named = re.findall(r'@flow\(name="([a-z-]+)"', "".join(path.read_text() for path in Path("flows").glob("*.py")))
    trigger = load_template(VANISHED_TEMPLATE)["trigger"]
    assert set(trigger["match_related"]["prefect.resource.name"]) == set(named)
    assert trigger["within"] > 3 * int(QUIET["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])


def test_a_template_has_a_place_for_the_block(tmp_path: Path):
    assert load_template(WEBHOOK_TEMPLATE, "1234")["actions"][0]["block_document_id"] == "1234"
    other = tmp_path / "other.yaml"
    other.write_text("name: x\n")
    for path, words in ((other, "block_document_id"), (tmp_path / "none.yaml", "cannot be read")):
        with pytest.raises(InputError, match=words):
            load_template(path, "1234")


def test_the_command_works_in_any_folder(server: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    monkeypatch.chdir(tmp_path)
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        assert run(["alert", "https://chat.example.com/hooks/1"]) == 0
        assert stored_address() == "https://chat.example.com/hooks/1"


def stored_address() -> str:
    from prefect.blocks.webhook import Webhook

    block: Any = Webhook.load(BLOCK_NAME)
    return str(block.url.get_secret_value())


@pytest.mark.parametrize(
    "url", ["https://", "ftp://chat.example.com", "chat.example.com/x", "https://a b/c", "https://x:99999/y"]
)
def test_a_wrong_address_leaves_the_old_one(
    server: PrefectServer, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: server.api_url}):
        call_webhook_on_failure("https://chat.example.com/hooks/old")
        assert run(["alert", url]) == 2
        assert stored_address() == "https://chat.example.com/hooks/old"
        with pytest.raises(InputError, match="token"):
            call_webhook_on_failure("https://chat.example.com/hooks/new", "two\nlines")
        monkeypatch.setattr("flows.services.alerts.WEBHOOK_TEMPLATE", Path("none.yaml"))
        with pytest.raises(InputError, match="cannot be read"):
            call_webhook_on_failure("https://chat.example.com/hooks/new")
        assert stored_address() == "https://chat.example.com/hooks/old"
    assert "the webhook's address" in capsys.readouterr().err


def test_the_command_wants_a_server_and_an_address(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert run(["alert", "https://example.com"]) == 2
    assert "PREFECT_API_URL" in capsys.readouterr().err
