"""`kernelmill view`: runs, their curves and their answers in a browser; reads folders and changes nothing."""

import os
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the command of this group."""
    app.command("view", rich_help_panel="Look at runs")(view)


def view(
    runs: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="A folder of runs, a run, or a data set of trajectories.")
    ] = Path("runs"),
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE.html", help="Write one page that stands alone, and end.")
    ] = None,
    answers: Annotated[
        int,
        typer.Option(min=1, max=5000, help="Answers of each run in that page: the best and the worst of each problem."),
    ] = 100,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. 0: a free one.")] = 0,
    prefect: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Prefect's UI, for links to flow runs.", show_default="that of PREFECT_API_URL"
        ),
    ] = None,
) -> None:
    """Show runs in a browser: curves, problems by policies, answers turn by turn, two policies side by side."""
    from kernels_eval.errors import InputError

    address = prefect or os.environ.get("PREFECT_API_URL", "").removesuffix("/").removesuffix("/api") or None
    if address is not None and not address.startswith(("http://", "https://")):
        raise InputError(f"--prefect: found {address}, expected an address that begins with http:// or https://")
    from extras.viewer.runs import unreadable_runs

    for folder in unreadable_runs(runs):
        typer.echo(f"left out: {folder}: expected a run's config.yaml in it, found none", err=True)
    if export is not None:
        from extras.viewer.export import write_page
        from flows.checks.output import check_output

        if export.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"--export: {export}: expected a name that ends in .html")
        check_output("--export", export)
        shown = write_page(runs, export, answers, address)
        typer.echo(f"written: {export} ({shown} answers)")
        return
    from extras.viewer.server import serve

    serve(runs, port, address, lambda url: typer.echo(f"{runs} on {url}   (only with this address; Ctrl-C ends it)"))
