"""Whether a Prefect server answers at an address: a real server replies as Prefect does, or as others do."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.services.prefect_server import answers, prefect_server

Reply = Callable[..., str]


@pytest.fixture
def replying() -> Iterator[Reply]:
    """Return a function that starts a server with one reply to everything, and returns the address of its API."""
    with ExitStack() as open_servers:

        def start(status: int, body: bytes, busy_s: float = 0.0) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    time.sleep(busy_s)
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, format: str, *args: object) -> None: ...

            server = open_servers.enter_context(closing(_Server(("127.0.0.1", 0), Handler)))
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            return f"http://127.0.0.1:{server.server_port}/api"

        yield start


class _Server(ThreadingHTTPServer):
    def close(self) -> None:
        self.shutdown()
        self.server_close()


@pytest.mark.parametrize(
    ("status", "body", "is_prefect"),
    [
        (200, b"true", True),
        (503, b"true", False),
        (200, b"ok", False),
        (200, b"<!doctype html><title>Sign in</title>", False),
        (200, b"", True),  # nothing that another server would say
        (200, b"\xff" * 5000, False),
    ],
)
def test_only_what_replies_as_prefect_does_is_one(status: int, body: bytes, is_prefect: bool, replying: Reply) -> None:
    assert answers(replying(status, body)) is is_prefect


def test_a_busy_server_of_others_is_waited_for(replying: Reply, tmp_path: Path) -> None:
    busy = replying(200, b"true", 2.5)
    assert not answers(busy, 0.5)
    with temporary_settings({PREFECT_API_URL: busy}), prefect_server(tmp_path) as used:
        assert (used.api_url, used.ours) == (busy, False)
