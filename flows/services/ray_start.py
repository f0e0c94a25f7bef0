"""Watch over the start of a local Ray: without its control process (GCS) the call that starts it never returns.

The call is in C++, where neither an exception nor a signal handler of Python ends it. Nothing of a stage has begun
yet: the process says why and ends. And patience with a raylet that is slow to start, for which Ray has a fixed limit.
"""

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECK_S = 0.5
PATIENCE_S = 20.0
"""Time that the call has to fail by itself after the control process died."""
_ASK_S = 0.1
_FAILED = 1


@contextmanager
def ending_if_control_dies() -> Generator[None]:
    """End this process with exit code 1 if its control process dies and the block does not end soon after."""
    done = threading.Event()
    threading.Thread(target=_watch, args=(done,), name="ray-start-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextmanager
def waiting_for_node(patience_s: float) -> Generator[None]:
    """Give this node's raylet so long to report itself, instead of Ray's own 30 s. Raises TimeoutError after that.

    Ray asks for the node, and on a RuntimeError again until its time is over. Here a question lasts until the answer.
    """
    from ray._private import services

    ask, deadline = services.get_node, time.monotonic() + patience_s

    def ask_until_there(*arguments: Any, **named: Any) -> Any:
        while True:
            try:
                return ask(*arguments, **named)
            except RuntimeError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError("its raylet has not reported itself") from error
            time.sleep(_ASK_S)

    services.get_node = ask_until_there
    try:
        yield
    finally:
        services.get_node = ask


def _watch(done: threading.Event) -> None:
    known: set[Path] = set()
    died_at: float | None = None
    while not done.wait(CHECK_S):
        alive = _control_processes()
        known |= alive
        if not known or alive:
            died_at = None
        elif died_at is None:
            died_at = time.monotonic()
        elif time.monotonic() - died_at > PATIENCE_S:
            sys.stderr.write(
                "failed: Ray's control process died while Ray started. The same command continues from here.\n"
            )
            sys.stderr.flush()
            os._exit(_FAILED)


def _control_processes() -> set[Path]:
    """Return the living control processes that this process started, as their folders in /proc."""
    me, found = os.getpid(), set[Path]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            program = (process / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if int(parent) == me and state != "Z" and program.endswith(b"/gcs_server"):
            found.add(process)
    return found
