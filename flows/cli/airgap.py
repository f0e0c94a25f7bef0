"""`kernelmill airgap`: bundles for machines without internet."""

import time
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Install kernelmill on a machine without internet.")
    group.command("build")(build)
    app.add_typer(group, name="airgap", rich_help_panel="Before a run")


def build(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder of the bundle: empty, or begun.")],
    python: Annotated[str, typer.Option(metavar="X.Y", help="Python of the target machine.")] = "3.12",
    host_has: Annotated[
        str,
        typer.Option(
            metavar="PACKAGES",
            help="Packages that the target's Python has, separated by commas, with `==VERSION` where it is known. They "
            "and what only they require are left out.",
        ),
    ] = "torch,triton,transformers",
    part_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest size of a part, 10MB or more.")] = "60MB",
    glibc: Annotated[str, typer.Option(metavar="2.N", help="Oldest glibc of the target machine.")] = "2.28",
    sglang: Annotated[
        bool, typer.Option("--sglang", help="SGLang's server too, for a Hopper GPU and PyTorch 2.11 for CUDA 13.")
    ] = False,
) -> None:
    """Make a bundle: wheels in parts, an installer that needs the standard library alone, and a self-test."""
    from extras.airgap.bundle import make_bundle
    from extras.airgap.request import parse_request

    began = time.monotonic()
    request = parse_request(out, python, host_has, part_size, glibc, sglang)
    made = make_bundle(request, typer.echo)
    typer.echo(
        f"{made.folder}: {made.packages} packages, {made.size / 1e6:,.1f} MB in {made.parts} parts, for Python "
        f"{request.python} and glibc {made.glibc} or newer, {time.monotonic() - began:.0f} s"
    )
    typer.echo(f"copy it, then there: python3 {made.folder.name}/install.py --venv venv")
