"""The HTTP client against a server that refuses, fails, is full, hangs up, or says nonsense: never a wrong verdict."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.server.client import HttpJudge
from kernels_eval.verdict import Status, Verdict

CORRECT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=2.0)
HANG_UP = (0, "")


@contextmanager
def scripted(*replies: tuple[int, str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these replies in turn, the last one for ever; yields its address and the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = replies[min(len(requests), len(replies) - 1)]
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append({"path": self.path, "body": content, "token": self.headers.get("Authorization")})
            if (status, body) == HANG_UP:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", requests
    finally:
        server.shutdown()
        server.server_close()


def asked(url: str, attempts: int = 2, **arguments: Any) -> Verdict:
    async def ask() -> Verdict:
        async with HttpJudge(url, attempts=attempts, **arguments) as judge:
            return await judge.evaluate_async("problem", "kernel \ud800 of a broken decoder")

    return asyncio.run(ask())


def test_the_verdict_and_what_was_asked():
    with scripted((200, CORRECT.model_dump_json())) as (url, requests):
        assert asked(url, token="secret-token", settings={"trials": 5}) == CORRECT
    assert requests[0]["path"] == "/eval"
    assert requests[0]["token"] == "Bearer secret-token"
    assert requests[0]["body"]["settings"] == {"trials": 5}


def test_fields_of_a_newer_server_are_left_out():
    with scripted((200, json.dumps(CORRECT.model_dump(mode="json") | {"new_field": 1}))) as (url, _):
        assert asked(url) == CORRECT


@pytest.mark.parametrize("failure", [(500, "oops"), (503, '{"detail": "stopping"}'), HANG_UP])
def test_a_server_that_fails_is_asked_again(failure: tuple[int, str]):
    with scripted(failure, (200, CORRECT.model_dump_json())) as (url, requests):
        assert asked(url) == CORRECT
    assert len(requests) == 2


@pytest.mark.parametrize("failure", [(500, "oops"), (503, '{"detail": "stopping"}'), HANG_UP])
def test_a_server_that_keeps_failing_is_a_fault_and_no_verdict(failure: tuple[int, str]):
    with scripted(failure) as (url, requests), pytest.raises(InfrastructureError, match="no verdict in 2 attempts"):
        asked(url)
    assert len(requests) == 2


def test_a_full_queue_is_waited_for_however_often():
    with scripted(*[(429, '{"detail": "full"}')] * 7, (200, CORRECT.model_dump_json())) as (url, requests):
        assert asked(url, attempts=1) == CORRECT
    assert len(requests) == 8


@pytest.mark.parametrize(
    "reply", [(401, '{"detail": "token"}'), (422, '{"detail": [{"loc": ["body", "x"], "msg": "no", "type": "t"}]}'),
              (413, '{"detail": "problem_source: expected at most 9 bytes"}'), (404, "nothing here")],
)  # fmt: skip
def test_a_refused_request_is_an_error_of_the_caller(reply: tuple[int, str]):
    with scripted(reply) as (url, requests), pytest.raises(InputError, match=str(reply[0])):
        asked(url)
    assert len(requests) == 1


def test_a_kernel_that_is_too_long_is_a_verdict_on_it():
    with scripted((413, '{"detail": "kernel_source: expected at most 9 bytes"}')) as (url, _):
        verdict = asked(url)
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, "source_too_long")


@pytest.mark.parametrize(
    "body", ["<html>", "[]", "{}", '{"status": "unheard_of"}', '{"status": "correct", "speedup": "x"}']
)
def test_nonsense_is_a_fault_and_no_verdict(body: str):
    with scripted((200, body)) as (url, _), pytest.raises(InfrastructureError, match="not a verdict"):
        asked(url)


def test_nobody_there_is_a_fault():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(InfrastructureError, match="ConnectError"):
        asked(f"http://127.0.0.1:{port}", attempts=1)
