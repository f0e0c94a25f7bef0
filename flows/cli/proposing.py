"""`kernelmill init`: a configuration for this machine."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import DEFAULT_CONFIG

DEFAULT_FILE = Path("this-machine.yaml")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init", rich_help_panel="Before a run")(init)


def init(
    file: Annotated[Path, typer.Argument(help="YAML file to write.")] = DEFAULT_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Look at this machine and write a configuration for it, to be changed and trained."""
    from rich.console import Console

    from flows.capacity.proposal import Machine, gpu_of, propose
    from flows.checks.machine import cores_here, memory_here
    from flows.checks.output import check_output
    from flows.services.gpus import gpus_here
    from flows.settings.shipped import CONFIGS
    from kernels_eval.errors import InputError
    from tasks.pipeline.store import write_atomically

    if file.exists() and not force:
        raise InputError(f"{file}: exists; name another file, or replace it with --force")
    check_output("FILE", file)
    in_checkout = DEFAULT_CONFIG.exists()
    shipped = DEFAULT_CONFIG.parent if in_checkout else CONFIGS
    found = tuple(gpu for gpu in map(gpu_of, gpus_here()) if gpu is not None)
    machine = Machine(cores_here(), memory_here(), found)
    proposal = propose(machine, shipped)
    base = (shipped / proposal.base).resolve()
    extended = os.path.relpath(base, file.resolve().parent) if in_checkout else base.stem
    write_atomically(file, _text_of(file, machine, extended, proposal.settings))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"found {machine}")
    console.print(f"wrote {file}, which extends {proposal.base}:")
    for reason in proposal.reasons:
        console.print(f"  - {reason}")
    console.print(
        f"next: kernelmill verify {file}, then {'make train CONFIG=' if in_checkout else 'kernelmill train '}{file}"
    )


def _text_of(file: Path, machine: object, extended: str, settings: dict[str, object]) -> str:
    """Return the file's text: what it is for, what it extends, and what differs."""
    import yaml

    name = re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("-._") or "run"
    values = {"extends": extended, "name": name, **settings}
    written = datetime.now(UTC).date().isoformat()
    return f"# By `kernelmill init`, {written}, for {machine}.\n{yaml.safe_dump(values, sort_keys=False)}"
