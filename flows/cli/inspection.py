"""`kernelmill server`: looks at runs that are over."""

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("server", rich_help_panel="Inspection")(server)


def server(
    runs_dir: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port of the server; 0: a free one.")] = 4200,
) -> None:
    """Start a Prefect server on the runs' database and keep it until Ctrl-C: every past run with its stages and artifacts."""
    from flows.services.environment import set_defaults
    from flows.services.prefect_server import start_server
    from kernels_eval.errors import InputError

    set_defaults()
    if not (runs_dir / "prefect").is_dir():
        raise InputError(f"--runs-dir: {runs_dir}: expected a folder of runs with prefect/ in it, found none")
    process, api_url = start_server(runs_dir.resolve() / "prefect", port=port)
    typer.echo(f"Prefect: {api_url.removesuffix('/api')}   (PREFECT_API_URL={api_url}; Ctrl-C ends it)")
    try:
        process.wait()
    finally:
        process.terminate()
        process.wait()
