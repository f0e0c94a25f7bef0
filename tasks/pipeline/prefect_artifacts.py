"""Artifacts in Prefect's UI: a Markdown summary and a table for each stage, progress of long ones, refusals.

Keys are `<run id>-<stage>…`: artifacts of a run stand together, and a stage's iterations are its versions. Artifacts
are for people: if the server refuses one, that is logged and the stage goes on. A table has a few dozen rows at most.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.pipeline.artifact_queue import ProgressBar, send
from tasks.pipeline.references import (
    ArtifactRef,
    CheckpointRef,
    EvaluationRef,
    ProblemSetRef,
    SftDataRef,
    TrajectoryBatchRef,
)
from tasks.pipeline.store import read_metadata

Row = dict[str, Any]

PROGRESS_INTERVAL_S = 5.0
"""A stage that ends sooner shows no progress; a longer one moves its bar this often."""
_MAX_STEPS = 24
_METRICS = (
    "step",
    "loss",
    "validation_loss",
    "kl",
    "entropy",
    "clip_fraction",
    "gradient_norm",
    "return_mean",
    "learning_rate",
    "tokens",
    "tokens_per_s",
)


def publish(run_id: str, name: str, content: str | Sequence[Row] | Path, description: str) -> None:
    """Show Markdown, a table, or a link to a file of this machine, under the key `<run id>-<name>`.

    Returns at once; it is shown as soon as the server answers.
    """
    from prefect import artifacts

    shown: dict[str, Any] = {"key": artifact_key(run_id, name), "description": description}
    match content:
        case str():
            send(artifacts.MarkdownArtifact(markdown=content, **shown))
        case Path():
            path = content.resolve()
            send(artifacts.LinkArtifact(link=path.as_uri(), link_text=str(path), **shown))
        case _:
            send(artifacts.TableArtifact(table=list(content), **shown))


def publish_summary(
    run_id: str, stage: str, label: str, reference: ArtifactRef, seconds: float, docs_dir: Path | None = None
) -> None:
    """Show the result of a stage. `docs_dir`: Data Docs that the stage wrote, if it is a check."""
    facts = {"computed in": f"{seconds:.1f} s", "published at": reference.uri}
    facts |= {name: str(value) for name, value in reference.model_dump(exclude={"uri"}).items()}
    metadata = read_metadata(reference.path)
    facts |= {name: str(value) for name, value in metadata.items() if name not in facts and _is_plain(value)}
    facts.pop("seconds", None)
    rows = [f"| {name.replace('_', ' ')} | `{value}` |" for name, value in facts.items()]
    text = [f"## {label}", "", "| | |", "|---|---|", *rows]
    if docs_dir is not None:
        page = docs_dir / "index.html"
        text += ["", f"Every expectation held, or what broke one was quarantined. Data Docs: `{page}`"]
    publish(run_id, stage, "\n".join(text) + "\n", label)
    if docs_dir is not None:
        return
    title, table = table_of(reference)
    if table:
        publish(run_id, f"{stage}-{title}", table, f"{label}: {title}")


def publish_refusal(run_id: str, stage: str, label: str, error: InputError) -> None:
    """Show why a stage refused its input: for the reader of a failed run, instead of a traceback."""
    text = f"## {label}: {error.heading}\n\n{error.markdown()}\n"
    publish(run_id, f"{stage}-refused", text, f"{label}: {error.summary}")


@contextmanager
def shown_progress(run_id: str, stage: str, label: str) -> Generator[Callable[[int, int], None]]:
    """Yield a function that takes a stage's progress, from any thread; a long stage gets a bar in the UI."""
    bar = ProgressBar(artifact_key(run_id, stage, "progress"), label)
    last = time.monotonic()
    lock = threading.Lock()

    def move(done: int, total: int) -> None:
        nonlocal last
        with lock:
            if total > 0 and time.monotonic() - last >= PROGRESS_INTERVAL_S:
                last = time.monotonic()
                bar.move(min(100.0, 100.0 * done / total))

    yield move
    bar.end()


def artifact_key(*parts: str) -> str:
    """Return the parts as Prefect wants a key: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def table_of(reference: ArtifactRef) -> tuple[str, list[Row]]:
    """Return the title and the rows of the table that is shown of an artifact."""
    title, rows = _TABLES[type(reference)]
    return title, rows(reference)


def problem_rows(problems: ProblemSetRef) -> list[Row]:
    """Return how many problems of each split each level has."""
    table = pl.read_parquet(problems.path / "problems.parquet", columns=["level", "split", "composition"])
    return [
        {
            "level": level,
            "to train on": part.filter(split="train").height,
            "held out": part.filter(split="heldout").height,
            "distinct compositions": part.get_column("composition").n_unique(),
        }
        for (level,), part in table.sort("level").group_by("level", maintain_order=True)
    ]


def pair_rows(data: SftDataRef) -> list[Row]:
    """Return what the judge found about SFT pairs of each kind and style."""
    table = pl.read_parquet(data.path / "pairs.parquet", columns=["kind", "style", "used", "verdict"])
    grouped = table.unnest("verdict").group_by("kind", "style").agg(
        pairs=pl.len(),
        used=pl.col("used").sum(),
        correct=pl.col("correct").cast(pl.Float64).mean(),
        **{"median speed-up": pl.col("speedup").filter(pl.col("correct")).median()},
    )  # fmt: skip
    return [
        {**row, "correct": _share(row["correct"]), "median speed-up": rounded(row["median speed-up"])}
        for row in grouped.sort("kind", "style").iter_rows(named=True)
    ]


def metric_rows(policy: CheckpointRef) -> list[Row]:
    """Return the training's metrics, one row an optimizer step; evenly drawn ones where there were many."""
    path = policy.path / "metrics.parquet"
    if not path.exists():  # a policy that came from elsewhere
        return []
    table = pl.read_parquet(path)
    shown = [name for name in _METRICS if name in table.columns]
    stride = max(1, math.ceil(table.height / _MAX_STEPS))
    chosen = [*range(0, table.height - 1, stride), table.height - 1]
    return [
        {name.replace("_", " "): rounded(value) for name, value in row.items()}
        for row in table.select(shown)[chosen].iter_rows(named=True)
    ]


def verdict_rows(batch: TrajectoryBatchRef) -> list[Row]:
    """Return how many turns of each number got which verdict, and what that was worth."""
    turns = pl.read_parquet(batch.path / "turns.parquet", columns=["turn_index", "verdict", "reward"]).with_columns(
        status=pl.col("verdict").struct.field("status")
    )
    numbers = sorted(turns.get_column("turn_index").unique().to_list())
    counts = {(status, number): count for status, number, count in turns.group_by("status", "turn_index").len().rows()}
    rows: list[Row] = []
    for (status,), part in turns.group_by("status"):
        mean = part.get_column("reward").mean()
        rows.append(
            {
                "verdict": status,
                **{f"turn {number + 1}": counts.get((status, number), 0) for number in numbers},
                "all": part.height,
                "share": _share(part.height / turns.height),
                "mean reward": rounded(mean if isinstance(mean, float) else None),
            }
        )
    return sorted(rows, key=lambda row: -row["all"])


def evaluation_rows(evaluation: EvaluationRef) -> list[Row]:
    """Return every figure of an evaluation with its interval."""
    overall = json.loads((evaluation.path / "evaluation.json").read_text(encoding="utf-8"))["overall"]
    return [{"figure": name, "value": with_interval(overall, name)} for name in overall if f"{name}_ci" in overall]


_TABLES: dict[type[ArtifactRef], tuple[str, Callable[[Any], list[Row]]]] = {
    ProblemSetRef: ("problems", problem_rows),
    SftDataRef: ("pairs", pair_rows),
    CheckpointRef: ("metrics", metric_rows),
    TrajectoryBatchRef: ("verdicts", verdict_rows),
    EvaluationRef: ("figures", evaluation_rows),
}


def rounded(value: Any) -> Any:
    """Return a number with four significant digits; what has no value (null, NaN) as a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def with_interval(figures: Mapping[str, Any], name: str, form: str = ".3f") -> str:
    """Return a figure of a mapping like `{"correct": 0.5, "correct_ci": [0.25, 0.75]}` as `0.500 [0.250, 0.750]`."""
    value, interval = figures.get(name), figures.get(f"{name}_ci")
    form = form.replace(".", "z.")  # `z`: nothing is shown as -0.000
    if value is None:
        return "–"
    return f"{value:{form}}" + (f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else "")


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str) and not (isinstance(value, str) and len(value) > 200)
