"""Run of a flow from the command line: with a Prefect server, stages shown as they come, figures at the end."""

import contextlib
import importlib
import logging
import pkgutil
import signal
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from flows.cli.console import ConsoleListener, showing_turns
from flows.cli.interruption import telling_how_to_go_on

if TYPE_CHECKING:
    from flows.run.state import RunState
    from flows.services.prefect_server import PrefectServer
    from flows.settings.configuration import RunConfig
    from kernels_eval.errors import KernelmillError

TRAINING = "flows.training.training_flow"
REPORT = "flows.report.report_flow"
PAIRS = "flows.sft.sft_pairs_flow"
_FIRST_STAGES = ("tasks.problems.synthetic.suite", "tasks.validation.runner")
"""Modules that the first stages of a new run import: torch and Great Expectations, four seconds of a core."""


def run_and_show(
    flow: str, path: Path, overrides: list[str] | None, refreshed: list[str] | None, **arguments: Any
) -> Any:
    """Run a flow as `run_flow` does, and print the main figures of what it returns; returns that."""
    result = run_flow(flow, path, overrides, refreshed, **arguments)
    _show_result(result.console, result.run_dir, result.value)
    result.console.print(f"done in {result.seconds:.0f} s: {result.run_dir}", soft_wrap=True)
    return result.value


@dataclass(frozen=True)
class FlowResult:
    """Return value of a flow, and where and how long it ran."""

    value: Any
    run_dir: Path
    seconds: float
    console: Console


def run_flow(
    name: str,
    path: Path,
    overrides: list[str] | None,
    refreshed: list[str] | None,
    *,
    turns: bool = False,
    **arguments: Any,
) -> FlowResult:
    """Run the flow of this dotted name with a Prefect server, and show its stages on the terminal."""
    from httpx import HTTPError

    from flows.capacity.speed import share_of
    from flows.checks.preflight import check_before_start, check_checkpoint
    from flows.run.state import read_state
    from flows.services.environment import set_defaults
    from flows.settings.configuration import load_configuration
    from kernels_eval.pool.scratch import remove_left_behind
    from tasks.pipeline.stage import check_refresh

    began = time.monotonic()
    set_defaults()
    config = load_configuration(path, overrides or [])
    flow = pkgutil.resolve_name(name)  # it declares its stages
    again = frozenset(refreshed or [])
    check_refresh(again, config.iterations if name == TRAINING and config.iterations else None)
    run_dir = Path(config.runs_dir) / config.run_id
    if name == REPORT:
        from flows.report import check_evaluated

        check_evaluated(config, run_dir, read_state(run_dir))
    console = Console(highlight=False, emoji=False)
    check_before_start(
        config, lambda text: console.print(f"[yellow]{escape(text)}[/yellow]", soft_wrap=True), name == PAIRS
    )
    remove_left_behind(Path(tempfile.gettempdir()))
    if "checkpoint" in arguments:
        check_checkpoint(Path(arguments["checkpoint"]), config)
    runs_dir = Path(config.runs_dir)
    state = read_state(run_dir)
    console.print(f"[bold]kernelmill[/bold] run [bold]{config.run_id}[/bold] → {run_dir}")
    if name == TRAINING:
        _show_steps(console, config, state)

    from prefect.exceptions import ObjectNotFound

    from flows.run.lock import check_not_open
    from flows.run.run import listener, on_sigterm, refresh, startup_s
    from flows.services.prefect_server import prefect_server

    check_not_open(run_dir)
    _remove_prefect_console_log()
    on_sigterm.set(signal.getsignal(signal.SIGTERM))
    shares = partial(share_of, config=config) if name == TRAINING else lambda _: 0.0
    drawn = ConsoleListener(console, shares)
    listener.set(drawn)
    refresh.set(again)
    is_new = name == TRAINING and not state.timings
    beside = _import_first_stages if is_new else None
    with prefect_server(runs_dir, drawn.warned, beside, config.prefect.start_timeout_s) as server:
        startup_s.set(server.startup_s)
        _show_server(console, server, runs_dir)
        with telling_how_to_go_on(console, drawn), drawn.drawing(), showing_turns(console, turns):
            try:
                value = flow(config, **arguments)
            except (HTTPError, ObjectNotFound) as error:
                raise _failure_behind(error, server.api_url) from error
    return FlowResult(value, run_dir, time.monotonic() - began, console)


def _failure_behind(error: Exception, api_url: str) -> "KernelmillError":
    """Return what a flow failed for, if its server could not be told; else the server's failure."""
    from prefect.exceptions import ObjectNotFound

    from kernels_eval.errors import InfrastructureError, KernelmillError, first_line

    before = error.__context__
    while before is not None:
        if isinstance(before, KernelmillError):
            return before
        before = before.__context__
    if isinstance(error, ObjectNotFound):
        return InfrastructureError(f"Prefect's server at {api_url} has lost this run: its database was replaced.")
    return InfrastructureError(f"Prefect's server at {api_url} does not answer as it should: {first_line(error)}.")


def _show_steps(console: Console, config: "RunConfig", state: "RunState") -> None:
    """Print the steps of a run, how far it is, and how long it may take."""
    from flows.capacity.speed import describe, expectation

    for number, line in enumerate(describe(config), start=1):
        console.print(f"  {number}. {line}", soft_wrap=True)
    if state.timings and not state.concluded:
        last = list(state.timings)[-1]
        console.print(f"  going on: {len(state.timings)} stages of this run are finished, the last one is {last}")
    done_s = sum(timing.seconds for timing in state.timings.values())
    console.print(f"  {expectation(config, done_s)}", soft_wrap=True)


def _show_server(console: Console, server: "PrefectServer", runs_dir: Path) -> None:
    """Print where the run's Prefect server is, and where its auth string."""
    from flows.services.server_access import AUTH

    if server.unanswered:
        console.print(f"[yellow]no Prefect server answers at {server.unanswered}; a local one was started[/yellow]")
    console.print(f"  Prefect: {server.ui_url}" + (" (until the end of this run)" if server.ours else ""))
    if server.sign_in:
        console.print(f"  its auth string is in {runs_dir / 'prefect' / AUTH}", soft_wrap=True)


def _import_first_stages() -> None:
    """Import what the first stages need; what cannot be imported is said by the stage that needs it."""
    with contextlib.suppress(ImportError):
        for module in _FIRST_STAGES:
            importlib.import_module(module)


def _show_result(console: Console, run_dir: Path, value: object) -> None:
    """Print the main figures of an evaluation, or of a run that has a summary."""
    from flows.cli.tables import evaluation_table, summary_tables
    from tasks.pipeline.references import EvaluationRef

    if isinstance(value, EvaluationRef):
        console.print(evaluation_table(value.path))
    elif isinstance(value, str) and (run_dir / "summary.json").exists():
        for table in summary_tables(run_dir):
            console.print(table)
        console.print(f"report: {run_dir / 'report.html'}", soft_wrap=True)


def _remove_prefect_console_log() -> None:
    """Remove Prefect's log from the terminal; it stays in Prefect's UI and in the run's log.txt."""
    import prefect.main  # pyright: ignore[reportUnusedImport]  # its import sets up the handlers  # noqa: F401
    from prefect.logging.handlers import PrefectConsoleHandler

    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, PrefectConsoleHandler):
            root.removeHandler(handler)
