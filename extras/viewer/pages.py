"""Pages as HTML. No script and no inline style: the server's content security policy allows neither.

Every value is escaped by the templates, and loses what a reader would not see. `Markup` of our own (charts, coloured
source) is shown as it is.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from extras.viewer import comparison, selection
from extras.viewer.answer import read_answer
from extras.viewer.grid import grid_of
from extras.viewer.runs import KINDS, Batch, Kind, RunFolder
from kernels_eval.errors import InputError
from kernels_eval.plain_text import plain_text
from tasks.evaluation.report import charts
from tasks.evaluation.report.page import style_sheet
from tasks.pipeline.store import digest_of
from tasks.tracking.figures import FigureLine, read_lines
from tasks.tracking.steps import read_steps

MOST_RUNS = 6
"""Runs whose curves are drawn over each other: as many as there are colours."""
_MOST_POINTS = 400
"""Of a curve over optimizer steps."""
_TEMPLATES = Path(__file__).parent / "templates"
_CURVES = (
    ("evaluation", "correct", "Held-out correct", "policy", charts.percent),
    ("evaluation", "mean_return", "Held-out mean return", "policy", charts.short),
    ("evaluation", "geomean_speedup", "Held-out speed-up", "policy", charts.short),
    ("evaluation_greedy", "correct", "Held-out correct, greedy", "policy", charts.percent),
    ("rollout", "mean_reward", "Reward of a batch", "iteration", charts.short),
    ("rollout", "correct", "Correct of a batch", "iteration", charts.percent),
    ("rollout", "response_tokens", "Tokens of an answer", "iteration", charts.short),
    ("update", "kl", "KL", "iteration", charts.short),
    ("update", "entropy", "Entropy", "iteration", charts.short),
    ("update", "gradient_norm", "Gradient norm", "iteration", charts.short),
)


class Links(Protocol):
    """Addresses of pages; None where there is no such page."""

    def __call__(self, page: str, /, **query: object) -> str | None:
        """Return the address of a page with these parameters."""
        ...


def server_links(page: str, /, **query: object) -> str:
    """Return an address on the server, relative to any of its pages."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{page or './'}{'?' if given else ''}{urlencode(given)}"


class Site(NamedTuple):
    """The place of the pages, on a server or in one file."""

    links: Links = server_links
    prefect: str | None = None
    """Address of Prefect's UI, for links to flow runs."""
    nonce: str | None = None
    """Of a file that stands alone, for its own style and script; None: of a server."""


def style() -> str:
    """Return the style sheet: the report's, and the viewer's own."""
    return str(style_sheet()) + (_TEMPLATES / "viewer.css").read_text(encoding="utf-8")


def runs_page(site: Site, runs: Mapping[str, RunFolder], chosen: Sequence[str]) -> str:
    """Return the list of runs, and learning curves of the chosen ones; of the newest ones if none is."""
    shown = [runs[name] for name in chosen if name in runs] or list(runs.values())
    shown = [run for run in shown if read_lines(run.folder)][:MOST_RUNS]
    return _render(
        site,
        "runs.html.j2",
        rows=[_run_row(run) for run in runs.values()],
        tones={run.name: f"tone-s{place}" for place, run in enumerate(shown)},
        curves=curves_of(shown),
        most=MOST_RUNS,
    )


def run_page(site: Site, run: RunFolder, given: Mapping[str, str]) -> str:
    """Return a run's curves and its grid. Parameters: `kind`, `colour` (`pass` or `speed`), `page`."""
    kinds = {kind: title for kind, title in KINDS.items() if any(batch.kind == kind for batch in run.batches.values())}
    kind = given.get("kind") or next(iter(kinds), "sampled")
    if kind not in KINDS:
        raise InputError(f"kind: found {kind[:60]!r}, expected one of {', '.join(KINDS)}")
    by_speed = given.get("colour") == "speed"
    return _render(
        site,
        "run.html.j2",
        run=run,
        row=_run_row(run),
        curves=curves_of([run]),
        kinds=kinds,
        kind=kind,
        by_speed=by_speed,
        grid=grid_of(run, _kind(kind), by_speed, page_number(given)),
    )


def answers_page(site: Site, run: RunFolder, given: Mapping[str, str], runs: Sequence[str]) -> str:
    """Return a page of a run's trajectories with its filters."""
    wanted = selection.wanted_of(given)
    return _render(
        site,
        "answers.html.j2",
        run=run,
        runs=runs,
        wanted=wanted,
        found=selection.select(run, wanted),
        orders=selection.ORDERS,
    )


def answer_page(site: Site, run: RunFolder, batch: Batch, trajectory_id: str) -> str:
    """Return one trajectory."""
    return _render(
        site,
        "answer.html.j2",
        run=run,
        batch=batch,
        answer=read_answer(run, batch, trajectory_id),
        flow_run=run.flow_run,
    )


def compare_page(site: Site, runs: dict[str, RunFolder], given: Mapping[str, str]) -> str:
    """Return two policies side by side; with `problem` their best answers to it. `first`, `second`: `RUN/BATCH`."""
    default = comparison.sides_by_default(runs)
    keys = [given.get("first"), given.get("second")]
    if not default:
        raise InputError("compare: expected two policies with answers, found none")
    sides = [comparison.side_of(runs, key) if key else side for key, side in zip(keys, default, strict=True)]
    first, second = sides
    problem = given.get("problem") or None
    return _render(
        site,
        "compare.html.j2",
        sides=sides,
        choices=[comparison.Side(run, batch) for run in runs.values() for batch in run.batches.values()],
        problems=comparison.shared_problems(first, second),
        problem=problem,
        best=comparison.best_answers(first, second, problem) if problem else None,
    )


def message_page(site: Site, sentence: str) -> str:
    """Return a page that says why there is no other."""
    return _render(site, "message.html.j2", sentence=sentence)


def whole_page(site: Site, runs: Mapping[str, RunFolder], sections: Sequence[Mapping[str, Any]]) -> str:
    """Return the one page of a static export."""
    shown = [run for run in runs.values() if read_lines(run.folder)][:MOST_RUNS]
    return _render(
        site,
        "export.html.j2",
        sections=sections,
        style=Markup(style()),
        tones={run.name: f"tone-s{place}" for place, run in enumerate(shown)},
        curves=curves_of(shown),
    )


def anchor_of(*parts: object) -> str:
    """Return the id of an element of a static export: letters and digits, whatever the names are."""
    return f"{parts[0]}-{digest_of([str(part) for part in parts])}"


def page_number(given: Mapping[str, str]) -> int:
    """Return the parameter `page`; 1 without one. Raises InputError if it is no whole number above 0."""
    text = given.get("page") or "1"
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise InputError(f"page: found {text[:20]!r}, expected a whole number from 1 up")
    return int(text)


def curves_of(runs: Sequence[RunFolder]) -> list[tuple[str, Markup]]:
    """Return title and chart of each figure that one of the runs has; the runs' colours are in their order."""
    lines = [(run, read_lines(run.folder)) for run in runs]
    found: list[tuple[str, Markup]] = []
    losses = [
        charts.Series(f"tone-s{place}", run.name, [float(step) for step, _ in points], [loss for _, loss in points])
        for place, run in enumerate(runs)
        if (points := _loss_of_sft(run))
    ]
    if losses:
        found.append(("Loss of SFT", charts.several_lines(losses, x_label="step", form=charts.short)))
    for stage, name, title, axis, form in _CURVES:
        series = [
            charts.Series(f"tone-s{place}", run.name, [float(x) for x, _ in points], [y for _, y in points])
            for place, (run, stored) in enumerate(lines)
            if (points := _points(stored, stage, name))
        ]
        if series:
            found.append((title, charts.several_lines(series, x_label=axis, form=form)))
    return found


def _loss_of_sft(run: RunFolder) -> list[tuple[int, float]]:
    steps = read_steps(run.folder).get("sft", [])
    found = [(line.step, line.figures["loss"]) for line in steps if "loss" in line.figures]
    return found[:: -(-len(found) // _MOST_POINTS) or 1]


def _points(lines: Sequence[FigureLine], stage: str, name: str) -> list[tuple[int, float]]:
    found = {line.iteration: line.figures.get(name) for line in lines if line.stage == stage}
    return [(iteration, value) for iteration, value in sorted(found.items()) if isinstance(value, int | float)]


def _run_row(run: RunFolder) -> dict[str, Any]:
    """Return a run's last figures."""
    lines = read_lines(run.folder)
    last = next((line.figures for line in reversed(lines) if line.stage == "evaluation"), {})
    return {
        "run": run,
        "iterations": sum(line.stage == "update" for line in lines),
        "policies": sum(batch.kind == "sampled" for batch in run.batches.values()),
        "newest": run.newest,
        "changed": lines[-1].time.replace("T", " ").replace("Z", " UTC") if lines else "",
        **{name: last.get(name) for name in ("correct", "mean_return", "geomean_speedup")},
    }


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind == name)


def _render(site: Site, template: str, **context: Any) -> str:
    return _environment().get_template(template).render(site=site, link=site.links, **context)


def _plain(value: Any) -> Any:
    """Return a text without control characters and changes of direction; `Markup` is our own and stays."""
    return plain_text(value) if type(value) is str else value


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_plain,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own: dict[str, Any] = {"anchor": anchor_of}
    environment.globals.update(own)
    filters: dict[str, Any] = {"share": _share, "times": _times, "number": _number, "words": _words}
    environment.filters.update(filters)
    return environment


def _share(value: float | None) -> str:
    return "–" if value is None else charts.percent(value)


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _words(value: object) -> str:
    return str(value).replace("_", " ")
