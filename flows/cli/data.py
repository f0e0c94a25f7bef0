"""`kernelmill data ls | show | diff | export | compact | gc | quarantine | generate`: what is stored, and pairs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as file_size

from flows.cli import groups
from flows.settings.plurals import counted

_RUNS = Path("runs")


class Format(StrEnum):
    """Export formats of trajectories."""

    JSONL = "jsonl"
    HUGGINGFACE = "huggingface"
    KERNELBENCH = "kernelbench"


def add_to(app: typer.Typer) -> None:
    """Add the commands to their group."""
    groups.data.command("ls")(ls)
    groups.data.command("show")(show)
    groups.data.command("diff")(diff)
    groups.data.command("export")(export)
    groups.data.command("compact")(compact)
    groups.data.command("gc")(gc)
    groups.data.command("quarantine")(quarantine)
    groups.data.command("generate")(generate)


def ls(path: Annotated[Path, typer.Argument(help="A folder of runs, a run's folder, or a batch.")] = _RUNS) -> None:
    """List trajectory data sets: run, iterations, size, share of correct ends, mean return."""
    from rich.console import Console

    from flows.cli.tables import data_sets_table
    from tasks.trajectories.data_sets import list_data_sets

    found = list_data_sets(path)
    console = Console(highlight=False)
    if not console.is_terminal:  # nothing is folded for a program
        console.width = max(120, console.width)
    console.print(data_sets_table(found))
    typer.echo(f"{counted(len(found), 'data set')}, {counted(sum(entry.turns for entry in found), 'turn')}")


def show(
    path: Annotated[Path, typer.Argument(help="A batch, or a run's folder.")],
    rows: Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Turns to show per data set.")] = 5,
) -> None:
    """Show the manifest, the columns and the first turns of data sets."""
    import json

    import polars as pl

    from tasks.pipeline.store import read_metadata
    from tasks.trajectories.data_sets import list_data_sets
    from tasks.trajectories.reader import read_turns_file
    from tasks.trajectories.schema import TURNS_FILE

    for number, entry in enumerate(list_data_sets(path)):
        turns = read_turns_file(entry.folder / TURNS_FILE)
        typer.echo(
            f"{entry.folder}: {entry.turns:,} turns of {entry.trajectories:,} trajectories, {file_size(entry.bytes)}"
        )
        typer.echo(json.dumps(read_metadata(entry.folder), indent=1))
        if number == 0:
            typer.echo("\n".join(f"  {name}: {kind}" for name, kind in turns.schema.items()))
        shown = turns.head(rows).select(
            "trajectory_id", "turn_index", pl.col("verdict").struct.field("status"), "reward", "return", "termination"
        )
        with pl.Config(tbl_hide_dataframe_shape=True, tbl_rows=rows, tbl_hide_column_data_types=True):
            typer.echo(str(shown))


def diff(
    first: Annotated[Path, typer.Argument(help="A batch, or a run's folder.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Compare two data sets turn by turn. Exit code 1: they differ."""
    from tasks.trajectories.data_sets import compare_data_sets

    found = compare_data_sets(first, second)
    typer.echo(
        f"{found.shared:,} turns in both, {found.only_first:,} only in {first}, {found.only_second:,} only in {second}"
    )
    for name, count in sorted(found.columns.items(), key=lambda item: -item[1]):
        typer.echo(f"  {name}: {count:,} differ")
    if found.example is not None:
        typer.echo(f"  e.g. {found.example}")
    if not found.is_none:
        raise typer.Exit(1)
    typer.echo("no difference")


def export(
    path: Annotated[Path, typer.Argument(help="A batch, or a run's folder.")],
    destination: Annotated[Path, typer.Argument(help="File (jsonl) or folder (huggingface, kernelbench) to write.")],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="jsonl: one turn per line; huggingface: for `datasets`; kernelbench: held-out results as "
            "eval_results.json.",
        ),
    ] = Format.JSONL,
) -> None:
    """Export trajectories for other programs."""
    from flows.checks.output import check_output
    from tasks.trajectories.derived import export_huggingface, export_json_lines
    from tasks.trajectories.intact import intact_batches
    from tasks.trajectories.reader import load_trajectories

    check_output("DESTINATION", destination, folder=form is not Format.JSONL)
    if form is Format.KERNELBENCH:
        from tasks.evaluation.kernelbench_results import export_kernelbench

        trajectories = [one for batch in intact_batches(path) for one in load_trajectories(batch)]
        typer.echo(f"{export_kernelbench(trajectories, destination):,} samples: {destination}")
        return
    write = export_json_lines if form is Format.JSONL else export_huggingface
    typer.echo(f"{write(intact_batches(path), destination):,} turns: {destination}")


def compact(
    path: Annotated[Path, typer.Argument(help="A run's folder, or a folder of partitions.")],
    destination: Annotated[Path, typer.Argument(help="Folder of the new data set.")],
) -> None:
    """Merge all partitions into one new data set; the partitions stay."""
    from flows.checks.output import check_output
    from tasks.trajectories.derived import compact as compact_batches
    from tasks.trajectories.intact import intact_batches

    check_output("DESTINATION", destination, folder=True)
    folders = intact_batches(path)
    typer.echo(f"{compact_batches(folders, destination):,} turns of {counted(len(folders), 'data set')}: {destination}")


def gc(
    runs_dir: Annotated[Path, typer.Argument(help="The folder of runs.")] = _RUNS,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the listed artifacts. Default: only list them.")
    ] = False,
    older_than_days: Annotated[float, typer.Option(min=0, max=1_000_000, help="Keep anything younger.")] = 1.0,
) -> None:
    """List or remove artifacts that no run needs: of removed runs and killed stages, and old resume points."""
    from flows.run.state import kept_artifacts
    from kernels_eval.errors import InputError
    from tasks.pipeline.store import find_garbage, remove

    if not (runs_dir / "store").is_dir():
        raise InputError(f"{runs_dir}: expected a folder of runs with store/ in it, found none")
    found = find_garbage(runs_dir, kept_artifacts(runs_dir), older_than_days * 86_400)
    for item in found:
        typer.echo(f"{file_size(item.bytes):>10}  {item.path.relative_to(runs_dir)}: {item.reason}")
    total = sum(item.bytes for item in found)
    if delete:
        freed, kept = remove(found)
        typer.echo(f"removed {file_size(freed)}")
        if kept:
            raise InputError(
                f"{kept[0]}: cannot be removed"
                + (f", nor {len(kept) - 1} more" if len(kept) > 1 else "")
                + "; expected a disk and a folder that can be written"
            )
    else:
        typer.echo(f"{len(found)} can go, {file_size(total)}" + ("; --delete removes them" if found else ""))


def quarantine(
    path: Annotated[Path, typer.Argument(help="A folder of runs, or one quarantine.")] = _RUNS,
    run: Annotated[str | None, typer.Option(help="Only runs whose id starts with this.")] = None,
    rows: Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Rows to list of each, with their reasons.")] = 5,
) -> None:
    """Show the rows that validation removed, and the reasons."""
    from tasks.trajectories.data_sets import find_quarantines

    found = [
        entry
        for entry in find_quarantines(path)
        if run is None or entry.folder.parent.name.removeprefix("run_id=").startswith(run)
    ]
    for entry in found:
        typer.echo(f"{entry.folder}: {entry.rows.height:,} taken out of {entry.origin}")
        for reason, count in entry.reasons.iter_rows():
            typer.echo(f"  {count:,} × {reason}")
        for row_id, reason in entry.rows.head(rows).iter_rows():
            typer.echo(f"    {row_id}: {' / '.join(reason.splitlines())}")
    if not found:
        typer.echo("nothing was taken out")


def generate(
    destination: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="File to write.")],
    pairs: Annotated[
        int, typer.Option(min=0, max=100_000_000, help="Number of pairs; about three in ten answer an earlier kernel.")
    ] = 10_000,
    optimizations: Annotated[
        int, typer.Option(min=0, max=100_000_000, help="Number of further pairs, which speed up a slow kernel.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="The same seed gives the same pairs.")] = 0,
    unseen: Annotated[str, typer.Option(help="Operators that no pair has, separated by commas.")] = "",
    long_chains: Annotated[
        float, typer.Option(min=0, max=1, help="Share of long chains, as `problems.long_chains`.")
    ] = 0.0,
) -> None:
    """Write problems in KernelBench's style with Triton kernels, as `sft.data.path` reads them. None is judged yet."""
    from flows.checks.output import check_output
    from kernels_eval.errors import InputError
    from tasks.problems.modules.pair_file import write_pairs

    if not pairs + optimizations:
        raise InputError("--pairs: expected some pairs or --optimizations, found 0 of both")
    check_output("OUT.jsonl", destination)
    names = frozenset(name.strip() for name in unseen.split(",") if name.strip())
    families = write_pairs(destination, pairs, seed, names, long_chains, optimizations)
    for name, count in sorted(families.items()):
        typer.echo(f"{count:>8,}  {name}")
    typer.echo(f"{counted(families.total(), 'pair')}: {destination}")
