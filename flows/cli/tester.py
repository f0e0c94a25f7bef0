"""`kernelmill tester`: a small model that guesses verdicts, trained on those of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from extras.tester.training import FactsOfTester


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tester", rich_help_panel="Kernels on demand")(fit_tester)


def fit_tester(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")] = Path("runs/latest"),
    out: Annotated[Path, typer.Option("--out", help="Folder for the tester.")] = Path("tester"),
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Decides its weights and the order of examples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print its figures as JSON.")] = False,
) -> None:
    """Train a small model that guesses verdicts on the run's own, and measure it on its held-out problems."""
    import json

    from rich.console import Console

    from extras.tester.examples import read_examples
    from extras.tester.training import save_tester, train_tester
    from flows.checks.output import check_output
    from flows.run.state import read_state
    from kernels_eval.errors import InputError

    if out.exists():
        raise InputError(f"--out: {out}: exists; name another folder")
    check_output("--out", out, folder=True)
    state = read_state(run)
    if state.problems is None or not state.batches:
        raise InputError(f"{run}: expected the folder of a run that has trained, found no trajectories in it")
    training = [batch.path for _, batch in sorted(state.batches.items())]
    training += [batch.path for batch in (state.repair_batch, state.joint_batch) if batch is not None]
    examples = read_examples(state.problems, training)
    heldout = read_examples(state.problems, [found.path for _, found in sorted(state.evaluations.items())])
    trained = train_tester(examples, heldout, seed)
    save_tester(trained, out)
    if as_json:
        typer.echo(json.dumps(trained.facts.figures, indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"trained on {trained.facts.trained_on:,} kernels of training problems: {out}")
    for line in _lines(trained.facts):
        console.print(line)


def _lines(facts: "FactsOfTester") -> list[Any]:
    """Return what is printed of the figures on held-out problems."""
    from rich.table import Table

    found = facts.figures
    if not found:
        return ["no held-out evaluation of other problems: not measured"]
    columns = ("kernels", "share", "accuracy", "auroc", "brier", "calibration_error")
    table = Table("held-out kernels that are", *(name.replace("_", " ") for name in columns), box=None)
    for label, figures in found["labels"].items():
        shown = [f"{figures[name]:,}" if name == "kernels" else f"{figures[name]:.3f}" for name in columns]
        table.add_row(label.replace("_", " "), *shown)
    lines: list[Any] = [table]
    for draws, choice in found["choice"].items():
        if choice["groups"]:
            lines.append(
                f"correct, of the most promising of {draws} different kernels: {choice['tester']:.3f} "
                f"(at random {choice['random']:.3f}, at best {choice['best']:.3f}; {choice['groups']:,} times)"
            )
    return lines
