"""What a run shows of itself in Prefect's UI: a Markdown summary and a table a stage, progress of long ones, refusals.

Keys are `<run id>-<stage>…`, so that one run's artifacts stand together and a stage's iterations are its versions. An
artifact is for people: a server that cannot take it costs a line in the log, never the stage.
"""

import contextvars
import logging
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prefect.exceptions import PrefectHTTPStatusError

from kernels_eval.errors import InputError
from tasks.pipeline.artifact_tables import comparison_rows, table_of
from tasks.pipeline.references import ArtifactRef
from tasks.pipeline.store import read_manifest

PROGRESS_INTERVAL_S = 5.0
"""A stage that ends sooner shows no progress; a longer one moves its bar this often."""
_LOGGER = logging.getLogger("kernelmill.artifacts")


def publish_summary(
    run_id: str, stage: str, label: str, reference: ArtifactRef, seconds: float, docs_dir: Path | None = None
) -> None:
    """Show what a stage made. `docs_dir`: the stage is a check, and its pages are there."""
    from prefect.artifacts import create_markdown_artifact, create_table_artifact

    facts = {"computed in": f"{seconds:.1f} s", "published at": reference.uri}
    facts |= {name: str(value) for name, value in reference.model_dump(exclude={"uri"}).items()}
    facts |= {
        name: str(value) for name, value in _metadata(reference).items() if name not in facts and _is_plain(value)
    }
    facts.pop("seconds", None)
    rows = [f"| {name.replace('_', ' ')} | `{value}` |" for name, value in facts.items()]
    text = [f"## {label}", "", "| | |", "|---|---|", *rows]
    if docs_dir is not None:
        text += [
            "",
            f"Every expectation held, or what broke one was quarantined. Data Docs: `{docs_dir / 'index.html'}`",
        ]
    with _for_people(label):
        create_markdown_artifact("\n".join(text) + "\n", key=artifact_key(run_id, stage), description=label)
        if docs_dir is None:
            title, table = table_of(reference)
            if table:
                create_table_artifact(table, key=artifact_key(run_id, stage, title), description=f"{label}: {title}")


def publish_refusal(run_id: str, stage: str, label: str, error: InputError) -> None:
    """Show what was wrong with the input: the reader of a red run wants this, not a traceback."""
    from prefect.artifacts import create_markdown_artifact

    from tasks.validation.failure import ValidationFailed

    if isinstance(error, ValidationFailed):
        failure = error.failure
        rows = [
            ("expectation", f"`{failure.expectation}` of suite `{failure.suite}`"),
            ("column", f"`{failure.column}`"),
            ("expected", failure.expected),
            ("found", failure.found),
            ("an example", f"row `{failure.example}`" if failure.example != "-" else "the batch as a whole"),
            ("data", f"`{failure.data}`"),
            ("Data Docs", f"`{failure.data_docs}`"),
        ]
        body = "\n".join(f"| **{name}** | {_cell(value)} |" for name, value in rows)
        why = f"Why this stops the run: {failure.consequence or 'the expectation is critical'}."
        text = (
            f"## {label}: validation failed\n\n| | |\n|---|---|\n{body}\n\n{why}\n\n"
            "The same data fails again: nothing was retried, nothing was published. Mend the data or the expectation, "
            "then start the same run again; finished stages are not repeated.\n"
        )
        said = f"{label}: {failure.expectation} on {failure.column} failed"
    else:
        text, said = f"## {label}: refused\n\n{error}\n", f"{label}: refused"
    with _for_people(label):
        create_markdown_artifact(text, key=artifact_key(run_id, stage, "refused"), description=said)


def publish_report(run_id: str, path: Path, summary: Mapping[str, Any], links: Mapping[str, str]) -> None:
    """Show the run's figures before and after RL, and where its report is. `links`: title and address of what else there is to read."""
    from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

    heldout = summary["heldout"]
    mark = " Speeds are estimates (roofline)." if summary.get("timing_source") == "roofline" else ""
    rows = {"report": str(path), "figures": str(path.with_name("summary.json")), **links}
    text = f"## Report of {run_id}\n\n{heldout['n']} held-out problems.{mark}\n\n| | |\n|---|---|\n"
    text += "".join(f"| {title} | {_linked(address)} |\n" for title, address in rows.items())
    with _for_people("report"):
        create_link_artifact(
            path.resolve().as_uri(),
            link_text=str(path.resolve()),
            key=artifact_key(run_id, "report", "link"),
            description=f"Report of {run_id}",
        )
        create_markdown_artifact(text, key=artifact_key(run_id, "report"), description=f"Report of {run_id}")
        create_table_artifact(
            comparison_rows(heldout),
            key=artifact_key(run_id, "heldout"),
            description=f"{heldout['n']} held-out problems before and after RL.{mark}",
        )


def publish_comparison(run_id: str, folder: Path, comparison: dict[str, Any]) -> None:
    """Show several policies side by side, and where the page about them is."""
    from prefect.artifacts import create_markdown_artifact, create_table_artifact

    from tasks.evaluation.comparison import PAGE_FILE, table_rows

    names = ", ".join(policy["name"] for policy in comparison["policies"])
    mark = " Speeds are estimates (roofline)." if comparison["timing_source"] == "roofline" else ""
    text = (
        f"## {names}\n\n{comparison['n']} held-out problems, paired.{mark} Page: `{(folder / PAGE_FILE).resolve()}`\n"
    )
    with _for_people("comparison"):
        create_markdown_artifact(text, key=artifact_key(run_id, "comparison"), description=f"Comparison of {names}")
        create_table_artifact(
            table_rows(comparison), key=artifact_key(run_id, "comparison", "figures"), description=f"{names}.{mark}"
        )


@contextmanager
def shown_progress(run_id: str, stage: str, label: str) -> Generator[Callable[[int, int], None]]:
    """Yield what a stage tells its progress to, from any thread; a long stage gets a bar in the UI."""
    from prefect.artifacts import create_progress_artifact, update_progress_artifact

    bar: Any = None
    last = time.monotonic()
    lock = threading.Lock()
    # A thread that the stage starts knows neither the task run nor the server that this one talks to.
    context = contextvars.copy_context()

    def move(done: int, total: int) -> None:
        with lock:
            context.run(draw, done, total)

    def draw(done: int, total: int) -> None:
        nonlocal bar, last
        if time.monotonic() - last < PROGRESS_INTERVAL_S or total <= 0:
            return
        last = time.monotonic()
        percent = min(100.0, 100.0 * done / total)
        with _for_people(label):
            if bar is None:
                bar = create_progress_artifact(percent, artifact_key(run_id, stage, "progress"), label)
            else:
                update_progress_artifact(bar, percent)

    yield move
    if bar is not None:
        with _for_people(label):
            update_progress_artifact(bar, 100.0)


def artifact_key(*parts: str) -> str:
    """Return the parts as Prefect wants a key: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


@contextmanager
def _for_people(label: str) -> Generator[None]:
    try:
        yield
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        _LOGGER.warning("%s: Prefect's server did not take an artifact: %s", label, error)


def _linked(address: str) -> str:
    """Return an address as Markdown: a page of the web, or a file or folder of this machine."""
    if address.startswith(("http://", "https://")):
        return f"[{address}]({address})"
    path = Path(address).resolve()
    return f"[`{path}`]({path.as_uri()})"


def _metadata(reference: ArtifactRef) -> dict[str, Any]:
    return (read_manifest(reference.path) or {}).get("metadata", {})


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str) and not (isinstance(value, str) and len(value) > 200)


def _cell(text: str) -> str:
    """Return text as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
