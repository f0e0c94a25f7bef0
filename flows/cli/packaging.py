"""`kernelmill policy package`: a policy of a run as a folder to deploy; and the check of such a folder."""

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as file_size

from flows.cli import groups
from flows.settings.plurals import counted

_LICENSE = r"[a-z0-9][a-z0-9.-]*"


def add_to(app: typer.Typer) -> None:
    """Add the command of this group."""
    groups.policy.command("package")(package)


def package(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN[@VERSION]", help="A run's folder; without @VERSION its newest policy."),
    ] = None,
    destination: Annotated[
        Path | None, typer.Argument(metavar="DESTINATION", help="New or empty folder to write.")
    ] = None,
    license_: Annotated[
        str | None,
        typer.Option(
            "--license",
            metavar="ID",
            help="Licence of the weights, as the Hugging Face hub names it.",
            show_default="that of the base model; apache-2.0 without one",
        ),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(
            "--base-model",
            metavar="NAME",
            help="Name of the base model on the hub, where `model.pretrained` is a folder.",
            show_default="the name in `model.pretrained`, or of its folder",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FOLDER", help="Only check each file of a package; exit code 2: damaged."),
    ] = None,
) -> None:
    """Write a policy with its configuration and a model card into a folder that `generate --policy` takes."""
    from kernels_eval.errors import InputError

    if check is not None:
        if run is not None or destination is not None or license_ is not None or base_model is not None:
            raise InputError("package: --check FOLDER goes without other arguments")
        _check(check)
        return
    if run is None or destination is None:
        raise InputError("package: expected RUN[@VERSION] and DESTINATION, or --check FOLDER")
    _write(run, destination, license_, base_model)


def _write(run: str, destination: Path, license_name: str | None, base_model: str | None) -> None:
    import re

    from extras.packaging.package import check_destination, write_package
    from flows.checks.output import check_output
    from flows.run.packaging import package_inputs
    from kernels_eval.errors import InputError

    if license_name is not None and not re.fullmatch(_LICENSE, license_name):
        raise InputError(f"--license: found {license_name!r}, expected an identifier such as apache-2.0 or llama3.1")
    check_destination(destination)
    check_output("DESTINATION", destination.resolve().parent, folder=True)
    inputs = package_inputs(run, license_name, base_model)
    found = write_package(inputs, destination)
    evaluated = "" if inputs.is_evaluated else "; it was not evaluated, as the card says"
    typer.echo(f"{destination}: policy {found.weight_version} of {found.run_id}, {_size(destination)}{evaluated}")


def _check(folder: Path) -> None:
    from extras.packaging.package import check_package
    from kernels_eval.errors import InputError

    if not folder.is_dir():
        raise InputError(f"--check: no such folder: {folder}")
    found = check_package(folder)
    typer.echo(f"{folder}: whole: policy {found.weight_version} of {found.run_id}, {_size(folder)}")


def _size(folder: Path) -> str:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return f"{counted(len(files), 'file')}, {file_size(sum(file.stat().st_size for file in files))}"
