"""Terminal output of a run: one line per stage, a progress bar while it computes, and single turns on request."""

import json
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kernels_eval.plain_text import plain_text
from tasks.pipeline.retries import StageStoppedError

TurnsOption = Annotated[
    bool, typer.Option("--turns/--no-turns", help="Print a line per turn and a summary per trajectory as they end.")
]
TrajectoryLogsOption = Annotated[
    Path | None,
    typer.Option(
        "--trajectory-logs",
        metavar="DIR",
        help="Write a JSON file per turn and per trajectory to this folder (not for cached rollouts).",
    ),
]


_SMALL = 0.005
"""Shares below this are not shown."""
_WIDE = 110
"""Columns from which a bar has its full width."""
_TIMES = 2 * len("-:--:-- ") + 2
"""Columns of a bar's spinner and of its two times."""


class ConsoleListener:
    """StageListener that draws bars on a terminal, and prints lines elsewhere, progress every `interval_s` seconds.

    `share_of` returns the share of the run's expected time that a stage takes, from its label; 0 if it is not known.
    """

    def __init__(
        self, console: Console, share_of: Callable[[str], float] = lambda _: 0.0, interval_s: float = 15.0
    ) -> None:
        self.console = console
        self._share_of = share_of
        self._done: dict[str, float] = {}
        """Share of each finished stage."""
        self.interval_s = interval_s
        self._last: dict[str, float] = {}
        """Time of the last line about each stage that goes on."""
        self._figures: dict[str, dict[str, float]] = {}
        """The last figures of each stage that goes on."""
        self._bar_width = 24 if console.width >= _WIDE else 8
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=self._bar_width),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[figures]}"),
            console=console,
            transient=True,
        )

    @contextmanager
    def drawing(self) -> Generator[None]:
        """Draw progress bars while the block runs, if the output is a terminal."""
        if not self.console.is_terminal:
            yield
            return
        with self._progress:
            yield

    def started(self, label: str) -> None:
        """Show a new bar."""
        self._last[label] = time.monotonic()
        share = self._share_of(label)
        named = f"{label}, {share:.0%} of the run" if share >= _SMALL else label
        if self.console.is_terminal:
            self._bars[label] = self._progress.add_task(named, total=None, figures="")
        else:
            self.console.print(f"  {named} …")

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        """Advance the bar."""
        self._figures[label] = figures
        if label in self._bars:
            bar = self._bars[label]
            named = next(task.description for task in self._progress.tasks if task.id == bar)
            taken = len(f"{named} {total}/{total} ") + self._bar_width + 1 + _TIMES
            self._progress.update(bar, completed=done, total=total, figures=self._fitting(taken, figures))
        elif time.monotonic() - self._last.get(label, 0.0) >= self.interval_s:
            self._last[label] = time.monotonic()
            line = f"    {label}: {done} of {total}"
            self.console.print(line + self._fitting(len(line), figures), soft_wrap=True)

    def _fitting(self, taken: int, figures: dict[str, float]) -> str:
        """Return the first figures that fit into a line of which so many columns are taken."""
        text = ""
        for name, value in figures.items():
            longer = f"{text}  {name.replace('_', ' ')} {_short(value)}"
            if taken + len(longer) > self.console.width:
                break
            text = longer
        return text

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        """Replace the bar by a line."""
        self._remove(label)
        self._done[label] = self._share_of(label)
        if cached:
            self.console.print(f"[blue]●[/blue] {label}: [blue]cached[/blue] [dim](took {seconds:.1f} s)[/dim]")
            return
        done = f" ({self.done:.0%} of the run)" if self._done[label] >= _SMALL else ""
        line = f"{label}: {seconds:.1f} s"
        figures = self._fitting(len(f"✓ {line}{done}"), self._figures.pop(label, {}))
        self.console.print(f"[green]✓[/green] {line}[dim]{done}{figures}[/dim]", soft_wrap=True)

    @property
    def done(self) -> float:
        """Share of the run's expected time that the finished stages take."""
        return min(sum(self._done.values()), 1.0)

    @property
    def finished_stages(self) -> tuple[str, ...]:
        """Labels of the finished stages, in order."""
        return tuple(self._done)

    def failed(self, label: str, error: BaseException) -> None:
        """Replace the bar by a line; the command prints the error itself when it ends."""
        self._remove(label)
        stopped = isinstance(error, KeyboardInterrupt | StageStoppedError)
        self.console.print(f"[yellow]■[/yellow] {label}: stopped" if stopped else f"[red]✗[/red] {label}: failed")

    def noted(self, text: str) -> None:
        """Print a line below the stage's."""
        self.console.print(f"  {text}", soft_wrap=True)

    def warned(self, text: str) -> None:
        """Print the note."""
        self.console.print(text, style="yellow", markup=False, soft_wrap=True)

    def _remove(self, label: str) -> None:
        if label in self._bars:
            self._progress.remove_task(self._bars.pop(label))


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def logs_override(folder: Path | None) -> list[str]:
    """Return the override of `rollout.trajectory_logs` for this folder."""
    return [] if folder is None else [f"rollout.trajectory_logs={json.dumps(str(folder.resolve()))}"]


class _LinePrinter(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(plain_text(record.getMessage()), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def showing_turns(console: Console, wanted: bool) -> Generator[None]:
    """Print the log lines of rollout turns while the block runs; they go to the run's log as well."""
    if not wanted:
        yield
        return
    from tasks.rollout.logs import TURN_LINES

    source, printer = logging.getLogger(TURN_LINES), _LinePrinter(console)
    level = source.level
    source.setLevel(logging.INFO)
    source.addHandler(printer)
    try:
        yield
    finally:
        source.removeHandler(printer)
        source.setLevel(level)
