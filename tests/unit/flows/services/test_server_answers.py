"""Whether a Prefect server answers at an address: a real server replies as Prefect does, or as others do."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows.services.prefect_server import answers

Reply = Callable[[int, bytes], str]


@pytest.fixture
def replying() -> Iterator[Reply]:
    """Return a function that starts a server with one reply to everything, and returns the address of its API."""
    with ExitStack() as open_servers:

        def start(status: int, body: bytes) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
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
        (200, b"", False),
        (200, b"\xff" * 5000, False),
    ],
)
def test_only_what_replies_as_prefect_does_is_one(status: int, body: bytes, is_prefect: bool, replying: Reply) -> None:
    assert answers(replying(status, body)) is is_prefect
