"""Server process: listens, serves until a signal, and closes the judge.

After SIGTERM or Ctrl-C new requests and waiting kernels are refused, running ones have `shutdown_s` to end, then the
judge is closed and its processes end. A second signal ends the server at once.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from kernels_eval.config import TOKEN_VARIABLE, JudgeConfig, ServerConfig
from kernels_eval.errors import InputError
from kernels_eval.judge import Judge
from kernels_eval.loopback import is_loopback
from kernels_eval.server.app import create_app
from kernels_eval.server.gate import App

_MIN_TOKEN = 8
_BACKLOG = 2048


def read_token(path: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """Return the token of a file or else of the environment, or None. Raises InputError if unreadable or too short."""
    if path is None:
        token, where = os.environ.get(variable, ""), variable
        if not token:
            return None
    else:
        try:
            token, where = path.read_text(encoding="utf-8").strip(), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read as a token: {error}") from error
    if len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"{where}: expected a token of at least {_MIN_TOKEN} printable ASCII characters without spaces"
        )
    return token


def check_reach(host: str, token: str | None, variable: str = TOKEN_VARIABLE) -> None:
    """Raise InputError for an address that other machines can reach, unless there is a token: requests run code."""
    if token is not None or is_loopback(host):
        return
    raise InputError(
        f"--host {host}: whoever reaches this server has code run on this machine; "
        f"expected a loopback address, or a token in {variable} or --token-file"
    )


def serve(
    judge_config: JudgeConfig, config: ServerConfig, token: str | None, on_ready: Callable[[str], None] = lambda _: None
) -> None:
    """Serve until SIGTERM or SIGINT. Calls `on_ready` with the address. Raises InputError if it cannot listen."""
    check_reach(config.host, token)
    with listening(config.host, config.port) as listener, Judge(judge_config) as judge:
        serve_app(
            create_app(judge, config, token), listener, config.shutdown_s, judge.drain, on_ready, config.body_timeout_s
        )


def serve_app(
    app: App,
    listener: socket.socket,
    shutdown_s: float,
    on_stop: Callable[[], None],
    on_ready: Callable[[str], None],
    headers_s: float = 30.0,
) -> None:
    """Serve an ASGI application until SIGTERM or SIGINT; calls `on_stop` on the event loop at each such signal.

    Open connections have `shutdown_s` to end. A client has `headers_s` for sending the head of a request.
    """
    settings = uvicorn.Config(
        app,
        http=type("Protocol", (_TimedProtocol,), {"headers_s": headers_s}),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=max(1, round(shutdown_s)),
        lifespan="on",
    )
    asyncio.run(_Server(settings, on_stop, on_ready).run_until_signal(listener))


def listening(host: str, port: int) -> socket.socket:
    """Open the socket; before anything else is started: a port that is taken is reported at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio turns Nagle's algorithm, which costs 40 ms a reply, off only if the socket's protocol is named.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        raise InputError(f"{host}:{port}: cannot be listened on: {error}") from error
    return listener


_Connection: Any = AutoHTTPProtocol


class _TimedProtocol(_Connection):
    """Uvicorn's connection, closed if the head of a request does not arrive in time. Uvicorn waits without end."""

    headers_s = 30.0
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; a client that begins another one has to complete its head."""
        self._wait()
        super().data_received(data)
        if self._has_request():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._waiting is None and not self._has_request():
            self._waiting = self.loop.call_later(self.headers_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._has_request():
            self.transport.abort()


class _Server(uvicorn.Server):
    """Uvicorn with the signal handling above. Its own ends the process by the signal, before the judge is closed."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None], on_ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._on_ready = on_ready

    async def run_until_signal(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        await self.serve([listener])

    def _stop(self) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._on_stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `run_until_signal`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report the address."""
        await super().startup(sockets)
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        self._on_ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
