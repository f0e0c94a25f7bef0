"""Tokens, and who may reach the server without one."""

import asyncio
import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.config import TOKEN_VARIABLE, JudgeConfig, ServerConfig
from kernels_eval.errors import InputError
from kernels_eval.server.serving import check_reach, listening, read_token, serve, serve_app


def test_where_the_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "from-the-environment")
    assert read_token(None) == "from-the-environment"
    file = tmp_path / "token"
    file.write_text("from-the-file\n")
    assert read_token(file) == "from-the-file"


@pytest.mark.parametrize("content", ["", "short", "with a space in it", "umlaut-ä-in-it", "\x01" * 20])
def test_a_bad_token_is_refused_and_not_told(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(InputError, match="at least 8") as raised:
        read_token(file)
    assert not content or content not in str(raised.value)


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    check_reach(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_others_do(host: str) -> None:
    check_reach(host, "a-token-of-ours")
    with pytest.raises(InputError, match=TOKEN_VARIABLE):
        check_reach(host, None)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="cannot be listened on"):
        serve(JudgeConfig(workers=1), ServerConfig(port=taken.getsockname()[1]), None)


async def _plain(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request at once, as an application would."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_head_that_does_not_arrive_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", lambda *_: None)  # of the main thread alone
    listener = listening("127.0.0.1", 0)
    ready = threading.Event()
    arguments = (_plain, listener, 1.0, lambda: None, lambda _: ready.set(), 0.4)
    threading.Thread(target=serve_app, args=arguments, daemon=True).start()
    assert ready.wait(20)

    def seconds_open(*parts: bytes) -> float:
        began = time.monotonic()
        with socket.create_connection(listener.getsockname(), timeout=10) as client:
            for part in parts:
                client.sendall(part)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(1000):
                    pass
            return time.monotonic() - began

    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    for parts in ((), (b"GET / HT",), (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ",)):
        assert seconds_open(*parts) > 0.2
    with socket.create_connection(listener.getsockname(), timeout=10) as client:
        client.sendall(whole.replace(b" / ", b" /slow "))
        assert b" 204 " in client.recv(1000), "a request that is whole may take its time"
        client.sendall(b"GET /second")
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1000):  # a connection that stays open raises TimeoutError after 10 s
                pass
