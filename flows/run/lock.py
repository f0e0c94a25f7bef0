"""The lock of a run's folder: one driver at a time has it open."""

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from prefect.logging import get_run_logger
from prefect.runtime import deployment

from kernels_eval.errors import InputError

LOCK = ".lock"
LOCK_POLL_S = 2.0
"""Seconds between two attempts of a queued run."""


@contextmanager
def locked(run_dir: Path) -> Generator[None]:
    """Hold the run's lock; the kernel releases it when this process ends for any reason."""
    with (run_dir / LOCK).open("a") as file:
        if not _try_lock(file):
            if deployment.id is None:
                raise _open_elsewhere(run_dir)
            get_run_logger().info("waiting for %s: this run is going on in another process", run_dir.name)
            while not _try_lock(file):
                time.sleep(LOCK_POLL_S)
        yield


def check_not_open(run_dir: Path) -> None:
    """Raise InputError if another process has this run open; before anything is started for it."""
    lock = run_dir / LOCK
    if lock.exists():
        with lock.open("a") as file:
            if not _try_lock(file):
                raise _open_elsewhere(run_dir)


def _open_elsewhere(run_dir: Path) -> InputError:
    return InputError(f"{run_dir}: this run is going on in another process; wait for it, or change the name of the run")


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
