"""Serves every flow from this process, for a single machine: no worker, no work pool.

    python -m flows.services.serve [CONFIG]

The flows are those of `prefect.yaml`, under the same names (`training/local`, …), with a run configuration as their
parameters. Runs that the UI, a schedule or `prefect deployment run` asks for are started here, each in a process of its own, one
at a time. Where no Prefect server answers, one is started (and its address shown); it ends with this process, and so do runs.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from flows.services.deployments import FLOWS, SOURCE, parameters_from
from flows.services.environment import set_defaults
from flows.services.prefect_server import prefect_server
from flows.settings.configuration import load_configuration


def serve(source: Path = SOURCE, tell: Callable[[str], None] = print) -> None:
    """Serve until Ctrl-C or SIGTERM; `tell` is given the lines that a person wants to read."""
    set_defaults()
    runs_dir = Path(load_configuration(source).runs_dir)
    parameters = parameters_from(source)
    with prefect_server(runs_dir) as server:
        from prefect import serve as serve_deployments
        from prefect.schedules import Cron

        deployments = [
            served.flow().to_deployment(
                name="local",
                description=served.description,
                parameters={**parameters, **served.parameters},
                schedules=[Cron(served.cron, timezone="UTC", active=False)] if served.cron else None,
                tags=["kernelmill"],
                concurrency_limit=1,
                entrypoint_type=_module_path(),
            )
            for served in FLOWS
        ]
        tell(f"Prefect: {server.ui_url}   (PREFECT_API_URL={server.api_url}; Ctrl-C ends it)")
        for served in FLOWS:
            tell(f"  prefect deployment run {served.flow().name}/local")
        serve_deployments(*deployments, pause_on_shutdown=False, limit=1)


def _module_path() -> object:
    """Have a run import its flow as a module: as a file it could not import the other packages."""
    from prefect.types.entrypoint import EntrypointType

    return EntrypointType.MODULE_PATH


if __name__ == "__main__":
    serve(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
