"""`kernelmill data analyze | trajectory | rescore`: reads stored trajectories and changes none."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli import groups

_LATEST = Path("runs/latest")

DatasetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="[DATASET|LOG_DIR]", help="A run's folder, a batch of trajectories, or a folder of JSON logs."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    for name, command in (("analyze", analyze), ("trajectory", show), ("rescore", rescore)):
        groups.data.command(name)(command)


def analyze(
    dataset: DatasetArgument = _LATEST,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to FILE: figures as .json, or a plot as .svg, .png, .pdf."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    top: Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Number of best trajectories to list.")] = 5,
    split: Annotated[str | None, typer.Option(help="Only `train` or only `heldout`. Default: both.")] = None,
) -> None:
    """Show statistics of trajectories: turns, returns, correctness, improvement from turn to turn, speedups."""
    from rich.console import Console

    from flows.checks.output import check_output
    from flows.cli.tables import print_analysis
    from kernels_eval.errors import InputError
    from tasks.pipeline.store import write_atomically
    from tasks.trajectories.analysis import SUFFIXES, analyse, draw, load_turns

    if output is not None and output.suffix.lower() not in (".json", *SUFFIXES):
        raise InputError(f"--output: {output}: expected a name that ends in .json, {', '.join(SUFFIXES)}")
    if output is not None:
        check_output("--output", output)
    turns, faults = load_turns(dataset)
    if split is not None:
        found = sorted(turns["split"].drop_nulls().unique())
        if split not in found:
            raise InputError(
                f"--split: found {split}, expected one of those in the data set: {', '.join(found) or 'none'}"
            )
        turns = turns.filter(turns["split"] == split)
    figures = analyse(turns, top)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    for fault in faults:
        errors.print(f"left out: {fault}", markup=False)
    text = json.dumps(figures, indent=1) + "\n"
    if output is not None and output.suffix.lower() == ".json":
        write_atomically(output, text)
    elif output is not None:
        draw(turns, figures, output)
    if as_json:
        typer.echo(text, nl=False)
        return
    console = Console(highlight=False)
    print_analysis(figures, console)
    if output is not None:
        console.print(f"written: {output}", soft_wrap=True)


def show(
    trajectory_id: Annotated[str, typer.Argument(metavar="TRAJECTORY_ID")],
    dataset: Annotated[
        Path, typer.Option("--dataset", "-d", help="A run's folder, a batch of trajectories, or a folder of JSON logs.")
    ] = _LATEST,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the policy's tokenizer. Default: the run's own, if found.")
    ] = None,
) -> None:
    """Print one trajectory as a conversation: prompts, answers, verdicts."""
    from rich.console import Console

    from flows.cli.tables import conversation_parts
    from tasks.trajectories.conversation import find_conversation

    folder = tokenizer or _tokenizer_of(dataset)
    conversation = find_conversation(dataset, trajectory_id, None if folder is None else _load(folder))
    console = Console(highlight=False)
    for part in conversation_parts(conversation):
        console.print(part)
    if folder is None:
        console.print(
            "[dim]prompts are shown as token ids; name the policy's tokenizer with --tokenizer to decode them[/dim]"
        )


def rescore(
    dataset: Annotated[Path, typer.Argument(help="A batch of trajectories, or a run's folder.")],
    reward: Annotated[
        str, typer.Option("--reward", help="Registered reward, e.g. `kevin` or `kernelbench-0.2*length`.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="New data set. Default: beside the old one.")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(min=0, max=1, help="Discount of the returns. Default: unchanged.")
    ] = None,
) -> None:
    """Recompute rewards and returns with another reward, into a new data set."""
    from flows.checks.output import check_output
    from flows.cli.tables import decimal
    from tasks.trajectories.analysis import analyse, load_turns
    from tasks.trajectories.derived import rescore as rescore_batch
    from tasks.trajectories.intact import intact_batches

    resolved, name = dataset.resolve(), reward.replace(" ", "").replace("*", "x").replace(":", ".")
    target = output or resolved.with_name(f"{resolved.name}-{name}")
    check_output("--output", target, folder=True)
    folders = intact_batches(dataset)
    for folder in folders:
        single = len(folders) == 1 and folder == dataset
        rescore_batch(folder, reward, target if single else target / folder.name, gamma)
    before, after = (analyse(load_turns(path)[0], top=0)["mean_aggregated_return"] for path in (dataset, target))
    typer.echo(f"{len(folders)} batch{'es' if len(folders) > 1 else ''}, reward {reward}: {target}")
    typer.echo(f"mean aggregated return: {decimal(before)} → {decimal(after)}")


def _tokenizer_of(dataset: Path) -> Path | None:
    """Return the folder of a run's newest policy with a tokenizer; None if it has none."""
    policies = sorted((dataset / "checkpoints").glob("policy-*/tokenizer_config.json"))
    return policies[-1].parent if policies else None


def _load(folder: Path) -> Any:
    from tasks.models.tokenizer import load_tokenizer

    return load_tokenizer(folder)
