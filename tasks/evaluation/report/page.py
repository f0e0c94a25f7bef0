"""Writes `report.html`: everything a person wants to know of a run, in one file without scripts or outside requests."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from kernels_eval.verdict import Status
from tasks.evaluation.evaluate import part_of, read_evaluation, read_per_problem
from tasks.evaluation.per_problem import last_turns, with_outcomes
from tasks.evaluation.report import charts, tables
from tasks.evaluation.report.examples import pick_examples
from tasks.evaluation.report.headline import headline
from tasks.evaluation.stage_figures import training_metrics
from tasks.evaluation.summary import ReportInputs
from tasks.pipeline.references import EvaluationRef
from tasks.pipeline.store import write_atomically
from tasks.trajectories.reader import read_turns_file

STATUS_ORDER = [status.value for status in Status]
_TIMED = ("mean_return", "mean_reward", "fast_1")
_TONES = {"before RL": "tone-before", "after RL": "tone-after", "control": "tone-control"}
_GREEDY = (
    "correct",
    "fast_1",
    "fast_2",
    "mean_return",
    "mean_reward",
    "geomean_speedup",
    "added_correct",
    "answer_nats",
)
"""Figures of greedy answers that are shown."""
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
    return environment.get_template(template).render(style=style_sheet(), **context)


def style_sheet() -> Markup:
    """Return the style sheet of all pages."""
    return Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))


def write_report(run_dir: Path, inputs: ReportInputs, summary: Mapping[str, Any]) -> Path:
    """Write the report into the run's folder and return its path."""
    path = run_dir / "report.html"
    write_atomically(path, render("report.html.j2", **_context(run_dir, inputs, summary)))
    return path


def _context(run_dir: Path, inputs: ReportInputs, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that the template names."""
    evaluations = {
        name: read_evaluation(reference)
        for name, reference in (
            ("before RL", inputs.sampled.before),
            ("after RL", inputs.sampled.after),
            ("control", inputs.sampled.control),
        )
        if reference is not None
    }
    before, after = evaluations["before RL"], evaluations["after RL"]
    rows, greedy = tables.comparison_rows(summary["heldout"]), summary.get("heldout_greedy")
    greedy_rows = [] if greedy is None else tables.comparison_rows(greedy)
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
        "cards": _cards(rows, greedy_rows),
        "decodings": [("Sampled answers", summary["heldout"], rows)]
        + ([("Greedy answers", greedy, [row for row in greedy_rows if row["name"] in _GREEDY])] if greedy else []),
        "temperature": inputs.evaluation_config.temperature,
        "levels": tables.group_rows(before["levels"], after["levels"]),
        "tiers": tables.group_rows(before.get("tiers", {}), after.get("tiers", {})),
        "curves": _curves(inputs, summary),
        "turn_charts": _turn_charts({name: evaluation["turns"] for name, evaluation in evaluations.items()}),
        "turn_policies": list(evaluations),
        "agent_tables": tables.agent_tables(list(evaluations.values())),
        "turn_rows": tables.turn_rows([evaluation["turns"] for evaluation in evaluations.values()]),
        "verdicts": charts.stacked_columns(columns, STATUS_ORDER),
        "statuses": [status for status in STATUS_ORDER if any(status in shares for _, shares in columns)],
        "speeds": _speeds(inputs),
        "examples": pick_examples(inputs.sampled.after, inputs.problems, style),
        "stages": _stages(summary),
        "settings": _settings(inputs.configuration),
        "links": [(title, _relative(address, run_dir)) for title, address in inputs.links.items()],
        "data_docs": [(title, _relative(address, run_dir)) for title, address in inputs.data_docs.items()],
        "checkpoint": place((inputs.iterations[-1].checkpoint if inputs.iterations else inputs.sft).uri),
        "after": place(inputs.sampled.after.uri),
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


def _cards(rows: Sequence[Mapping[str, Any]], greedy_rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the four figures at the top, of sampled answers, with those of greedy ones below.

    `worse_on_harder`: kind of answers, change and interval of each that fell on the harder problems.
    """
    titles = {"correct": "Correct", "fast_1": "Faster than eager"}
    titles |= {"mean_return": "Mean return", "geomean_speedup": "Speedup"}
    named, greedy = ({row["name"]: row for row in found} for found in (rows, greedy_rows))
    return [
        {
            **named[name],
            "title": title,
            "greedy": greedy.get(name),
            "worse_on_harder": [
                (kind, harder[0], harder[1])
                for kind, found in (("sampled", named), ("greedy", greedy))
                if name in found and (harder := found[name]["harder"]) is not None and harder[2] == "loss"
            ],
        }
        for name, title in titles.items()
    ]


def _curves(inputs: ReportInputs, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    sft, iterations = training_metrics(inputs.sft), summary["iterations"]
    curves: list[dict[str, Any]] = []
    if "loss" in sft.columns:
        losses = sft.get_column("loss").cast(pl.Float64).to_list()
        steps = [float(step) for step in range(1, len(losses) + 1)]
        chart = charts.line_chart(steps, losses, tone="tone-before", x_label="step", smooth=True)
        curves.append({"title": "SFT loss", "note": "on answer tokens", "timed": False, "chart": chart})
    numbers = [float(figures["iteration"]) for figures in iterations]
    for name, title, note, form in (
        ("mean_return", "Mean return", "training batch", charts.short),
        ("mean_reward", "Mean final reward", "training batch", charts.short),
        ("correct", "Correct", "training batch", charts.percent),
        ("fast_1", "Faster than eager", "training batch", charts.percent),
        ("kl", "KL to the reference", "per response token", charts.short),
        ("entropy", "Entropy", "per response token", charts.short),
        ("response_tokens", "Response length", "tokens", charts.short),
        ("gradient_norm", "Gradient norm", "before clipping", charts.short),
    ):
        values = [figures[name] for figures in iterations]
        if any(value is not None for value in values):
            points = _heldout_points(summary, name)
            chart = charts.line_chart(numbers, values, x_label="iteration", form=form, points_beside=points)
            curves.append({"title": title, "note": note, "timed": name in _TIMED, "chart": chart})
    return curves


def _heldout_points(summary: Mapping[str, Any], name: str) -> list[charts.Point]:
    """Return the held-out figures of the policies that were evaluated, placed by the number of updates."""
    points: list[charts.Point] = []
    for kind, heldout in (("sampled", summary["heldout"]), ("greedy", summary.get("heldout_greedy"))):
        for when, place in (("before", 0), ("after", len(summary["iterations"]))):
            value = heldout and heldout[when].get(name)
            if value is not None:
                points.append(charts.Point(place, value, f"tone-{kind}", f"held-out, {kind}, {when} RL"))
        for figures in (heldout or {}).get("between", []):
            if figures.get(name) is not None:
                label = f"held-out, {kind}, policy {figures['policy']}"
                points.append(charts.Point(figures["policy"], figures[name], f"tone-{kind}", label))
    return points


def _turn_charts(policies: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return correctness and reward by turn, as if episodes ended after that turn."""

    def bars(name: str) -> list[tuple[str, list[charts.Bar]]]:
        groups: list[tuple[str, list[charts.Bar]]] = []
        for number in range(max(map(len, policies.values()))):
            group: list[charts.Bar] = []
            for policy, turns in policies.items():
                figures = turns[min(number, len(turns) - 1)]["after"] if turns else {}
                interval = figures.get(f"{name}_ci")
                group.append(
                    charts.Bar(
                        _TONES[policy], policy, figures.get(name), (interval[0], interval[1]) if interval else None
                    )
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
        ("tone-before", "before RL", inputs.sampled.before),
        ("tone-after", "after RL", inputs.sampled.after),
    ):
        speedups, totals[name] = _speedups(evaluation)
        series.append((tone, name, speedups))
    return charts.speed_histogram(series, totals)


def _speedups(evaluation: EvaluationRef) -> tuple[list[float], int]:
    """Return the speedups of correct last turns on standard problems, and how many trajectories there are."""
    standard = part_of(read_per_problem(evaluation), "standard").select("problem_id")
    turns = read_turns_file(evaluation.path / "turns.parquet").join(standard, on="problem_id", how="semi")
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
