"""Brings what is logged in the process that rolls out to whoever waits for it: warnings, and the lines of turns where asked for."""

import logging
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from kernels_eval.frozen import FrozenModel

_SOURCE = "kernelmill"
_MOST = 10_000
"""Messages that are kept between two reports; older ones give way."""


class LoggedMessage(FrozenModel):
    """One record of a logger."""

    logger: str
    level: int
    text: str

    def log(self) -> None:
        """Log it here."""
        logging.getLogger(self.logger).log(self.level, "%s", self.text)


class Overheard(logging.Handler):
    """Keeps what is logged until it is asked for."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._messages: deque[LoggedMessage] = deque(maxlen=_MOST)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self._messages.append(LoggedMessage(logger=record.name, level=record.levelno, text=record.getMessage()))

    def take(self) -> tuple[LoggedMessage, ...]:
        """Return what was kept since the last call."""
        taken: list[LoggedMessage] = []
        while self._messages:
            taken.append(self._messages.popleft())
        return tuple(taken)


@contextmanager
def overhearing() -> Generator[Overheard]:
    """Keep what the project's loggers say while the block runs."""
    handler, source = Overheard(), logging.getLogger(_SOURCE)
    source.addHandler(handler)
    try:
        yield handler
    finally:
        source.removeHandler(handler)
