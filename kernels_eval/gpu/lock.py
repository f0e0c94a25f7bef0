"""One candidate at a time is timed on a device: an exclusive lock among the workers of this machine."""

import fcntl
import os
from pathlib import Path
from types import TracebackType


class DeviceLock:
    """A context manager over a lock file. The system frees it when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def __enter__(self) -> None:
        """Wait for the device."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one have it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
