"""Writes `report.html`: everything a person wants to know of a run, in one file without scripts or outside requests."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from kernels_eval.verdict import Status
from tasks.evaluation.evaluate import read_evaluation
from tasks.evaluation.per_problem import last_turns, with_outcomes
from tasks.evaluation.report import charts, tables
from tasks.evaluation.report.examples import pick_examples
from tasks.evaluation.report.tables import headline
from tasks.evaluation.summary import ReportInputs, training_metrics
from tasks.pipeline.references import EvaluationRef
from tasks.pipeline.store import write_atomically
from tasks.trajectories.reader import read_turns_file

STATUS_ORDER = [status.value for status in Status]
_TIMED = ("mean_return", "mean_reward", "fast_1")
_FOLDER = Path(__file__).parent


def render(template: str, **context: Any) -> str:
    """Return a page of this folder with the style sheet in it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(style=style, **context)


def write_report(run_dir: Path, inputs: ReportInputs, summary: Mapping[str, Any]) -> Path:
    """Write the report into the run's folder and return its path."""
    path = run_dir / "report.html"
    write_atomically(path, render("report.html.j2", **_context(run_dir, inputs, summary)))
    return path


def _context(run_dir: Path, inputs: ReportInputs, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the template names."""
    before, after = read_evaluation(inputs.before), read_evaluation(inputs.after)
    rows = tables.comparison_rows(summary["heldout"])
    columns = _verdict_columns(before, after, summary["iterations"])
    style = inputs.configuration.get("rollout", {}).get("episode", {}).get("feedback", "full")
    runs_dir = inputs.configuration.get("runs_dir", "runs")

    def place(uri: str) -> str:
        """Return an artifact's path from the folder in which the run was started."""
        return os.path.normpath(Path(runs_dir) / os.path.relpath(uri, run_dir.resolve().parent))

    return {
        "summary": summary,
        "inputs": inputs,
        "headline": headline(summary),
        "estimated": summary["timing_source"] == "roofline",
        "cards": _cards(rows),
        "rows": rows,
        "levels": tables.level_rows(before["levels"], after["levels"]),
        "curves": _curves(inputs, summary["iterations"]),
        "turn_charts": _turn_charts(before["turns"], after["turns"]),
        "verdicts": charts.stacked_columns(columns, STATUS_ORDER),
        "statuses": [status for status in STATUS_ORDER if any(status in shares for _, shares in columns)],
        "speeds": _speeds(inputs),
        "examples": pick_examples(inputs.after, inputs.problems, style),
        "stages": _stages(summary),
        "settings": _settings(inputs.configuration),
        "links": [(title, _relative(address, run_dir)) for title, address in inputs.links.items()],
        "data_docs": [(title, _relative(address, run_dir)) for title, address in inputs.data_docs.items()],
        "checkpoint": place((inputs.iterations[-1].checkpoint if inputs.iterations else inputs.sft).uri),
        "after": place(inputs.after.uri),
        "runs_dir": runs_dir,
        "schedule_iterations": _schedule_iterations(inputs.configuration),
        "shown": tables.shown,
        "interval_text": tables.interval_text,
    }


def _schedule_iterations(configuration: Mapping[str, Any]) -> int | None:
    """Return the iterations over which the rate of this run's updates falls; None if it does not."""
    update = configuration.get("update", {})
    if update.get("schedule") != "cosine" or not configuration.get("iterations"):
        return None
    return update.get("schedule_iterations") or configuration["iterations"]


def _cards(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the four figures at the top."""
    titles = {"correct": "Correct", "fast_1": "Faster than eager"}
    titles |= {"mean_return": "Mean return", "geomean_speedup": "Speedup"}
    named = {row["name"]: row for row in rows}
    return [{**named[name], "title": title} for name, title in titles.items()]


def _curves(inputs: ReportInputs, iterations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    sft = training_metrics(inputs.sft)
    curves: list[dict[str, Any]] = []
    if "loss" in sft.columns:
        losses = sft.get_column("loss").cast(pl.Float64).to_list()
        steps = [float(step) for step in range(1, len(losses) + 1)]
        chart = charts.line_chart(steps, losses, tone="tone-before", x_label="step", smooth=True, floor=0.0)
        curves.append({"title": "SFT loss", "note": "on answer tokens", "timed": False, "chart": chart})
    numbers = [float(figures["iteration"]) for figures in iterations]
    for name, title, note, form, ceiling in (
        ("mean_return", "Mean return", "training batch", charts.short, None),
        ("mean_reward", "Mean final reward", "training batch", charts.short, None),
        ("correct", "Correct", "training batch", charts.percent, 1.0),
        ("fast_1", "Faster than eager", "training batch", charts.percent, None),
        ("kl", "KL to the reference", "per response token", charts.short, None),
        ("entropy", "Entropy", "per response token", charts.short, None),
        ("response_tokens", "Response length", "tokens", charts.short, None),
        ("gradient_norm", "Gradient norm", "before clipping", charts.short, None),
    ):
        values = [figures[name] for figures in iterations]
        if any(value is not None for value in values):
            chart = charts.line_chart(numbers, values, x_label="iteration", form=form, floor=0.0, ceiling=ceiling)
            curves.append({"title": title, "note": note, "timed": name in _TIMED, "chart": chart})
    return curves


def _turn_charts(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return correctness and reward by turn: what would count if episodes ended after that turn."""

    def bars(name: str) -> list[tuple[str, list[charts.Bar]]]:
        groups: list[tuple[str, list[charts.Bar]]] = []
        for number in range(max(len(before), len(after))):
            group: list[charts.Bar] = []
            for tone, policy, turns in (("tone-before", "before RL", before), ("tone-after", "after RL", after)):
                figures = turns[min(number, len(turns) - 1)]["after"] if turns else {}
                interval = figures.get(f"{name}_ci")
                group.append(
                    charts.Bar(tone, policy, figures.get(name), (interval[0], interval[1]) if interval else None)
                )
            groups.append((f"turn {number + 1}", group))
        return groups

    return [
        {"title": "Correct after turn", "timed": False, "chart": charts.interval_bars(bars("correct"), ceiling=1.0)},
        {
            "title": "Mean reward after turn",
            "timed": True,
            "chart": charts.interval_bars(bars("mean_reward"), form=charts.short),
        },
    ]


def _verdict_columns(
    before: Mapping[str, Any], after: Mapping[str, Any], iterations: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Mapping[str, float]]]:
    middle = [(str(figures["iteration"]), figures["statuses"]) for figures in iterations]
    return [("held-out", before["statuses"]), *middle, ("held-out", after["statuses"])]


def _speeds(inputs: ReportInputs) -> Markup:
    series: list[tuple[str, str, list[float]]] = []
    totals: dict[str, int] = {}
    for tone, name, evaluation in (
        ("tone-before", "before RL", inputs.before),
        ("tone-after", "after RL", inputs.after),
    ):
        speedups, totals[name] = _speedups(evaluation)
        series.append((tone, name, speedups))
    return charts.speed_histogram(series, totals)


def _speedups(evaluation: EvaluationRef) -> tuple[list[float], int]:
    """Return the speedups of correct last turns, and how many trajectories there are."""
    turns = read_turns_file(evaluation.path / "turns.parquet")
    last = last_turns(with_outcomes(turns, []))
    return last.get_column("speedup").drop_nulls().to_list(), last.height


def _stages(summary: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return (name, seconds, share of the longest) of each stage, and of what is beside them."""
    stages = {**summary["stage_seconds"], "orchestration": summary["orchestration_seconds"]}
    longest = max([*stages.values(), 1e-9])
    return [(name, seconds, seconds / longest) for name, seconds in stages.items()]


def _settings(configuration: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the configuration as groups of (dotted name, value)."""
    general = [(name, _text(value)) for name, value in configuration.items() if not isinstance(value, dict)]
    groups = [(name, _flat(value)) for name, value in configuration.items() if isinstance(value, dict)]
    return [("run", general), *groups]


def _flat(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in section.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", _text(value))]
    return rows


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "none"  # pyright: ignore[reportUnknownVariableType]
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _relative(address: str, run_dir: Path) -> str:
    """Return an address that works from the run's folder, wherever the runs are moved to together."""
    if "://" in address:
        return address
    path = Path(address)
    return os.path.relpath(path, run_dir.resolve()) if path.is_absolute() else address
