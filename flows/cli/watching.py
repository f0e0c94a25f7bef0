"""`kernelmill watch`: draws the figures that a run records while it goes on; reads its folder and changes nothing."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from tasks.tracking.figures import FigureLine
    from tasks.tracking.steps import StepLine

_LATEST = Path("runs/latest")
WIDTH = 80
"""Columns of the output where it is no terminal."""
_CURVE = 24
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_LOG_TAIL = 64 * 1024
_EVENT = re.compile(
    r"^\S+ (?P<time>[\d:]+)\S* \w+ +\S+: "
    r"(?P<label>\S.*?): (?P<what>started|\d+ of \d+|cached|done in [\d.]+ s|failed)\b"
)


class Shown(NamedTuple):
    """A row of the table."""

    stage: str
    figure: str
    title: str
    is_share: bool = False


ROWS = (
    Shown("evaluation", "mean_return", "held-out return"),
    Shown("evaluation", "correct", "held-out correct", True),
    Shown("evaluation", "fast_1", "held-out fast 1", True),
    Shown("evaluation", "geomean_speedup", "held-out speed-up"),
    Shown("evaluation_greedy", "correct", "  greedy, correct", True),
    Shown("rollout", "mean_reward", "reward"),
    Shown("rollout", "correct", "correct", True),
    Shown("rollout", "compiled", "compiled", True),
    Shown("rollout", "geomean_speedup", "speed-up if correct"),
    Shown("rollout", "mean_turns", "turns"),
    Shown("rollout", "faults", "faults", True),
    Shown("rollout", "tokens_per_s", "tokens/s generated"),
    Shown("rollout", "judge_seconds", "judge seconds"),
    Shown("rollout", "lag", "lag, iterations"),
    Shown("rollout", "gpu_busy", "GPUs busy", True),
    Shown("update", "loss", "loss"),
    Shown("update", "kl", "KL"),
    Shown("update", "entropy", "entropy"),
    Shown("update", "gradient_norm", "gradient norm"),
    Shown("update", "clip_fraction", "clipped", True),
    Shown("update", "learning_rate", "learning rate"),
    Shown("update", "gpu_busy", "GPUs busy", True),
)
STEP_FIGURES = ("loss", "validation_loss", "gradient_norm", "learning_rate", "tokens_per_s")
"""Figures of a training's optimizer steps."""


def add_to(app: typer.Typer) -> None:
    """Add the command of this group."""
    app.command("watch", rich_help_panel="Look at runs")(watch)


def watch(
    run: Annotated[Path, typer.Argument(metavar="[RUN]", help="A run's folder.")] = _LATEST,
    once: Annotated[bool, typer.Option("--once", help="Print the present figures and end.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between two looks at the folder.")
    ] = 2.0,
) -> None:
    """Draw a run's figures in the terminal while it goes on, with their curves over the iterations. Ctrl-C ends it."""
    from rich.console import Console

    folder = run_folder(run)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    if once:
        console.print(view(folder, console))
        return
    try:
        _follow(folder, console, interval)
    except KeyboardInterrupt:
        return


def _follow(folder: Path, console: "Console", interval: float) -> None:
    """Draw the figures until Ctrl-C: in place on a terminal, elsewhere once more after each change."""
    if not console.is_terminal:
        for _ in _changes(folder, interval):
            console.print(view(folder, console))
            console.file.flush()
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(view(folder, console), refresh=True)
            time.sleep(interval)


def _changes(folder: Path, interval: float) -> Iterator[None]:
    """Yield at once, and after each change of the run's record."""
    from tasks.tracking.figures import read_lines
    from tasks.tracking.steps import read_steps

    seen: object = None
    while True:
        if (found := (read_lines(folder), read_steps(folder))) != seen:
            seen = found
            yield
        time.sleep(interval)


def run_folder(run: Path) -> Path:
    """Return the folder behind a link. Raises InputError if it is not the folder of a run."""
    from kernels_eval.errors import InputError

    folder = run.resolve()
    if not (folder / "config.yaml").is_file():
        found = "a folder without config.yaml" if folder.is_dir() else "no such folder"
        raise InputError(f"{run}: expected the folder of a run, e.g. {_LATEST}; found {found}")
    return folder


def view(folder: Path, console: "Console") -> "Group":
    """Return the run's name and stage, a table of its figures, and the shares of the last rollout's verdicts."""
    from rich.console import Group
    from rich.text import Text

    from tasks.tracking.figures import FIGURES_FILE, has_lines, read_lines
    from tasks.tracking.steps import read_steps

    lines, steps = read_lines(folder), read_steps(folder)
    heading = Text(f"{folder.name}: {_extent(folder, lines)}; {stage_of(folder)}")
    if not lines and has_lines(folder):
        return Group(heading, Text(f"{folder / FIGURES_FILE}: damaged: none of its lines holds figures"))
    if not lines and not steps:
        return Group(heading, Text("no figures yet: the first come with SFT, the first held-out evaluation or rollout"))
    blocks = _BLOCKS if "utf" in console.encoding.lower() else _ASCII
    table = _table()
    for training, done in steps.items():
        _add_steps(table, training, done, blocks)
    _add_figures(table, lines, blocks)
    return Group(heading, table, Text(f"verdicts of the last rollout: {_statuses(lines)}"))


def _extent(folder: Path, lines: Sequence["FigureLine"]) -> str:
    done = sum(line.stage == "update" for line in lines)
    planned = re.search(
        r"^iterations: (\d+)$", (folder / "config.yaml").read_text(encoding="utf-8", errors="replace"), re.MULTILINE
    )
    return f"{done} of {planned[1]} iterations" if planned else f"{done} iterations"


def stage_of(folder: Path) -> str:
    """Return the stage that runs, or the last one that ended, from the end of the run's log."""
    try:
        with (folder / "log.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_TAIL))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return "no stage yet"
    events = [found for line in text.splitlines() if (found := _EVENT.match(line))]
    return f"{events[-1]['label']} {events[-1]['what']} ({events[-1]['time']})" if events else "no stage yet"


def _table() -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    table.add_column("last", justify="right", no_wrap=True)
    table.add_column("iteration", justify="right", no_wrap=True)
    table.add_column("curve", no_wrap=True)
    return table


def _add_steps(table: "Table", training: str, done: Sequence["StepLine"], blocks: str) -> None:
    """Add a section with the optimizer steps of a training; of updates, whose means are shown below, the loss alone."""
    name = training.replace("_", " ").replace("/", " of the ").replace("sft", "SFT")
    for figure in STEP_FIGURES[: 1 if training.startswith("update") else None]:
        known = [(line.step, line.figures[figure]) for line in done if figure in line.figures]
        if known:
            curve = sparkline([value for _, value in known], _CURVE, blocks)
            title = f"{name}: {figure.replace('_', ' ').replace(' per s', '/s')}"
            table.add_row(title, _digits(known[-1][1]), f"step {known[-1][0]}", curve)
    table.add_section()


def _add_figures(table: "Table", lines: Sequence["FigureLine"], blocks: str) -> None:
    """Add the figures over the iterations."""
    before = ""
    for row in ROWS:
        series = {line.iteration: line.figures for line in lines if line.stage == row.stage}
        values = [(number, series[number].get(row.figure)) for number in sorted(series)]
        known = [(number, value) for number, value in values if value is not None]
        if not known:
            continue
        group = row.stage.partition("_")[0]
        if before not in ("", group) and table.rows:
            table.add_section()
        before = group
        number, value = known[-1]
        curve = sparkline([value for _, value in values], _CURVE, blocks)
        table.add_row(row.title, _shown(row, value, series[number].get(f"{row.figure}_ci")), str(number), curve)


def _shown(row: Shown, value: float, interval: list[float] | None) -> str:
    """Return a figure with its interval; shares in percent."""

    def digits(number: float) -> str:
        return f"{100 * number:.1f}" if row.is_share else _digits(number)

    ends = f" [{digits(interval[0])}, {digits(interval[1])}]" if interval else ""
    return f"{digits(value)}{' %' * row.is_share}{ends}"


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _statuses(lines: Sequence["FigureLine"]) -> str:
    last: dict[str, Any] = next((line.figures for line in reversed(lines) if line.stage == "rollout"), {})
    shares: dict[str, float] = last.get("statuses", {})
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered) or "none yet"


def sparkline(values: Sequence[float | None], width: int, blocks: str = _BLOCKS) -> str:
    """Return a curve in one line of at most `width` characters, from the smallest value to the largest.

    More values than characters are averaged in groups. A space stands for a value that is not known.
    """
    size = -(-len(values) // width) or 1
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    known = [[value for value in group if value is not None] for group in groups]
    means = [sum(group) / len(group) if group else None for group in known]
    present = [mean for mean in means if mean is not None]
    if not present:
        return ""
    low, span = min(present), max(present) - min(present)
    return "".join(
        " " if mean is None else blocks[round((mean - low) / span * (len(blocks) - 1)) if span > 0 else 0]
        for mean in means
    )
