"""Analyses and conversations of trajectories, laid out for the terminal."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from tasks.trajectories.conversation import Conversation, Said

_STYLES = {"user": "blue", "system": "dim", "judge": "yellow", "note": "magenta"}


def analysis_tables(figures: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield the tables of `tasks.trajectories.analysis.analyse`."""
    yield _overview(figures)
    yield _per_turn(figures)
    if len(figures["per_iteration"]) > 1:
        yield _per_iteration(figures)
    if figures["top"]:
        yield _top(figures)


def conversation_parts(conversation: Conversation) -> Iterator[RenderableType]:
    """Yield a conversation, one panel a contribution."""
    details = "   ".join(f"[dim]{name}[/dim] {escape(value)}" for name, value in conversation.details.items())
    yield f"[bold]{escape(conversation.title)}[/bold]   {details}"
    for said in conversation.said:
        yield Panel(
            _content(said), title=said.speaker, title_align="left", border_style=_STYLES.get(said.speaker, "green")
        )


def _content(said: Said) -> RenderableType:
    text = said.text.strip("\n")
    # Answers and problems are code, or Markdown with code in it; verdicts are what the judge said, as it said it.
    if said.speaker in ("judge", "note"):
        return Text(text)
    language = "markdown" if "```" in text else "python"
    return Syntax(text, language, theme="ansi_dark", background_color="default", word_wrap=True)


def _overview(figures: dict[str, Any]) -> Table:
    splits = ", ".join(f"{count:,} {split}" for split, count in figures["splits"].items())
    title = f"{figures['trajectories']:,} trajectories on {figures['problems']:,} problems"
    table = Table(title=f"{title} ({splits})" if splits else title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("turns a trajectory", _plain(figures["mean_turns"], 2))
    table.add_row("aggregated return", _plain(figures["mean_aggregated_return"], 4))
    table.add_row("final reward", _plain(figures["mean_final_reward"], 4))
    table.add_row("final correctness", _percent(figures["final_correctness_rate"]))
    table.add_row("final compilation", _percent(figures["final_compiled_rate"]))
    table.add_row(
        "improvement rate [dim](last turn over first, of several)[/dim]", _percent(figures["improvement_rate"])
    )
    for source, speed in figures["speedups"].items():
        value = f"{_plain(speed['mean'], 2)}x [dim](geometric {_plain(speed['geometric_mean'], 2)}x)[/dim]"
        table.add_row(f"speedup of {speed['kernels']:,} correct kernels ({source})", value)
    for reason, count in figures["terminations"].items():
        table.add_row(f"ended by {escape(reason).replace('_', ' ')}", f"{count:,}")
    if figures["left_out_for_faults"]:
        table.add_row("[yellow]left out: the machine failed[/yellow]", f"{figures['left_out_for_faults']:,}")
    return table


def _per_turn(figures: dict[str, Any]) -> Table:
    table = Table(title="by turn", title_justify="left")
    for heading in ("turn", "turns", "mean reward", "correct", "compiled", "change of reward", "speedup"):
        table.add_column(heading, justify="right")
    for row in figures["per_turn"]:
        table.add_row(
            str(row["turn"]),
            f"{row['turns']:,}",
            _plain(row["mean_reward"], 4),
            _percent(row["success_rate"]),
            _percent(row["compiled_rate"]),
            "–" if row["progression"] is None else f"{row['progression']:+.4f}",
            "  ".join(f"{_plain(speed['mean'], 2)}x ({source})" for source, speed in row["speedups"].items()) or "–",
        )
    return table


def _per_iteration(figures: dict[str, Any]) -> Table:
    table = Table(title="by iteration", title_justify="left")
    for heading in ("iteration", "trajectories", "turns", "return", "correct"):
        table.add_column(heading, justify="right")
    for row in figures["per_iteration"]:
        table.add_row(
            str(row["iteration"]),
            f"{row['trajectories']:,}",
            _plain(row["mean_turns"], 2),
            _plain(row["mean_aggregated_return"], 4),
            _percent(row["final_correctness_rate"]),
        )
    return table


def _top(figures: dict[str, Any]) -> Table:
    table = Table(title="best trajectories", title_justify="left")
    table.add_column("trajectory", overflow="fold")
    for heading in ("return", "turn rewards", "speedup"):
        table.add_column(heading, justify="right")
    for row in figures["top"]:
        speedup = "–" if row["speedup"] is None else f"{row['speedup']:.2f}x ({row['timing_source'] or 'unmarked'})"
        rewards = " ".join(f"{reward:.2f}" for reward in row["rewards"])
        table.add_row(escape(row["trajectory_id"]), _plain(row["return"], 4), rewards, speedup)
    return table


def _plain(value: float | None, decimals: int) -> str:
    return "–" if value is None else f"{value:.{decimals}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
