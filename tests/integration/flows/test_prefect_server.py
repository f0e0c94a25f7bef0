"""The Prefect server of a run: used if it answers, ours if not, and gone with the driver."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flows.services.prefect_server import PrefectServer, answers, prefect_server

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
