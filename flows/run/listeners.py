"""Who hears what the stages of a run do, beside the command line's drawing."""

import logging
import time
from collections.abc import Sequence

from tasks.pipeline.stage import StageListener


class LogListener:
    """Writes what stages do to a log, progress now and then. Prefect shows its run logger's lines beside the flow run."""

    def __init__(
        self, logger: logging.Logger | logging.LoggerAdapter[logging.Logger], interval_s: float = 30.0
    ) -> None:
        self.logger = logger
        self.interval_s = interval_s
        self._last = 0.0

    def started(self, label: str) -> None:
        """Log the start."""
        self._last = time.monotonic()
        self.logger.info("%s: started", label)

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        """Log progress now and then."""
        now = time.monotonic()
        if now - self._last >= self.interval_s:
            self._last = now
            shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
            self.logger.info("%s: %d of %d %s", label, done, total, shown)

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        """Log the end."""
        self.logger.info("%s: %s", label, "cached" if cached else f"done in {seconds:.1f} s")

    def failed(self, label: str, error: BaseException) -> None:
        """Log the failure."""
        self.logger.error("%s: failed: %s", label, error)


class Listeners:
    """Tells everything to several listeners."""

    def __init__(self, listeners: Sequence[StageListener]) -> None:
        self.listeners = listeners

    def started(self, label: str) -> None:
        """Pass it on."""
        for listener in self.listeners:
            listener.started(label)

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        """Pass it on."""
        for listener in self.listeners:
            listener.progressed(label, done, total, figures)

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        """Pass it on."""
        for listener in self.listeners:
            listener.finished(label, seconds, cached)

    def failed(self, label: str, error: BaseException) -> None:
        """Pass it on."""
        for listener in self.listeners:
            listener.failed(label, error)
