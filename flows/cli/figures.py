"""Tables of what a run found, for the terminal."""

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

_FIGURES = ("compiled", "correct", "fast_1", "fast_2", "mean_return", "geomean_speedup")


def summary_tables(run_dir: Path) -> list[Table]:
    """Return held-out figures before and after RL, with what changed, from `summary.json`; and those of the control, if there is one."""
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    heldout = summary["heldout"]
    mark = f", speeds: {summary['timing_source']}" if summary.get("timing_source") else ""
    table = _table(f"{heldout['n']} held-out problems{mark}", "before RL", "after RL", "change (paired)")
    for name in _FIGURES:
        table.add_row(
            name,
            _with_interval(heldout["before"], name),
            _with_interval(heldout["after"], name),
            _with_interval(heldout, f"delta_{name}", sign="+"),
        )
    if "control" not in heldout:
        return [table]
    control = _table("the same time spent on more SFT", "control", "after RL", "RL over the control")
    for name in _FIGURES:
        control.add_row(
            name,
            _with_interval(heldout["control"], name),
            _with_interval(heldout["after"], name),
            _with_interval(heldout.get("over_control", {}), f"delta_{name}", sign="+"),
        )
    return [table, control]


def _plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))


def _table(title: str, *headings: str) -> Table:
    table = _plain_table(title)
    for heading in ("", *headings):
        table.add_column(heading, no_wrap=True)
    return table


def evaluation_table(folder: Path) -> Table:
    """Return the figures of one evaluation, from `evaluation.json`."""
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    table = Table(
        title=f"{evaluation['overall']['n']} held-out problems",
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column()
    table.add_column("policy")
    for name in _FIGURES:
        table.add_row(name, _with_interval(evaluation["overall"], name))
    return table


def comparison_table(comparison: dict[str, Any]) -> Table:
    """Return several policies side by side, and each pair's difference, from `comparison.json`."""
    mark = f", speeds: {comparison['timing_source']}" if comparison.get("timing_source") else ""
    table = _plain_table(f"{comparison['n']} held-out problems{mark}")
    pairs = comparison["pairs"]
    headings = [policy["name"] for policy in comparison["policies"]]
    for heading in ("", *headings, *(f"{pair['after']} − {pair['before']}" for pair in pairs)):
        table.add_column(heading)
    for name in _FIGURES:
        cells = [_with_interval(policy, name) for policy in comparison["policies"]]
        cells += [_with_interval(pair, f"delta_{name}", sign="+") for pair in pairs]
        table.add_row(name, *cells)
    return table


def updates_table(comparison: Any) -> Table:
    """Return two updates on one batch, from the rows of tasks.update.metric_comparison."""
    table = _plain_table("two updates on the same batch: means over their steps")
    table.add_column("metric", no_wrap=True)
    for heading in ("that one", "this one", "largest difference", "at step"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison.iter_rows(named=True):
        apart = row["largest_difference"]
        table.add_row(
            row["metric"],
            *("–" if row[name] is None else f"{row[name]:.6g}" for name in ("first", "second")),
            "–" if apart is None else f"{apart:.3g}",
            str(row["at_step"]) if apart else "",
        )
    return table


def _with_interval(figures: dict[str, Any], name: str, sign: str = "") -> str:
    value, interval = figures.get(name), figures.get(f"{name}_ci")
    if value is None:
        return "–"
    text = f"{value:{sign}.2f}"
    return f"{text} [{interval[0]:{sign}.2f}, {interval[1]:{sign}.2f}]" if interval else text
