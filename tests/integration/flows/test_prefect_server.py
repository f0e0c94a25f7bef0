"""The Prefect server of a run: used if it answers, ours if not, and gone with the driver."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prefect import flow, get_run_logger, task
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from signed import signed

from flows.services import prefect_server as prefect_server_module
from flows.services.prefect_server import PrefectServer, answers, prefect_server, start_server
from flows.services.server_access import server_auth
from kernels_eval.errors import InputError
from tasks.pipeline import prefect_artifacts
from tasks.pipeline.artifact_queue import wait_until_sent
from tasks.pipeline.prefect_artifacts import publish, shown_progress

pytestmark = pytest.mark.long

DRIVER = """
import sys, time
from pathlib import Path
from flows.services.prefect_server import prefect_server
with prefect_server(Path(sys.argv[1])) as server:
    print(server.api_url, flush=True)
    time.sleep(600)
"""


def test_a_server_that_answers_is_used(server: PrefectServer, tmp_path: Path):
    with prefect_server(tmp_path) as found:
        assert (found.api_url, found.ours) == (server.api_url, False)
    assert answers(server.api_url)
    assert not (tmp_path / "prefect").exists()


def test_what_is_done_meanwhile_has_ended_when_a_server_is_there(
    server: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done: list[str] = []

    def start(home: Path, **_: object) -> tuple[None, str]:
        return None, server.api_url

    def work() -> None:
        time.sleep(0.5)
        done.append("imported")

    with prefect_server(tmp_path, meanwhile=work):
        assert not done, "no server was started"
    monkeypatch.setattr(prefect_server_module, "_configured_server", lambda: None)
    monkeypatch.setattr(prefect_server_module, "start_server", start)
    with prefect_server(tmp_path, meanwhile=work) as found:
        assert (done, found.api_url) == (["imported"], server.api_url)


def test_threads_talk_to_it_too(server: PrefectServer):
    from prefect.client.orchestration import get_client

    found: list[str] = []

    def ask() -> None:
        with get_client(sync_client=True) as client:
            found.append(str(client.api_url))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found[0].rstrip("/") == server.api_url


def test_it_ends_with_a_driver_that_is_killed(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert driver.stdout is not None
    try:
        api_url = driver.stdout.readline().strip()
        assert answers(api_url)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    deadline = time.monotonic() + 60
    while answers(api_url) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not answers(api_url)


def test_one_that_does_not_answer_is_replaced_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    dead = "http://127.0.0.1:9/api"
    with temporary_settings({PREFECT_API_URL: dead}), prefect_server(tmp_path) as started:
        assert started.ours
        assert started.unanswered == dead
        assert os.environ["PREFECT_API_URL"] == started.api_url
        ours = started.api_url
    assert not answers(ours)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def kill_server(api_url: str) -> None:
    port = api_url.rsplit(":", 1)[1].removesuffix("/api")
    (server,) = [each for each in psutil.Process().children() if each.cmdline()[-2:] == ["--port", port]]
    server.kill()
    server.wait()


@pytest.mark.timeout(900)
def test_one_that_dies_is_started_again_and_told_what_it_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(prefect_artifacts, "PROGRESS_INTERVAL_S", 0.0)
    notes: list[str] = []
    started_again, seen_while_away = threading.Event(), list[bool]()

    @task
    def stage() -> None:
        with shown_progress("lost", "sft", "SFT") as show:
            show(1, 100)
            kill_server(started.api_url)
            for step in range(2, 60):
                show(step, 100)
                get_run_logger().info("step %d", step)
        publish("lost", "summary", "# done", "SFT")
        seen_while_away.append(answers(started.api_url))

    @flow
    def working() -> str:
        stage()
        started_again.set()
        context = FlowRunContext.get()
        assert context is not None
        assert context.flow_run is not None
        return str(context.flow_run.id)

    with temporary_settings({PREFECT_API_URL: None}), prefect_server(tmp_path, notes.append) as started:
        # The server comes back only when the stage is over: what waits for it would never end.
        keeper_starts = prefect_server_module.start_server

        def start_later(*arguments: Any, **options: Any) -> Any:
            assert started_again.wait(240)
            return keeper_starts(*arguments, **options)

        monkeypatch.setattr(prefect_server_module, "start_server", start_later)
        run_id = working()
        assert seen_while_away == [False]
        # A busy machine's server is waited for, which is said, before it is known to have died.
        told = [note for note in notes if "the machine is busy" not in note]
        assert told == ["Prefect's server has died: it is started again, the run goes on"]
        assert wait_until_sent(240) == 0
        found = httpx.get(signed(f"{started.api_url}/flow_runs/{run_id}")).json()
        assert found["state"]["type"] == "COMPLETED"

        def task_run() -> dict[str, Any]:
            wanted = {"flow_runs": {"id": {"any_": [run_id]}}}
            (stage_run,) = httpx.post(signed(f"{started.api_url}/task_runs/filter"), json=wanted).json() or [{}]
            return stage_run

        wait_until(lambda: task_run().get("state_type") == "COMPLETED")
        shown = httpx.get(signed(f"{started.api_url}/artifacts/lost-summary/latest")).json()
        assert (shown["data"], shown["flow_run_id"], shown["task_run_id"]) == ("# done", run_id, task_run()["id"])

        bar = httpx.get(signed(f"{started.api_url}/artifacts/lost-sft-progress/latest")).json()
        assert (bar["data"], bar["task_run_id"]) == (100.0, task_run()["id"])

        def last_line_came() -> bool:
            wanted = {"logs": {"flow_run_id": {"any_": [run_id]}}}
            lines = httpx.post(signed(f"{started.api_url}/logs/filter"), json=wanted).json()
            return any(line["message"] == "step 59" for line in lines)

        wait_until(last_line_came)
    assert not answers(started.api_url)


@pytest.mark.timeout(900)
def test_one_of_others_that_dies_is_said_once(tmp_path: Path):
    process, api_url = start_server(tmp_path / "other")
    notes: list[str] = []
    signed_in = {PREFECT_API_URL: api_url, PREFECT_API_AUTH_STRING: server_auth(tmp_path / "other")}
    with temporary_settings(signed_in), prefect_server(tmp_path / "mine", notes.append):
        process.kill()
        process.wait()
        wait_until(lambda: bool(notes))
        assert notes[0].startswith("Prefect's server does not answer: the run goes on")
        process, _ = start_server(tmp_path / "other", int(api_url.split(":")[2].removesuffix("/api")))
        wait_until(lambda: notes[1:] == ["Prefect's server answers again"])
    assert process.poll() is None  # it is not ours to end
    process.kill()
    process.wait()


@pytest.mark.timeout(600)
def test_a_locked_database_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another program holds the lock from before the run fails until after the server was told to end."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    file = tmp_path / "prefect" / "prefect.db"
    told_to_end = threading.Event()
    end = prefect_server_module._end

    def tell(process: subprocess.Popen[bytes], timeout_s: float) -> None:
        threading.Timer(3.0, told_to_end.set).start()
        end(process, timeout_s)

    monkeypatch.setattr(prefect_server_module, "_end", tell)
    locked = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            locked.set()
            assert told_to_end.wait(300)
            database.execute("COMMIT")

    @flow
    def failing() -> None:
        raise InputError("on purpose")

    holding = threading.Thread(target=hold)
    with temporary_settings({PREFECT_API_URL: None}), prefect_server(tmp_path):
        with pytest.raises(InputError):
            failing()
        holding.start()
        assert locked.wait(60)
    holding.join()
    with closing(sqlite3.connect(file)) as database:
        (count,) = database.execute("SELECT count(*) FROM events WHERE event = 'prefect.flow-run.Failed'").fetchone()
    assert count == 1
