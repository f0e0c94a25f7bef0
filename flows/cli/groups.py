"""Command groups that several modules add to: `kernelmill judge …`, `serve …`, `data …`, `policy …`."""

import typer

judge = typer.Typer(help="Judge kernels, look into them, and test the judge.", no_args_is_help=True)
serve = typer.Typer(
    help="Serve the flows, the judge, kernels on demand, or a Prefect server, until Ctrl-C.", no_args_is_help=True
)
data = typer.Typer(help="Inspect, compare, export and clean up the data of runs.", no_args_is_help=True)
policy = typer.Typer(help="Convert, team up and package policies.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the groups; their commands come from the modules."""
    app.add_typer(judge, name="judge", rich_help_panel="Judge and serve")
    app.add_typer(serve, name="serve", rich_help_panel="Judge and serve")
    app.add_typer(data, name="data", rich_help_panel="Look at runs")
    app.add_typer(policy, name="policy", rich_help_panel="Look at runs")
