"""`kernelmill train | iterate | sft | rollout | update | evaluate | compare | report`: the loop, or a part of it."""

import json
import logging
import pkgutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.checks.output import check_output
from flows.cli.console import ConsoleListener, TrajectoryLogsOption, TurnsOption, logs_override, showing_turns
from flows.cli.interruption import telling_how_to_go_on
from flows.cli.options import (
    DEFAULT_CONFIG,
    BaseUrlOption,
    ConfigArgument,
    ConfigOption,
    ModelOption,
    RefreshOption,
    SetOption,
    config_path,
)

TRAINING = "flows.training.training_flow"
COMMANDS = {
    "train": (TRAINING, "Run the whole loop: SFT, RL iterations, held-out evaluation before and after, report."),
    "iterate": ("flows.iteration.training_iteration_flow", "Run one more iteration from the run's newest policy."),
    "sft": ("flows.sft.sft_flow", "Make the problem set and the judged SFT pairs, then run SFT."),
    "rollout": ("flows.iteration.rollout_flow", "Collect and validate trajectories of the newest policy."),
    "report": ("flows.report.report_flow", "Write summary.json and report.html of the run again."),
}
"""Flow and help text of the commands without options of their own."""


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for name, (flow, text) in COMMANDS.items():
        command = _command_with_rollouts(flow) if name in ("train", "iterate", "rollout") else _command(flow)
        app.command(name, help=text, rich_help_panel="Training")(command)
    for command in (update, evaluate, compare):
        app.command(command.__name__, rich_help_panel="Training")(command)


def update(
    config: ConfigArgument = None,
    config_option: ConfigOption = None,
    set_: SetOption = None,
    refresh: RefreshOption = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="DATASET", help="Train on stored trajectories only: a batch, or a run's folder."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", help="With --replay: start from the policy in this folder, not the one that sampled."
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="With --replay: compare the metrics with those of another update on the batch."),
    ] = None,
) -> None:
    """Update the newest policy on its trajectories, or replay stored ones."""
    from kernels_eval.errors import InputError

    path = config_path(config, config_option)
    if replay is None:
        if checkpoint is not None or compare is not None:
            raise InputError("--checkpoint and --compare belong to --replay: name the trajectories to train on")
        _run_and_show("flows.iteration.update_flow", path, set_, refresh)
        return
    from tasks.trajectories.reader import find_batches

    find_batches(replay)
    # Resolve links now: `runs/latest` points to another run as soon as this one starts.
    arguments = {"dataset": str(replay.resolve())}
    if checkpoint is not None:
        arguments["checkpoint"] = str(checkpoint.resolve())
    other = None if compare is None else compare.resolve()
    policy = _run_and_show("flows.replay.replay_flow", path, set_, refresh, **arguments)
    console = Console(highlight=False)
    console.print(f"replayed: {policy.path}", soft_wrap=True)
    if other is not None:
        from flows.cli.tables import updates_table
        from tasks.training.metrics import compare_updates

        console.print(updates_table(compare_updates(other, policy.path)))


def evaluate(
    config: ConfigArgument = None,
    config_option: ConfigOption = None,
    set_: SetOption = None,
    refresh: RefreshOption = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Evaluate the policy in this folder, not the run's newest.")
    ] = None,
    openai_base_url: BaseUrlOption = None,
    model: ModelOption = None,
) -> None:
    """Evaluate the newest policy, the one in a folder, or a model behind a server, on the held-out problems."""
    from kernels_eval.errors import InputError
    from tasks.generation.model import ChatModel

    if (openai_base_url is None) != (model is None) or (model is not None and checkpoint is not None):
        raise InputError("expected --openai-base-url together with --model, or --checkpoint, or none of them")
    arguments: dict[str, Any] = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    if model is not None:
        arguments["model"] = ChatModel(name=model, base_url=openai_base_url or "")
    file = config_path(config, config_option, checkpoint)
    _run_and_show("flows.evaluation.evaluation_flow", file, set_, refresh, **arguments)


def compare(
    policies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=FOLDER[@VERSION]...",
            help="Two or more policies. FOLDER is a policy's folder or a run's (`runs/<run id>`; @0 is its SFT policy, "
            "without @ its newest). `NAME=@0` is a policy of the run of this configuration.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME=MODEL@URL",
            help="A model behind a server with OpenAI's chat completions (closed, vLLM, SGLang), as one of the "
            "policies; OPENAI_API_KEY is sent if it is set. Repeatable.",
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    refresh: RefreshOption = None,
) -> None:
    """Evaluate policies on the same held-out problems, and compare every pair, problem by problem."""
    from flows.cli.tables import comparison_tables
    from flows.run.state import check_choices, parse_choice, parse_model

    choices = (*map(parse_choice, policies or ()), *map(parse_model, model or ()))
    check_choices(choices)
    result = run_flow("flows.comparison.compare_flow", config or DEFAULT_CONFIG, set_, refresh, policies=choices)
    folder = Path(result.value)
    console = result.console
    for table in comparison_tables(json.loads((folder / "comparison.json").read_text(encoding="utf-8"))):
        console.print(table)
    console.print(f"done in {result.seconds:.0f} s: {folder / 'comparison.html'}", soft_wrap=True)


def _command(flow: str) -> Callable[..., None]:
    def command(
        config: ConfigArgument = None,
        config_option: ConfigOption = None,
        set_: SetOption = None,
        refresh: RefreshOption = None,
    ) -> None:
        _run_and_show(flow, config_path(config, config_option), set_, refresh)

    return command


def _command_with_rollouts(flow: str) -> Callable[..., None]:
    def command(
        config: ConfigArgument = None,
        config_option: ConfigOption = None,
        set_: SetOption = None,
        refresh: RefreshOption = None,
        turns: TurnsOption = False,
        trajectory_logs: TrajectoryLogsOption = None,
    ) -> None:
        if trajectory_logs is not None:
            check_output("--trajectory-logs", trajectory_logs, folder=True)
        overrides = [*(set_ or []), *logs_override(trajectory_logs)]
        _run_and_show(flow, config_path(config, config_option), overrides, refresh, turns=turns)

    return command


def _run_and_show(
    flow: str, path: Path, overrides: list[str] | None, refreshed: list[str] | None, **arguments: Any
) -> Any:
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
    from httpx import TransportError

    from flows.capacity.speed import describe, expectation, share_of
    from flows.checks.preflight import check_before_start, check_checkpoint
    from flows.run.state import read_state
    from flows.services.environment import set_defaults
    from flows.settings.configuration import load_configuration
    from kernels_eval.errors import InfrastructureError, first_line
    from kernels_eval.pool.scratch import remove_left_behind
    from tasks.pipeline.stage import check_refresh

    began = time.monotonic()
    set_defaults()
    config = load_configuration(path, overrides or [])
    check_before_start(config)
    remove_left_behind(Path(tempfile.gettempdir()))
    if "checkpoint" in arguments:
        check_checkpoint(Path(arguments["checkpoint"]), config)
    console = Console(highlight=False)
    runs_dir = Path(config.runs_dir)
    run_dir = runs_dir / config.run_id
    state = read_state(run_dir)
    console.print(f"[bold]kernelmill[/bold] run [bold]{config.run_id}[/bold] → {run_dir}")
    flow = pkgutil.resolve_name(name)
    again = frozenset(refreshed or [])
    check_refresh(again)
    if name == TRAINING:
        for number, line in enumerate(describe(config), start=1):
            console.print(f"  {number}. {line}", soft_wrap=True)
        if state.timings and not state.concluded:
            last = list(state.timings)[-1]
            console.print(f"  going on: {len(state.timings)} stages of this run are finished, the last one is {last}")
        done_s = sum(timing.seconds for timing in state.timings.values())
        console.print(f"  {expectation(config, done_s)}", soft_wrap=True)

    from flows.run.run import listener, refresh, startup_s
    from flows.services.prefect_server import prefect_server

    _remove_prefect_console_log()
    shares = partial(share_of, config=config) if name == TRAINING else lambda _: 0.0
    drawn = ConsoleListener(console, shares)
    listener.set(drawn)
    refresh.set(again)
    with prefect_server(runs_dir, drawn.warned) as server:
        startup_s.set(server.startup_s)
        if server.unanswered:
            console.print(f"[yellow]no Prefect server answers at {server.unanswered}; a local one was started[/yellow]")
        console.print(f"  Prefect: {server.ui_url}" + (" (until the end of this run)" if server.ours else ""))
        with telling_how_to_go_on(console, drawn), drawn.drawing(), showing_turns(console, turns):
            try:
                value = flow(config, **arguments)
            except TransportError as error:
                raise InfrastructureError(
                    f"Prefect's server at {server.api_url} does not answer: {first_line(error)}."
                ) from error
    return FlowResult(value, run_dir, time.monotonic() - began, console)


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
