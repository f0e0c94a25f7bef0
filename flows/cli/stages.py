"""`kernelmill train | iterate | sft | rollout | update | evaluate | compare | report`: the loop, or a part of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.checks.output import check_output
from flows.cli.console import TrajectoryLogsOption, TurnsOption, logs_override
from flows.cli.flow_run import PAIRS, REPORT, TRAINING, run_and_show, run_flow
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

COMMANDS = {
    "train": (TRAINING, "Run the whole loop: SFT, RL iterations, held-out evaluation before and after, report."),
    "iterate": ("flows.iteration.training_iteration_flow", "Run one more iteration from the run's newest policy."),
    "rollout": ("flows.iteration.rollout_flow", "Collect and validate trajectories of the newest policy."),
    "report": (REPORT, "Write summary.json and report.html of the run again."),
}
"""Flow and help text of the commands without options of their own."""


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for name, (flow, text) in COMMANDS.items():
        command = _command_with_rollouts(flow) if name in ("train", "iterate", "rollout") else _command(flow)
        app.command(name, help=text, rich_help_panel="Training")(command)
    for command in (sft, update, evaluate, compare):
        app.command(command.__name__, rich_help_panel="Training")(command)


def sft(
    config: ConfigArgument = None,
    config_option: ConfigOption = None,
    set_: SetOption = None,
    refresh: RefreshOption = None,
    pairs_only: Annotated[
        bool,
        typer.Option(
            "--pairs-only",
            help="Stop when the pairs are judged. Triton pairs need no GPU with `sft.data.judge.device: cpu`.",
        ),
    ] = False,
) -> None:
    """Make the problem set and the judged SFT pairs, then run SFT."""
    run_and_show(PAIRS if pairs_only else "flows.sft.sft_flow", config_path(config, config_option), set_, refresh)


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
    """Update the newest policy on its trajectories, or replay stored ones, with the settings of their run."""
    from kernels_eval.errors import InputError

    named = config is not None or config_option is not None
    path = config_path(config, config_option)
    if replay is None:
        if checkpoint is not None or compare is not None:
            raise InputError("--checkpoint and --compare belong to --replay: name the trajectories to train on")
        run_and_show("flows.iteration.update_flow", path, set_, refresh)
        return
    from tasks.trajectories.reader import find_batches

    batch = find_batches(replay)[0].resolve()
    if not named and (own := _settings_of(batch)) is not None:
        from flows.settings.configuration import load_configuration

        path = own
        if Path(load_configuration(own).runs_dir).resolve() != batch.parents[2]:  # from another folder, or moved
            set_ = [f"runs_dir={batch.parents[2]}", *(set_ or [])]
    # Resolve links now: `runs/latest` points to another run as soon as this one starts.
    arguments = {"dataset": str(replay.resolve())}
    if checkpoint is not None:
        arguments["checkpoint"] = str(checkpoint.resolve())
    other = None if compare is None else compare.resolve()
    policy = run_and_show("flows.replay.replay_flow", path, set_, refresh, **arguments)
    console = Console(highlight=False)
    console.print(f"replayed: {policy.path}", soft_wrap=True)
    if other is not None:
        from flows.cli.tables import updates_table
        from tasks.training.metrics import compare_updates

        console.print(updates_table(compare_updates(other, policy.path)))


def _settings_of(batch: Path) -> Path | None:
    """Return the configuration of the run that a batch belongs to: runs/trajectories/run_id=RUN/iteration=N."""
    run = batch.parents[2] / batch.parent.name.removeprefix("run_id=")
    found = run / "config.yaml"
    return found if found.is_file() else None


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
    problems: Annotated[
        Path | None,
        typer.Option(
            "--problems",
            help="Evaluate --checkpoint or --model on all of these problems instead: a KernelBench checkout or one of "
            "its levels, robust-kbench's tasks, a .jsonl or .parquet file, a dataset's folder.",
        ),
    ] = None,
) -> None:
    """Evaluate the newest policy, the one in a folder, or a model behind a server, on the held-out problems."""
    from kernels_eval.errors import InputError
    from tasks.evaluation.chat_model import ChatModel

    if (openai_base_url is None) != (model is None) or (model is not None and checkpoint is not None):
        raise InputError("expected --openai-base-url together with --model, or --checkpoint, or none of them")
    arguments: dict[str, Any] = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    if model is not None:
        arguments["model"] = ChatModel(name=model, base_url=openai_base_url or "")
    if problems is not None:
        if not arguments:
            raise InputError("--problems: expected --checkpoint or --model beside it, the policy to evaluate")
        set_ = [*_all_heldout(problems), *(set_ or [])]
    file = config_path(config, config_option, checkpoint)
    run_and_show("flows.evaluation.evaluation_flow", file, set_, refresh, **arguments)


def _all_heldout(path: Path) -> list[str]:
    """Return the settings by which all problems at a path are evaluated, and nothing is trained."""
    from tasks.problems.config import ProblemsConfig
    from tasks.problems.loaders import load_entries, source_of

    loaded = ProblemsConfig.model_validate({"source": source_of(path), "path": str(path), "levels": range(1, 100)})
    entries = load_entries(loaded)
    levels = sorted({entry.problem.level for entry in entries})
    problems = {"source": loaded.source, "path": str(path.resolve()), "levels": levels, "train": 0}
    settings = {f"problems.{name}": value for name, value in {**problems, "heldout": len(entries)}.items()}
    settings |= {
        "iterations": 0,
        "control": False,
        "rejection_control": False,
        "sft.repairs.problems": 0,
        "sft.joint.problems": 0,
    }
    return [f"{name}={json.dumps(value)}" for name, value in settings.items()]


def compare(
    policies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=FOLDER[@VERSION]...",
            help="Two or more policies; with --pool two or more folders. FOLDER is a policy's folder or a run's "
            "(`runs/<run id>`; @0 is its SFT policy, "
            "without @ its newest). `NAME=@0` is a policy of the run of this configuration.",
            show_default=False,
        ),
    ] = None,
    pool: Annotated[
        bool,
        typer.Option(
            "--pool",
            help="Pool finished runs or comparisons instead, e.g. of several seeds: their folders, not policies.",
        ),
    ] = False,
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
    """Evaluate policies on the same held-out problems, and compare every pair, problem by problem; or pool seeds."""
    if pool:
        _show_pooled(policies or [])
        return
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


def _show_pooled(folders: list[str]) -> None:
    from flows.cli.tables import pooled_tables
    from tasks.evaluation.pooling import pool_folders

    console = Console(highlight=False)
    for table in pooled_tables(pool_folders([Path(folder) for folder in folders])):
        console.print(table)


def _command(flow: str) -> Callable[..., None]:
    def command(
        config: ConfigArgument = None,
        config_option: ConfigOption = None,
        set_: SetOption = None,
        refresh: RefreshOption = None,
    ) -> None:
        run_and_show(flow, config_path(config, config_option), set_, refresh)

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
        run_and_show(flow, config_path(config, config_option), overrides, refresh, turns=turns)

    return command
