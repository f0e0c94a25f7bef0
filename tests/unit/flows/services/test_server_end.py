"""A flow whose Prefect server is away at its end waits for it, and ends with a sentence if it does not come back."""

import http.server
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.services.server_access import keep_auth, server_auth
from flows.services.server_end import server_awaited
from flows.services.server_keeper import ServerKeeper, kept
from kernels_eval.errors import InfrastructureError, InputError


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which nothing listens; no keeper of another test's server is asked about it, and none is ended."""
    token = kept.set(None)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    yield number
    kept.reset(token)


def ended(port: int, timeout_s: float) -> None:
    with server_awaited(f"http://127.0.0.1:{port}/api", timeout_s):
        pass


def test_a_server_that_does_not_come_back_is_named(port: int) -> None:
    with pytest.raises(InfrastructureError, match=rf":{port}/api does not answer after 0.1 s .*start_timeout_s"):
        ended(port, 0.1)


def test_a_server_that_is_gone_is_not_waited_for(port: int) -> None:
    hanging = subprocess.Popen(["sleep", "60"])
    keeper = ServerKeeper(hanging, lambda: hanging, lambda: False, print)
    keeper.gone.set()
    token = kept.set(keeper)
    try:
        with pytest.raises(InfrastructureError, match="does not answer: its page"):
            ended(port, 3600)
    finally:
        kept.reset(token)
    assert hanging.wait(60) != 0, "nothing may wait for its answer"


def test_a_server_that_comes_back_is_waited_for(port: int) -> None:
    servers = list[http.server.HTTPServer]()

    def come_back() -> None:
        servers.append(http.server.HTTPServer(("127.0.0.1", port), Healthy))
        servers[0].serve_forever()

    timer = threading.Timer(0.3, come_back)
    timer.start()
    ended(port, 3600)
    servers[0].shutdown()
    servers[0].server_close()
    timer.join()


def test_an_error_of_the_flow_stays(port: int) -> None:
    with pytest.raises(InputError, match="mine"), server_awaited(f"http://127.0.0.1:{port}/api", 3600):
        raise InputError("mine")
    with server_awaited(None, 3600):
        pass


def test_a_server_whose_folder_was_removed_gets_the_auth_string_that_the_run_knows(tmp_path: Path) -> None:
    known = server_auth(tmp_path / "prefect")
    (tmp_path / "prefect" / "auth").unlink()
    (tmp_path / "prefect").rmdir()
    keep_auth(tmp_path / "prefect", known)
    assert server_auth(tmp_path / "prefect") == known
