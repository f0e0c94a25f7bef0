"""`kernelmill deploy | alert`, `serve flows | prefect`: flows for a Prefect server, its alerts, the server itself."""

import os
import signal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from flows.cli import groups
from flows.cli.options import ConfigArgument, ConfigOption, SetOption, config_path

CronOption = Annotated[
    str | None,
    typer.Option("--cron", help="Start training-iteration at these times, e.g. '0 3 * * *'. Default: as it was."),
]
TimezoneOption = Annotated[str, typer.Option("--timezone", help="Time zone of --cron, e.g. Europe/Berlin.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("deploy", rich_help_panel="Training")(deploy)
    app.command("alert", rich_help_panel="Training")(alert)
    groups.serve.command("flows")(serve)
    groups.serve.command("prefect")(server)


def serve(
    config: ConfigArgument = None,
    config_option: ConfigOption = None,
    set_: SetOption = None,
    cron: CronOption = None,
    timezone: TimezoneOption = "UTC",
) -> None:
    """Serve the flows (training, training-iteration, sft, evaluation, compare) for the Prefect UI and schedules."""
    from flows.services.deployments import schedule_of
    from flows.services.deployments import serve as serve_flows
    from flows.settings.configuration import load_configuration

    signal.signal(signal.SIGINT, signal.default_int_handler)  # it has to end the runs that it started
    schedule = None if cron is None else schedule_of(cron, timezone)
    serve_flows(load_configuration(config_path(config, config_option), set_ or []), schedule, typer.echo)


def deploy(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG...", help="Run configurations; deployments have their names.")
    ],
    set_: SetOption = None,
    cron: CronOption = None,
    timezone: TimezoneOption = "UTC",
) -> None:
    """Register the flows with each configuration on the Prefect server (PREFECT_API_URL), for its workers to run."""
    from flows.services.deployments import WORK_POOL, schedule_of
    from flows.services.deployments import deploy as deploy_flows
    from flows.services.environment import set_defaults
    from flows.settings.configuration import load_configuration

    set_defaults()
    loaded = [load_configuration(config, set_ or []) for config in configs]
    deploy_flows(loaded, None if cron is None else schedule_of(cron, timezone), typer.echo)
    typer.echo(f"runs are started by: prefect worker start --pool {WORK_POOL}")


def alert(
    url: Annotated[
        str | None,
        typer.Argument(help="Address that the Prefect server calls on failures (POST, JSON). None: no webhook."),
    ] = None,
    token_variable: Annotated[
        str, typer.Option(help="Environment variable with the bearer token to send, if the receiver wants one.")
    ] = "KERNELMILL_WEBHOOK_TOKEN",
) -> None:
    """Have the Prefect server mark dead runs as Crashed, and call a webhook if a run fails, crashes or is cancelled."""
    from flows.services.alerts import call_webhook_on_failure, mark_vanished_runs
    from flows.services.environment import set_defaults
    from flows.services.prefect_server import answers
    from flows.services.server_access import signed_in
    from kernels_eval.errors import InputError

    set_defaults()
    from prefect.settings import get_current_settings

    api_url = get_current_settings().api.url
    if api_url is None or not answers(api_url):
        raise InputError(
            f"PREFECT_API_URL: expected the address of a Prefect server that answers, found {api_url or 'none'}"
        )
    with signed_in(api_url, Path("runs")):
        if url is not None:
            call_webhook_on_failure(url, os.environ.get(token_variable))
            parts = urlsplit(url)  # the path of a chat program's webhook is a secret
            typer.echo(f"failures of runs are sent to {parts.scheme}://{parts.hostname or ''}")
        mark_vanished_runs()
    typer.echo(f"runs without a living process are marked as Crashed   (automations of {api_url}; edit them in the UI)")


def server(
    runs_dir: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port of the server. 0: a free one.")] = 4200,
) -> None:
    """Start a Prefect server on the database of past runs, and keep it until Ctrl-C."""
    from flows.checks.output import check_output
    from flows.services.environment import set_defaults
    from flows.services.prefect_server import check_port, start_server
    from flows.services.server_access import how_to_sign_in
    from kernels_eval.errors import InputError

    set_defaults()
    if not (runs_dir / "prefect").is_dir():
        raise InputError(f"--runs-dir: {runs_dir}: expected a folder of runs with prefect/ in it, found none")
    check_port(port)
    check_output("--runs-dir", runs_dir / "prefect", folder=True)
    home = runs_dir.resolve() / "prefect"
    process, api_url = start_server(home, port=port)
    typer.echo(f"Prefect: {api_url.removesuffix('/api')}   (PREFECT_API_URL={api_url}; Ctrl-C ends it)")
    sign_in = how_to_sign_in(home)
    if sign_in:
        typer.echo(f"  it asks for an auth string; in another terminal: {sign_in}")
    try:
        process.wait()
    finally:
        process.terminate()
        process.wait()
