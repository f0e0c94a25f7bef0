"""`kernelmill import`: another trainer's settings as a configuration."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_SHOWN = 12


class TrainerName(StrEnum):
    """Trainers whose settings are read."""

    SLIME = "slime"
    TRITONFORGE = "tritonforge"
    VERL = "verl"
    TRL = "trl"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import", rich_help_panel="Before a run")(import_settings)


def import_settings(
    source: Annotated[Path, typer.Argument(metavar="FLAGS", help="Launch script (.sh) or YAML file.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="CONFIG.yaml", help="File to write; default: named as the script.")
    ] = None,
    trainer: Annotated[
        TrainerName | None, typer.Option("--from", help="Default: by the names of its settings.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a configuration from the flags of slime, TritonForge, verl or TRL, each line with what differs."""
    from rich.console import Console

    from extras.importing.configuration import imported, text_of
    from extras.importing.flags import read_settings
    from flows.checks.output import check_output
    from flows.settings.configuration import check_configuration
    from flows.settings.plurals import counted
    from kernels_eval.errors import InputError
    from tasks.pipeline.store import write_atomically

    file = file or Path(f"{source.stem}.yaml" if source.suffix not in (".yaml", ".yml") else f"{source.stem}-ours.yaml")
    if file.exists() and not force:
        raise InputError(f"{file}: exists; name another file, or replace it with --force")
    check_output("CONFIG.yaml", file, read=[source])
    settings = read_settings(source)
    try:
        found = imported(settings, None if trainer is None else trainer.value)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    name = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("-._") or "run"
    check_configuration({"name": name, **found.values}, f"{source} as a configuration")
    write_atomically(file, text_of(found, f"By `kernelmill import {source.name}`, of {found.trainer}.", name))
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"wrote {file}: {counted(len(found.lines), 'setting')} from {found.trainer}, each with what differs")
    left_out = list(found.not_understood)
    if left_out:
        more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
        console.print(f"not understood: {', '.join(left_out[:_SHOWN])}{more}")
    console.print(f"next: read its comments, then kernelmill verify {file}")
