"""Tables for the terminal: held-out figures of a run, comparisons, pooled runs, trajectory analyses; conversations."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.filesize import decimal as file_size
from rich.markup import escape
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from flows.settings.plurals import counted
from kernels_eval.plain_text import plain_text
from tasks.evaluation.comparison import SHOWN_FIGURES, TOKENS_TITLE, tokens_text
from tasks.evaluation.pooling import Change, Pooled
from tasks.pipeline.prefect_artifacts import with_interval
from tasks.trajectories.conversation import Conversation, ConversationEntry

_POLICIES_A_TABLE, _PAIRS_A_TABLE = 3, 2
_CONTROLS = {
    "control": "the same time spent on more SFT",
    "rejection": "as many judged kernels spent on rejection sampling",
}
_STYLES = {"user": "blue", "system": "dim", "judge": "yellow", "note": "magenta"}


def summary_tables(run_dir: Path) -> list[Table]:
    """Return the held-out figures of `summary.json`: before and after RL, and of the controls if there are any."""
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    greedy = summary.get("heldout_greedy")
    parts = [(summary["heldout"], ", sampled answers" if greedy else ""), (greedy, ", greedy answers")]
    tables = [table for heldout, kind in parts if heldout for table in _heldout_tables(heldout, kind, summary)]
    return [*tables, _admission_table(summary["admission"])] if summary.get("admission") else tables


def _admission_table(criteria: Sequence[dict[str, Any]]) -> Table:
    table = _plain_table("room to learn")
    for heading in ("", "found", "expected", ""):
        table.add_column(heading, overflow="fold")
    for each in criteria:
        said = "not measured" if each["is_met"] is None else "met" if each["is_met"] else "not met"
        table.add_row(each["name"], decimal(each["found"], 3), each["expected"], said)
    return table


def _heldout_tables(heldout: dict[str, Any], kind: str, summary: dict[str, Any]) -> list[Table]:
    before, after = _column("before RL", heldout["before"]), _column("after RL", heldout["after"])
    title = f"{counted(heldout['n'], 'held-out problem')}{kind}{_timing_mark(summary)}"
    tables = [_figures_table(title, before, after, _differences("change (paired)", heldout))]
    for name, of in _CONTROLS.items():
        if name in heldout:
            differences = _differences("RL over the control", heldout.get(f"over_{name}", {}))
            tables.append(_figures_table(f"{of}{kind}", _column("control", heldout[name]), after, differences))
    return tables


def evaluation_table(folder: Path) -> Table:
    """Return the figures of one evaluation, from `evaluation.json`."""
    figures = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["overall"]
    return _figures_table(counted(figures["n"], "held-out problem"), _column("policy", figures))


def comparison_tables(comparison: dict[str, Any]) -> list[Table]:
    """Return the figures of several policies, then each pair's differences, from `comparison.json`.

    A table has as many columns as fit 80 characters.
    """
    title = f"{counted(comparison['n'], 'held-out problem')}{_timing_mark(comparison)}"
    tables: list[Table] = []
    for policies in _batched(comparison["policies"], _POLICIES_A_TABLE):
        tables.append(_figures_table(title, *(_column(policy["name"], policy) for policy in policies)))
        tables[-1].add_row(TOKENS_TITLE, *map(tokens_text, policies))
    for pairs in _batched(comparison["pairs"], _PAIRS_A_TABLE):
        columns = [_differences(f"{pair['after']} −\n{pair['before']}", pair) for pair in pairs]
        tables.append(_figures_table("differences (paired)", *columns))
    return tables


def pooled_tables(found: Sequence[Pooled]) -> Iterator[Table]:
    """Yield a table of the primary outcome, then one of all others for each pair of policies, marked exploratory."""
    primary = [each for each in found if each.is_primary]
    if primary:
        yield _pooled_table("primary outcome", primary, with_policies=True)
    for policies in dict.fromkeys(each.contrast.policies for each in found):
        others = [each for each in found if each.contrast.policies == policies and not each.is_primary]
        if others:
            yield _pooled_table(f"{escape(policies)}: exploratory", others, with_policies=False)


def _pooled_table(title: str, rows: Sequence[Pooled], with_policies: bool) -> Table:
    table = _plain_table(title)
    for heading in ("change of", "pooled, with interval", "I²", "each"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        contrast = row.contrast
        name = f"{contrast.figure}, {contrast.decoding}, {contrast.problems}"
        table.add_row(
            f"{escape(contrast.policies)}: {name}" if with_policies else name,
            _interval(row.change),
            f"{100 * row.heterogeneity:.0f} %",
            " ".join(f"{change.value:+.3f}" for change in row.changes),
        )
    return table


def _interval(change: Change) -> str:
    return f"{change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def _batched(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def updates_table(comparison: Any) -> Table:
    """Return the metrics of two updates on one batch, from the rows of tasks.training.metrics."""
    table = _plain_table("two updates on the same batch: means over their steps")
    table.add_column("metric", no_wrap=True)
    for heading in ("other", "this one", "largest difference", "at step"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison.iter_rows(named=True):
        difference = row["largest_difference"]
        table.add_row(
            row["metric"],
            *("–" if row[name] is None else f"{row[name]:.6g}" for name in ("first", "second")),
            "–" if difference is None else f"{difference:.3g}",
            str(row["at_step"]) if difference else "",
        )
    return table


def data_sets_table(found: Iterable[Any]) -> Table:
    """Return the table of `tasks.trajectories.data_sets.list_data_sets`; it fits 80 columns by folding names."""
    table = Table(box=box.SIMPLE, padding=0)
    table.add_column("run", overflow="fold", min_width=10)
    for heading in ("iter-\nations", "trajec-\ntories", "turns", "correct", "return", "quaran-\ntined", "size"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("digest", overflow="fold", min_width=8)
    for entry in found:
        numbers = entry.iterations
        table.add_row(
            entry.run_id,
            str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}",
            f"{entry.trajectories:,}",
            f"{entry.turns:,}",
            decimal(entry.correct, 3),
            decimal(entry.mean_return, 3),
            str(entry.quarantined),
            file_size(entry.bytes),
            entry.digest,
        )
    return table


def _timing_mark(figures: dict[str, Any]) -> str:
    return f", speeds: {figures['timing_source']}" if figures.get("timing_source") else ""


def _plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))


def _figures_table(title: str, *columns: tuple[str, list[str]]) -> Table:
    """Return a table with a row for each of `SHOWN_FIGURES`; a column is its heading and its cells."""
    table = _plain_table(title)
    table.add_column("", no_wrap=True)
    for heading, cells in columns:  # a long name is folded, a figure never
        table.add_column(heading, overflow="fold", min_width=max(map(len, cells)))
    for row in zip(SHOWN_FIGURES, *(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    return table


def _column(heading: str, figures: dict[str, Any]) -> tuple[str, list[str]]:
    return heading, [with_interval(figures, name, ".2f") for name in SHOWN_FIGURES]


def _differences(heading: str, figures: dict[str, Any]) -> tuple[str, list[str]]:
    return heading, [with_interval(figures, f"delta_{name}", "+.2f") for name in SHOWN_FIGURES]


def print_analysis(figures: dict[str, Any], console: Console) -> None:
    """Print the figures of `tasks.trajectories.analysis.analyse`."""
    console.print(_overview(figures))
    console.print(_per_turn(figures))
    if len(figures["per_iteration"]) > 1:
        console.print(_per_iteration(figures))
    if figures["top"]:
        console.print(_top(figures), soft_wrap=True)  # the terminal breaks a longer id, which is copied whole


def conversation_parts(conversation: Conversation) -> Iterator[RenderableType]:
    """Yield a title and one panel per message."""
    details = "   ".join(f"[dim]{name}[/dim] {escape(value)}" for name, value in conversation.details.items())
    yield f"[bold]{escape(conversation.title)}[/bold]   {details}"
    for entry in conversation.entries:
        style = _STYLES.get(entry.speaker, "green")
        yield Panel(_content(entry), title=entry.speaker, title_align="left", border_style=style)


def _content(entry: ConversationEntry) -> RenderableType:
    text = plain_text(entry.text).strip("\n")
    # Answers and problems are code, or Markdown with code; verdicts and notes are plain text.
    if entry.speaker in ("judge", "note"):
        return Text(text)
    language = "markdown" if "```" in text else "python"
    return Syntax(text, language, theme="ansi_dark", background_color="default", word_wrap=True)


def _overview(figures: dict[str, Any]) -> Table:
    splits = ", ".join(f"{count:,} {split}" for split, count in figures["splits"].items())
    title = f"{counted(figures['trajectories'], 'trajectory')} on {counted(figures['problems'], 'problem')}"
    table = Table(title=f"{title} ({splits})" if splits else title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("turns per trajectory", decimal(figures["mean_turns"], 2))
    table.add_row("aggregated return", decimal(figures["mean_aggregated_return"]))
    table.add_row("final reward", decimal(figures["mean_final_reward"]))
    table.add_row("final correctness", _percent(figures["final_correctness_rate"]))
    table.add_row("final compilation", _percent(figures["final_compiled_rate"]))
    table.add_row("improvement rate [dim](last turn over first)[/dim]", _percent(figures["improvement_rate"]))
    for source, speed in figures["speedups"].items():
        value = f"{decimal(speed['mean'], 2)}x [dim](geometric {decimal(speed['geometric_mean'], 2)}x)[/dim]"
        table.add_row(f"speedup of {counted(speed['kernels'], 'correct kernel')} ({source})", value)
    for reason, count in figures["terminations"].items():
        table.add_row(f"ended by {escape(reason).replace('_', ' ')}", f"{count:,}")
    if figures["left_out_for_faults"]:
        table.add_row("[yellow]left out: the machine failed[/yellow]", f"{figures['left_out_for_faults']:,}")
    return table


def _per_turn(figures: dict[str, Any]) -> Table:
    """Return a table of 78 columns with both sources of times."""
    rows = figures["per_turn"]
    sources = sorted({source for row in rows for source in row["speedups"]})
    headings = ["turn", "turns", "mean\nreward", "correct", "com-\npiled", "change\nof\nreward"]
    headings += ["repair −\nfresh\n(points)", "repairs", *(f"speedup\n{source}" for source in sources)]
    table = _numbers_table("by turn", headings)
    for row in rows:
        table.add_row(
            str(row["turn"]),
            f"{row['turns']:,}",
            decimal(row["mean_reward"]),
            _percent(row["success_rate"]),
            _percent(row["compiled_rate"]),
            "–" if row["progression"] is None else f"{row['progression']:+.4f}",
            "–" if row["repair_gain"] is None else f"{100 * row['repair_gain']:+.1f}",
            f"{row['repairs']:,}",
            *(f"{row['speedups'][source]['mean']:.2f}x" if source in row["speedups"] else "–" for source in sources),
        )
    return table


def _per_iteration(figures: dict[str, Any]) -> Table:
    table = _numbers_table("by iteration", ("iteration", "trajectories", "turns", "return", "correct"))
    for row in figures["per_iteration"]:
        table.add_row(
            str(row["iteration"]),
            f"{row['trajectories']:,}",
            decimal(row["mean_turns"], 2),
            decimal(row["mean_aggregated_return"]),
            _percent(row["final_correctness_rate"]),
        )
    return table


def _top(figures: dict[str, Any]) -> Text:
    """Return two lines a trajectory: its id, then its figures."""
    lines = ["best trajectories"]
    for row in figures["top"]:
        speedup = "no speedup" if row["speedup"] is None else f"speedup {row['speedup']:.2f}x"
        source = "" if row["speedup"] is None else f" ({row['timing_source'] or 'unmarked'})"
        rewards = ", ".join(f"{reward:.2f}" for reward in row["rewards"])
        lines += [f"  {plain_text(row['trajectory_id'])}", f"    return {decimal(row['return'])}, {speedup}{source}"]
        lines[-1] += f", turn rewards {rewards}"
    return Text("\n".join(lines))


def _numbers_table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=0)
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def decimal(value: float | None, digits: int = 4) -> str:
    """Return a number with fixed digits; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
