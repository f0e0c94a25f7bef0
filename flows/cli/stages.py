"""`kernelmill train | iterate | sft | rollout | update | evaluate | report`: the whole loop, or one stage of it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.cli.turns import TrajectoryLogsOption, TurnsOption, logs_override, showing_turns

DEFAULT_CONFIG = Path("deployments/configs/local.yaml")

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML file with the run's settings.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="A.B=VALUE", help="Override one setting; may be repeated.")
]
RefreshOption = Annotated[
    list[str] | None,
    typer.Option(
        "--refresh",
        metavar="STAGE",
        help="Compute this stage (`update`, or one of them: `update 3`) and all that follows from it again; may be repeated.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for name, panel_help, flow in (
        ("train", "Run the whole loop: SFT, RL iterations, held-out evaluation before and after, report.", _training),
        ("iterate", "Run one more iteration from the run's newest policy.", _iteration),
        ("sft", "Problems, judged SFT pairs, and SFT.", _sft),
        ("rollout", "Collect and check the newest policy's trajectories.", _rollout),
        ("report", "Write summary.json and report.html of the run again.", _report),
    ):
        command = _command_with_rollouts if name in ("train", "iterate", "rollout") else _command
        app.command(name, help=panel_help, rich_help_panel="Training")(command(flow))
    app.command("update", rich_help_panel="Training")(update)
    app.command("evaluate", rich_help_panel="Training")(evaluate)


def update(
    config: ConfigOption = DEFAULT_CONFIG,
    set_: SetOption = None,
    refresh: RefreshOption = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="DATASET", help="Train from stored trajectories alone: a batch, or a run's folder."
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
        typer.Option(
            "--compare", help="With --replay: show another update on the same batch beside it, metric by metric."
        ),
    ] = None,
) -> None:
    """Update the newest policy on its trajectories, or replay stored ones."""
    from kernels_eval.errors import InputError

    if replay is None:
        if checkpoint is not None or compare is not None:
            raise InputError("--checkpoint and --compare belong to --replay: name the trajectories to train from")
        _run(_update, config, set_ or [], frozenset(refresh or []))
        return
    from tasks.trajectories.locate import find_batches

    find_batches(replay)
    # Resolved now: `runs/latest`, a link, will be another run's once this one has begun.
    arguments: dict[str, Any] = {"dataset": str(replay.resolve())} | (
        {} if checkpoint is None else {"checkpoint": str(checkpoint.resolve())}
    )
    other = None if compare is None else compare.resolve()
    made = _run(_replay, config, set_ or [], frozenset(refresh or []), turns=False, **arguments)
    Console(highlight=False).print(f"replayed: {made.path}", soft_wrap=True)
    if other is not None:
        from flows.cli.figures import updates_table
        from tasks.update.metric_comparison import compare_updates

        Console(highlight=False).print(updates_table(compare_updates(other, made.path)))


def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    set_: SetOption = None,
    refresh: RefreshOption = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="Folder of a policy to measure instead of the run's newest.")
    ] = None,
) -> None:
    """Measure the newest policy, or the one in a folder, on the held-out problems."""
    arguments = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    _run(_evaluation, config, set_ or [], frozenset(refresh or []), turns=False, **arguments)


def _command(flow: Callable[[], Callable[..., Any]]) -> Callable[..., None]:
    def command(config: ConfigOption = DEFAULT_CONFIG, set_: SetOption = None, refresh: RefreshOption = None) -> None:
        _run(flow, config, set_ or [], frozenset(refresh or []))

    return command


def _command_with_rollouts(flow: Callable[[], Callable[..., Any]]) -> Callable[..., None]:
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        set_: SetOption = None,
        refresh: RefreshOption = None,
        turns: TurnsOption = False,
        trajectory_logs: TrajectoryLogsOption = None,
    ) -> None:
        overrides = [*(set_ or []), *logs_override(trajectory_logs)]
        _run(flow, config, overrides, frozenset(refresh or []), turns=turns)

    return command


def _run(
    load_flow: Callable[[], Callable[..., Any]],
    path: Path,
    overrides: list[str],
    again: frozenset[str],
    *,
    turns: bool = False,
    **arguments: Any,
) -> Any:
    began = time.monotonic()

    def finished(console: Console, run_dir: Path, made: object) -> None:
        _show_result(console, run_dir, made)
        console.print(f"done in {time.monotonic() - began:.0f} s: {run_dir}")

    return run_flow(load_flow, path, overrides, again, turns=turns, finished=finished, **arguments)


def run_flow(
    load_flow: Callable[[], Callable[..., Any]],
    path: Path,
    overrides: list[str],
    again: frozenset[str],
    *,
    turns: bool = False,
    finished: Callable[[Console, Path, object], None] | None = None,
    **arguments: Any,
) -> Any:
    """Run a flow with a Prefect server and the stages drawn; return what it made. `finished` shows that."""
    from flows.checks.preflight import check_before_start, check_checkpoint
    from flows.run.forecast import describe, expectation
    from flows.run.state import read_state
    from flows.services.environment import set_defaults
    from flows.settings.configuration import load_configuration
    from tasks.pipeline.stage import check_refresh

    set_defaults()
    config = load_configuration(path, overrides)
    check_before_start(config)
    if "checkpoint" in arguments:
        check_checkpoint(Path(arguments["checkpoint"]), config)
    console = Console(highlight=False)
    runs_dir = Path(config.runs_dir)
    run_dir = runs_dir / config.run_id
    state = read_state(run_dir)
    console.print(f"[bold]kernelmill[/bold] run [bold]{config.run_id}[/bold] → {run_dir}")
    flow = load_flow()
    check_refresh(again)
    if load_flow is _training:
        for number, line in enumerate(describe(config), start=1):
            console.print(f"  {number}. {line}", soft_wrap=True)
        console.print(f"  {expectation(config, state)}", soft_wrap=True)

    from flows.cli.console import ConsoleListener
    from flows.run.run import listener, refresh, startup_s
    from flows.services.prefect_server import prefect_server

    _keep_prefect_off_the_terminal()
    drawn = ConsoleListener(console)
    listener.set(drawn)
    refresh.set(again)
    with prefect_server(runs_dir) as server:
        startup_s.set(server.startup_s)
        if server.unanswered:
            console.print(f"[yellow]no Prefect server answers at {server.unanswered}; using one of our own[/yellow]")
        console.print(f"  Prefect: {server.ui_url}" + (" (until the end of this run)" if server.ours else ""))
        with drawn.drawing(), showing_turns(console, turns):
            made = flow(config, **arguments)
    if finished is not None:
        finished(console, run_dir, made)
    return made


def _show_result(console: Console, run_dir: Path, made: object) -> None:
    """Show the figures that a person looks for first."""
    from flows.cli.figures import evaluation_table, summary_tables
    from tasks.pipeline.references import EvaluationRef

    if isinstance(made, EvaluationRef):
        console.print(evaluation_table(made.path))
    elif isinstance(made, str) and (run_dir / "summary.json").exists():
        for table in summary_tables(run_dir):
            console.print(table)
        console.print(f"report: {run_dir / 'report.html'}")


def _keep_prefect_off_the_terminal() -> None:
    """The terminal shows the stages; Prefect's log goes to its UI and to the run's log.txt."""
    import logging

    import prefect.main  # pyright: ignore[reportUnusedImport]  # its import sets up the handlers that are removed here  # noqa: F401
    from prefect.logging.handlers import PrefectConsoleHandler

    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, PrefectConsoleHandler):
            root.removeHandler(handler)


def _training() -> Callable[..., Any]:
    from flows.training import training_flow

    return training_flow


def _iteration() -> Callable[..., Any]:
    from flows.iteration import training_iteration_flow

    return training_iteration_flow


def _sft() -> Callable[..., Any]:
    from flows.sft import sft_flow

    return sft_flow


def _rollout() -> Callable[..., Any]:
    from flows.iteration import rollout_flow

    return rollout_flow


def _update() -> Callable[..., Any]:
    from flows.iteration import update_flow

    return update_flow


def _replay() -> Callable[..., Any]:
    from flows.replay import replay_flow

    return replay_flow


def _evaluation() -> Callable[..., Any]:
    from flows.evaluation import evaluation_flow

    return evaluation_flow


def _report() -> Callable[..., Any]:
    from flows.report import report_flow

    return report_flow
