"""`kernelmill serve-judge`: the judge over HTTP; `kernelmill serve`: the flows, for a Prefect server to start;
`kernelmill alert`: who is told of failures."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.judging import REQUIRE_SANDBOX_HELP


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("serve-judge", rich_help_panel="Judge")(serve_judge)
    app.command("serve", rich_help_panel="Training")(serve)
    app.command("alert", rich_help_panel="Training")(alert)


def alert(
    url: Annotated[
        str | None,
        typer.Argument(help="Address that the Prefect server calls of failures (POST, JSON); none: it calls nobody."),
    ] = None,
    token_variable: Annotated[
        str, typer.Option(help="Environment variable with the bearer token to send, if the receiver wants one.")
    ] = "KERNELMILL_WEBHOOK_TOKEN",
) -> None:
    """Have the Prefect server mark runs whose process is gone as Crashed, and call a webhook whenever a run fails, crashes or is cancelled."""
    import os

    from prefect.settings import get_current_settings

    from flows.services.alerts import notice_vanished_runs, tell_webhook
    from flows.services.prefect_server import answers
    from kernels_eval.errors import InputError

    named = get_current_settings().api.url
    if named is None or not answers(named):
        raise InputError(
            f"PREFECT_API_URL: expected the address of a Prefect server that answers, found {named or 'none'}"
        )
    if url is not None:
        tell_webhook(url, os.environ.get(token_variable))
        typer.echo(f"failures of runs are told to {_origin(url)}")
    notice_vanished_runs()
    typer.echo(f"runs whose process is gone are marked as Crashed   (automations of {named}; the UI can change them)")


def _origin(url: str) -> str:
    """Return the part of an address that holds no secret: chat programs put theirs into the path."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}"


def serve(
    config: Annotated[Path, typer.Option("--config", "-c", help="Run configuration that runs start from.")] = Path(
        "deployments/configs/local.yaml"
    ),
) -> None:
    """Serve every flow (training, training-iteration, sft, evaluation, compare) for the UI, schedules and `prefect deployment run`."""
    from flows.services.serve import serve as serve_flows

    serve_flows(config, typer.echo)


def serve_judge(
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 18188,
    workers: Annotated[int | None, typer.Option(min=1, help="Kernels judged at the same time.")] = None,
    queue: Annotated[int, typer.Option(min=1, help="Kernels under way or waiting; more are refused with 429.")] = 1024,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token that clients must send; else KERNELMILL_JUDGE_TOKEN, if set."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Run configuration; its `judge` is used.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", "-s", metavar="A.B=VALUE")] = None,
    require_sandbox: Annotated[bool, typer.Option("--require-sandbox", help=REQUIRE_SANDBOX_HELP)] = False,
) -> None:
    """Serve the judge over HTTP until Ctrl-C or SIGTERM: POST /eval, POST /eval/batch, GET /health; the rest at /docs."""
    from flows.cli.judging import judge_settings
    from kernels_eval.server.config import ServerConfig
    from kernels_eval.server.serving import read_token, serve

    settings = judge_settings(config, set_)
    changes: dict[str, object] = {"workers": workers} if workers is not None else {}
    if require_sandbox:
        changes["require_sandbox"] = True
    settings = settings.model_copy(update=changes)
    token = read_token(token_file)
    asked = "with a token" if token else "without a token"

    def tell(address: str) -> None:
        typer.echo(f"judge: {address}   {settings.workers} workers, {asked}   (docs: {address}/docs; Ctrl-C ends it)")

    serve(settings, ServerConfig(host=host, port=port, queue_limit=queue), token, tell)
