"""Watches a run's Prefect server from threads of the driver: starts it again if it died, says once if it is gone.

Log records wait in a queue until the server answers, at most `MOST_RECORDS` of them: a log line never waits for it.
"""

import queue
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from kernels_eval.errors import KernelmillError

CHECK_S = 2.0
MISSED_CHECKS = 5
"""Failed checks in a row after which a server of others counts as gone."""
MOST_STARTS = 5
MOST_RECORDS = 10_000
CLOSE_S = 2.0
"""Longest wait at the end for the records that are queued, and for the thread that watches."""
Note = Callable[[str], None]
"""Shows one line to the person who started the run."""


class ServerKeeper:
    """Keeps one server.

    process: the server, if this process started it. start: starts it again at the same address. answers: checks the
    server of others.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes] | None,
        start: Callable[[], subprocess.Popen[bytes]],
        answers: Callable[[], bool],
        note: Note,
    ) -> None:
        self.process = process
        self._start, self._answers, self._note = start, answers, note
        self._starts, self._missed = 0, 0
        self._stop, self._last, self._up = threading.Event(), threading.Event(), threading.Event()
        self._up.set()
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
        """Wait for a server that is starting again; return True if it is up."""
        return self._up.wait(timeout_s)

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
            elif self.process.poll() is not None and self._starts < MOST_STARTS:
                self._start_again()

    def _start_again(self) -> None:
        if self._up.is_set():
            self._note("Prefect's server has died: it is started again, the run goes on")
        self._up.clear()
        self._starts += 1
        try:
            self.process = self._start()
            self._up.set()
        except KernelmillError as error:  # the machine may be busy for a while
            without = "the run goes on without its page and alerts: log.txt has everything"
            self._note(f"{error}; " + ("it is tried again" if self._starts < MOST_STARTS else without))

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
