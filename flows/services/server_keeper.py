"""Watches a run's Prefect server from threads of the driver: starts it again if it died, says once if it is gone.

Log records wait in a queue until the server answers, at most `MOST_RECORDS` of them: a log line never waits for it.
"""

import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from kernels_eval.errors import KernelmillError

CHECK_S = 2.0
MISSED_CHECKS = 5
"""Failed checks in a row after which a server of others counts as gone."""
MOST_STARTS = 5
"""Starts after which a server that dies again and again is left alone."""
LIVED_S = 600.0
"""Time that a server has to live for its earlier deaths to be forgotten."""
MOST_RECORDS = 10_000
CLOSE_S = 2.0
"""Longest wait at the end for the records that are queued, and for the thread that watches."""
Note = Callable[[str], None]
"""Shows one line to the person who started the run."""
kept: ContextVar["ServerKeeper | None"] = ContextVar("kept", default=None)
"""The keeper of this process's Prefect server."""


class ServerKeeper:
    """Keeps one server.

    process: the server, if this process started it. start: starts it again at the same address. answers: checks the
    server of others.
    """

    gone: threading.Event
    """Set once the server is not expected back."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | None,
        start: Callable[[], subprocess.Popen[bytes]],
        answers: Callable[[], bool],
        note: Note,
    ) -> None:
        self.process = process
        self._start, self._answers, self._note = start, answers, note
        self._starts, self._missed, self._started_at = 0, 0, time.monotonic()
        self._stop, self._last, self._up = threading.Event(), threading.Event(), threading.Event()
        self._up.set()
        self.gone = threading.Event()
        self._records: queue.Queue[dict[str, Any]] = queue.Queue(MOST_RECORDS)
        self._watcher = threading.Thread(target=self._watch, name="prefect-server-watch", daemon=True)
        self._sender = threading.Thread(target=self._send, name="prefect-log-records", daemon=True)

    def open(self) -> None:
        """Begin to watch, and to take log records."""
        from prefect.logging.handlers import set_api_log_sink

        set_api_log_sink(self._take)
        self._watcher.start()
        self._sender.start()

    def wait_until_up(self, timeout_s: float) -> bool:
        """Wait for a server that is starting again, unless it is gone; return True if it is up."""
        deadline = time.monotonic() + timeout_s
        while not (up := self._up.wait(min(0.2, timeout_s))) and not self.gone.is_set():
            if time.monotonic() > deadline:
                break
        return up

    def give_up(self) -> None:
        """Expect the server no more: one of ours that hangs is killed, so that nothing waits for its answer."""
        self._up.clear()
        self.gone.set()
        if self.process is not None:
            self.process.kill()

    def send_rest(self) -> None:
        """Take no more records, and hand the queued ones to Prefect."""
        from prefect.logging.handlers import set_api_log_sink

        set_api_log_sink(None)
        self._last.set()
        self._sender.join(CLOSE_S)

    def close(self) -> None:
        """Stop watching. A server that was started again ends with the thread that watches it."""
        from prefect.logging.handlers import set_api_log_sink

        set_api_log_sink(None)
        self._last.set()
        self._stop.set()
        self._watcher.join(CLOSE_S)  # it may be starting the server

    def _watch(self) -> None:
        while not self._stop.wait(CHECK_S):
            if self.process is None:
                self._check_others()
            elif self.process.poll() is not None and not self.gone.is_set():
                self._start_again()

    def _start_again(self) -> None:
        without = "the run goes on without its page and alerts: log.txt has everything"
        if self._up.is_set():
            if time.monotonic() - self._started_at > LIVED_S:
                self._starts = 0
            if self._starts == MOST_STARTS:
                self.gone.set()
                self._up.clear()
                self._note(f"Prefect's server has died again, after {MOST_STARTS} starts: {without}")
                return
            self._note("Prefect's server has died: it is started again, the run goes on")
        self._up.clear()
        self._starts += 1
        try:
            self.process = self._start()
            self._started_at = time.monotonic()
            self._up.set()
        except (KernelmillError, OSError) as error:  # the machine may be busy for a while, or its disk full
            if self._starts == MOST_STARTS:
                self.gone.set()
            self._note(f"{error}; " + (without if self.gone.is_set() else "it is tried again"))

    def _check_others(self) -> None:
        self._missed = 0 if self._answers() else self._missed + 1
        if self._missed == MISSED_CHECKS:
            self._up.clear()
            self._note("Prefect's server does not answer: the run goes on; its page and alerts wait for the server")
        elif self._missed == 0 and not self._up.is_set():
            self._note("Prefect's server answers again")
            self._up.set()

    def _is_up(self) -> bool:
        return self._up.is_set() and (self.process is None or self.process.poll() is None)

    def _take(self, record: dict[str, Any]) -> None:
        try:
            self._records.put_nowait(record)
        except queue.Full:
            return  # it is in the run's log.txt

    def _send(self) -> None:
        from prefect.logging.handlers import APILogWorker

        while not (self._stop.is_set() or (self._last.is_set() and self._records.empty())):
            if not self._is_up():
                self._stop.wait(0.2)
                continue
            try:
                record = self._records.get(timeout=0.2)
            except queue.Empty:
                continue
            APILogWorker.instance().send(record)
