"""What `train`, `iterate` and `rollout` show and keep of single turns: lines on the terminal, JSON files."""

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

TurnsOption = Annotated[
    bool, typer.Option("--turns/--no-turns", help="Show a line a turn and a summary a trajectory as they end.")
]
TrajectoryLogsOption = Annotated[
    Path | None,
    typer.Option(
        "--trajectory-logs",
        metavar="DIR",
        help="Write a JSON file a turn and a trajectory there (of rollouts that are computed, not of cached ones).",
    ),
]


def logs_override(folder: Path | None) -> list[str]:
    """Return the setting that has JSON files written."""
    return [] if folder is None else [f"rollout.trajectory_logs={json.dumps(str(folder.resolve()))}"]


class _Printer(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def showing_turns(console: Console, wanted: bool) -> Generator[None]:
    """Print what rollouts say of their turns while the block runs; it goes to the run's log as well."""
    if not wanted:
        yield
        return
    from tasks.rollout.listeners import TURN_LINES

    source, printer = logging.getLogger(TURN_LINES), _Printer(console)
    level = source.level
    source.setLevel(logging.INFO)
    source.addHandler(printer)
    try:
        yield
    finally:
        source.removeHandler(printer)
        source.setLevel(level)
