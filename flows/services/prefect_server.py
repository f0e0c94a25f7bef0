"""The Prefect server of a run: the configured one, or a child process of the driver.

Without a server every process of a run would start one (8 to 15 s each). Hence there is exactly one, PREFECT_API_URL of
all child processes: the configured server if it answers, else `prefect server start` on loopback with SQLite under
`runs/prefect`, which ends with this process, even if that is killed.
"""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from flows.services.server_access import how_to_sign_in, keep_auth, pointed_at, server_auth, signed_in
from flows.services.server_database import check_database
from flows.services.server_events import events_kept
from flows.services.server_keeper import Note, ServerKeeper, kept
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.loopback import is_on_loopback
from tasks.pipeline.artifact_queue import INTERRUPTED_S, patience_s, wait_until_sent

HOST = "127.0.0.1"
DATABASE = "prefect.db"
START_S = 120.0
"""Longest wait for a server to answer, unless a run's `prefect.start_timeout_s` says another."""
SLOW_S = 20.0
"""Time after which a start is called slow; a quiet machine needs 8 to 15 s."""
BUSY_S = 30.0
"""Longest wait for the answer of a server of others, which may be busy; where nothing listens, none is waited for."""
SHUTDOWN_S = 60.0
"""Time that a server has to write its last events, also if its database is locked for a while."""
EVENT_SETTINGS = {
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    # Events whose writing failed that often ("database is locked") are dropped; Prefect's default is 5.
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_MAX_FLUSH_RETRIES": "1000",
}
_PR_SET_PDEATHSIG = 1
_HEALTH_BYTES = 1024
"""More than Prefect's reply has, which is `true`."""


@dataclass(frozen=True)
class PrefectServer:
    """A Prefect server that answers."""

    api_url: str
    ours: bool
    """True if this process started it."""
    startup_s: float = 0.0
    """Seconds until it answered."""
    unanswered: str | None = None
    """Configured address, if nothing answers there."""
    sign_in: str | None = None
    """Shell command that signs another terminal in; None: the environment says how."""

    @property
    def ui_url(self) -> str:
        """Address for a browser."""
        return self.api_url.removesuffix("/api")


@contextmanager
def prefect_server(
    runs_dir: Path,
    note: Note = lambda _text: None,
    meanwhile: Callable[[], None] | None = None,
    start_s: float = START_S,
) -> Generator[PrefectServer]:
    """Yield a server that answers, set for every child process. Raises InfrastructureError if none can be started.

    A server that dies is started again at its address; `note` is called with a line about it. `meanwhile`: called in a
    thread while a server starts, and has returned when it is yielded; not called if none has to be started. `start_s`:
    longest wait for a server that is started.
    """
    configured = _configured_server()
    if configured is not None and answers(configured, BUSY_S):
        with signed_in(configured, runs_dir), _kept(None, runs_dir, configured, note):
            yield PrefectServer(configured, ours=False)
        return
    home = runs_dir.resolve() / "prefect"
    began = time.monotonic()
    beside = threading.Thread(target=meanwhile, name="beside-prefect-server", daemon=True)
    beside.start()
    process, api_url = start_server(home, start_s=start_s, note=note)
    beside.join()
    startup_s = time.monotonic() - began
    with pointed_at(api_url, server_auth(home)), _kept(process, runs_dir, api_url, note, start_s):
        yield PrefectServer(api_url, True, startup_s, configured, how_to_sign_in(home))


@contextmanager
def _kept(
    process: subprocess.Popen[bytes] | None, runs_dir: Path, api_url: str, note: Note, start_s: float = START_S
) -> Generator[None]:
    """Watch a server while the block runs, send what is left, and end the server if it is ours."""
    port = urlsplit(api_url).port or 0

    home = runs_dir.resolve() / "prefect"
    auth = server_auth(home) if process is not None else ""

    def start() -> subprocess.Popen[bytes]:
        keep_auth(home, auth)  # its folder may have been removed, and all processes of the run know this one
        return start_server(home, port, start_s=start_s)[0]

    keeper = ServerKeeper(process, start, lambda: answers(api_url), note)
    keeper.open()
    kept.set(keeper)
    try:
        with events_kept(api_url):
            yield
    finally:
        kept.set(None)
        wait_s = patience_s()
        if keeper.wait_until_up(3 * wait_s):
            keeper.send_rest()
            _flush_queues(wait_s)
        keeper.close()
        if keeper.process is not None:
            _end(keeper.process, INTERRUPTED_S if wait_s == INTERRUPTED_S else SHUTDOWN_S)


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """End the server. After Ctrl-C nobody waits: it is told to end, and does so by itself."""
    process.terminate()
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        if timeout_s == SHUTDOWN_S:
            process.kill()
            process.wait()


def answers(api_url: str, timeout_s: float = 2.0) -> bool:
    """Return True if a healthy Prefect server answers at this address: with JSON, or nothing; others send a page."""
    direct = [urllib.request.ProxyHandler({})] if is_on_loopback(api_url) else []
    try:
        opened = urllib.request.build_opener(*direct).open(f"{api_url.rstrip('/')}/health", timeout=timeout_s)
        with opened as response:
            text = response.read(_HEALTH_BYTES)
            if text:
                json.loads(text)
            return response.status == 200
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
        return False


def start_server(
    home: Path,
    port: int = 0,
    database: str | None = None,
    start_s: float = START_S,
    note: Note = lambda _text: None,
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server with its database and log under `home`; return it and its API address once it answers.

    port: 0 for a free one. database: SQLAlchemy URL, e.g. `postgresql+asyncpg://user:password@host:5432/name`;
    default: SQLite under `home`. Its auth string is `server_auth(home)`. start_s: longest wait for its answer; `note`
    is called once if it is slow. Raises InfrastructureError if it ends, or does not answer in time.
    """
    home.mkdir(parents=True, exist_ok=True)
    if database is None:
        check_database(home / DATABASE)
    for _ in range(3):
        chosen = port or _free_port()
        process = _launch(home, chosen, database)
        api_url = f"http://{HOST}:{chosen}/api"
        if _wait_for_answer(process, api_url, start_s, note):
            return process, api_url
        if process.poll() is None:
            process.kill()
            process.wait()
            raise InfrastructureError(
                f"the Prefect server did not answer within {start_s:g} s (prefect.start_timeout_s): the machine is too "
                f"busy, or it hangs; its log is {home / 'server.log'}, its last line: {_last_line(home)}"
            )
        if port:
            break
    raise InfrastructureError(
        f"the Prefect server did not start; its log is {home / 'server.log'}, its last line: {_last_line(home)}"
    )


def _wait_for_answer(process: "subprocess.Popen[bytes]", api_url: str, start_s: float, note: Note) -> bool:
    """Return True once the server answers; False if it has ended or the time is over."""
    began, slow = time.monotonic(), False
    while process.poll() is None and (waited := time.monotonic() - began) < start_s:
        if answers(api_url):
            return True
        if waited > SLOW_S and not slow:
            slow = True
            note(
                f"Prefect's server has not answered for {waited:.0f} s: the machine is busy; "
                f"at most {start_s:g} s (prefect.start_timeout_s)"
            )
        time.sleep(0.1)
    return False


def check_port(port: int) -> None:
    """Raise InputError if a server cannot listen on this port."""
    try:
        socket.create_server((HOST, port)).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--port: cannot listen on {HOST}:{port}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _launch(home: Path, port: int, database: str | None) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **EVENT_SETTINGS,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database or f"sqlite+aiosqlite:///{home / DATABASE}",
        # Address that the UI in the browser connects to.
        "PREFECT_UI_API_URL": f"http://{HOST}:{port}/api",
        # Base address of links in notifications.
        "PREFECT_UI_URL": f"http://{HOST}:{port}",
        "PREFECT_SERVER_API_AUTH_STRING": server_auth(home),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": os.environ.get(
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS", f"http://{HOST}:{port},http://localhost:{port}"
        ),
    }
    environment.pop("PREFECT_API_URL", None)
    with (home / "server.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # New session: Ctrl-C in the terminal reaches only the driver, which then ends the server.
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )


def _end_with_parent() -> None:
    """Have the kernel end this process with the thread that started it, for any reason (Linux; else: normal end)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _flush_queues(timeout_s: float) -> None:
    """Wait until artifacts, states and logs have reached the server, `timeout_s` at most for each."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    wait_until_sent(timeout_s)
    EventsWorker.drain_all(timeout=timeout_s, at_exit=False)
    APILogWorker.drain_all(timeout=timeout_s, at_exit=False)


def _configured_server() -> str | None:
    from prefect.settings import get_current_settings

    return get_current_settings().api.url


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _last_line(home: Path) -> str:
    lines = (home / "server.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "(none)"
