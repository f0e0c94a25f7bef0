"""Draws what a run does in the terminal: one line a stage, a bar with figures while it computes."""

import time
from collections.abc import Generator
from contextlib import contextmanager

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


class ConsoleListener:
    """Hears the stages of a run (tasks.pipeline.stage.StageListener) and draws them.

    Without a terminal it prints plain lines: starts, ends, and progress every `interval_s`.
    """

    def __init__(self, console: Console, interval_s: float = 15.0) -> None:
        self.console = console
        self.interval_s = interval_s
        self._last = 0.0
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[figures]}"),
            console=console,
            transient=True,
        )

    @contextmanager
    def drawing(self) -> Generator[None]:
        """Draw bars while the block runs, where there is a terminal."""
        if not self.console.is_terminal:
            yield
            return
        with self._progress:
            yield

    def started(self, label: str) -> None:
        """Show a new bar."""
        self._last = time.monotonic()
        if self.console.is_terminal:
            self._bars[label] = self._progress.add_task(label, total=None, figures="")
        else:
            self.console.print(f"  {label} …")

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        """Move the bar."""
        shown = "  ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in figures.items())
        if label in self._bars:
            self._progress.update(self._bars[label], completed=done, total=total, figures=shown)
        elif time.monotonic() - self._last >= self.interval_s:
            self._last = time.monotonic()
            self.console.print(f"    {label}: {done} of {total}  {shown}")

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        """Replace the bar by a line."""
        self._remove(label)
        if cached:
            self.console.print(f"[blue]●[/blue] {label}: [blue]cached[/blue] [dim](took {seconds:.1f} s)[/dim]")
        else:
            self.console.print(f"[green]✓[/green] {label}: {seconds:.1f} s")

    def failed(self, label: str, error: BaseException) -> None:
        """Replace the bar by a line; the error itself is told at the end."""
        self._remove(label)
        stopped = isinstance(error, KeyboardInterrupt)
        self.console.print(f"[yellow]■[/yellow] {label}: stopped" if stopped else f"[red]✗[/red] {label}: failed")

    def _remove(self, label: str) -> None:
        if label in self._bars:
            self._progress.remove_task(self._bars.pop(label))


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
