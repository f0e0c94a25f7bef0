"""Deployments: the flows that a Prefect server can start on request or on a schedule, with a configuration each.

A deployment is called `<flow>/<name of the configuration>` (`training/local`). Its parameters are the configuration and
`overrides`, a list of `a.b=value` like `--set`, empty by default: a run with other settings names only these.
`kernelmill deploy` registers deployments for Prefect workers; `kernelmill serve flows` runs them one at a time in child
processes. The deployments of a configuration share a work queue that admits one run at a time: they write to the same
run folder. A run that finds its folder in use all the same, by a command, waits (`flows.run.run`).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from httpx import HTTPError

from flows.services.environment import QUIET, set_defaults
from flows.services.prefect_server import answers, prefect_server
from flows.services.server_access import signed_in
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InfrastructureError, InputError

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment
    from prefect.schedules import Schedule

WORK_POOL = "kernelmill"
SERVER_WAIT_S = 180.0
"""A server that was started just now needs 8 to 15 s on a quiet machine, minutes on a loaded one."""


@dataclass(frozen=True)
class DeployedFlow:
    """A flow that the UI, a schedule or `prefect deployment run` can start, described there by its docstring."""

    entrypoint: str
    scheduled: bool = False
    """True for the one that a schedule starts."""
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """Parameters beside the configuration."""

    @property
    def flow_name(self) -> str:
        """The flow's name on the server."""
        return str(resolve_name(self.entrypoint).name)

    def parameters_with(self, config: RunConfig) -> dict[str, Any]:
        """Return the parameters of its deployment with a configuration. Unset settings are left out."""
        settings = config.model_dump(mode="json", exclude_unset=True) | {"name": config.name}
        return {"config": settings, "overrides": [], **self.parameters}


FLOWS = (
    DeployedFlow("flows.training.training_flow"),
    DeployedFlow("flows.iteration.training_iteration_flow", scheduled=True),
    DeployedFlow("flows.sft.sft_flow"),
    DeployedFlow("flows.evaluation.evaluation_flow"),
    DeployedFlow(
        "flows.comparison.compare_flow",
        parameters={"policies": [{"name": "SFT", "version": 0}, {"name": "newest"}]},
    ),
)


def schedule_of(cron: str, timezone: str = "UTC") -> "Schedule":
    """Return Prefect's schedule for a cron expression. Raises InputError if it or the time zone is invalid."""
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.schedules import Cron

    try:
        CronSchedule(cron=cron, timezone=timezone)
        return Cron(cron, timezone=timezone)
    except ValueError as error:
        raise InputError(
            f"--cron, --timezone: found {cron!r} in {timezone!r}, expected five fields and a time zone, "
            "e.g. '0 3 * * *' in 'Europe/Berlin'"
        ) from error


def deployments_of(config: RunConfig, schedule: "Schedule | None", *, for_workers: bool) -> list["RunnerDeployment"]:
    """Return the deployment of every flow with a configuration. Unset settings are left out: they follow the code.

    schedule: of `training-iteration`; None: a deployment that exists keeps the ones that it has.
    for_workers: runs are started by the workers of the pool `kernelmill`, in the current folder.
    """
    from prefect.types.entrypoint import EntrypointType

    # Not the deployments' own concurrency limits: those are leases, and a run that is suspended, or whose server starts
    # anew, would lose its lease and be ended in the middle of a stage.
    where: dict[str, Any] = {
        "work_pool_name": WORK_POOL,
        "work_queue_name": config.name,
        "job_variables": {"env": QUIET, "working_dir": str(Path.cwd())},
    }
    return [
        resolve_name(deployed.entrypoint).to_deployment(
            name=config.name,
            parameters=deployed.parameters_with(config),
            schedules=[schedule] if deployed.scheduled and schedule is not None else None,
            tags=["kernelmill"],
            # Imported as a file, a flow could not import the other packages.
            entrypoint_type=EntrypointType.MODULE_PATH,
            **(where if for_workers else {}),
        )
        for deployed in FLOWS
    ]


def deploy(
    configs: Sequence[RunConfig], schedule: "Schedule | None" = None, echo: Callable[[str], None] = print
) -> list[str]:
    """Register the flows with each configuration for Prefect workers; return the deployments' names.

    Creates the work pool if there is none. Raises InputError if two configurations have the same name or no server's
    address is set, InfrastructureError if the server does not answer within SERVER_WAIT_S.
    """
    names = [config.name for config in configs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two configurations have the name {twice[0]!r}, and deployments are named after them")
    made = [deployment for config in configs for deployment in deployments_of(config, schedule, for_workers=True)]
    api_url = _wait_for_server(echo)
    with signed_in(api_url, Path(configs[0].runs_dir)):
        _register(made, names, api_url, echo)
    return [deployment.full_name for deployment in made]


def _register(
    made: Sequence["RunnerDeployment"], names: Sequence[str], api_url: str, echo: Callable[[str], None]
) -> None:
    """Register deployments on the server. Raises InfrastructureError if it fails."""
    from prefect.deployments.runner import DeploymentApplyError

    try:
        _create_queues(names)
        for deployment in made:
            _keep_schedules(deployment)
            deployment.apply()
            echo(f"  prefect deployment run {deployment.full_name}")
    except (HTTPError, DeploymentApplyError) as error:
        raise InfrastructureError(f"the Prefect server at {api_url} failed: {error}") from error


def _wait_for_server(echo: Callable[[str], None]) -> str:
    """Return the configured server's address once it answers: it may have been started just before."""
    from prefect.settings import get_current_settings

    api_url = get_current_settings().api.url
    if api_url is None:
        raise InputError("PREFECT_API_URL: expected the address of a Prefect server, found none")
    deadline, told = time.monotonic() + SERVER_WAIT_S, False
    while not answers(api_url):
        if time.monotonic() > deadline:
            raise InfrastructureError(
                f"no Prefect server answers at {api_url} (PREFECT_API_URL) after {SERVER_WAIT_S:.0f} s; "
                "`prefect server start` starts one."
            )
        if not told:
            echo(f"waiting for the Prefect server at {api_url}")
            told = True
        time.sleep(0.5)
    return api_url


def _create_queues(names: Sequence[str]) -> None:
    """Create the work pool and a queue of each name that admits one run at a time, unless they exist."""
    from prefect import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process", base_job_template=template))
        for name in names:
            with suppress(ObjectAlreadyExists):
                client.create_work_queue(name, concurrency_limit=1, work_pool_name=WORK_POOL)


def _keep_schedules(deployment: "RunnerDeployment") -> None:
    """Give a deployment without a schedule those that it has on the server, as they were changed in the UI."""
    from prefect import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.exceptions import ObjectNotFound

    if deployment.schedules:
        return
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        known = client.read_deployment_by_name(deployment.full_name)
        deployment.schedules = [
            DeploymentScheduleCreate(
                schedule=entry.schedule, active=entry.active, parameters=entry.parameters, slug=entry.slug
            )
            for entry in known.schedules
        ]


def serve(config: RunConfig, schedule: "Schedule | None" = None, echo: Callable[[str], None] = print) -> None:
    """Serve the flows until Ctrl-C or SIGTERM, with a Prefect server if none answers; `echo` prints a line."""
    set_defaults()
    with prefect_server(Path(config.runs_dir), echo, start_s=config.prefect.start_timeout_s) as server:
        from prefect import serve as serve_deployments

        deployments = deployments_of(config, schedule, for_workers=False)
        echo(f"Prefect: {server.ui_url}   (PREFECT_API_URL={server.api_url}; Ctrl-C ends it)")
        if server.sign_in:
            echo(f"  it asks for an auth string; in another terminal: {server.sign_in}")
        for deployment in deployments:
            echo(f"  prefect deployment run {deployment.full_name}")
        serve_deployments(*deployments, pause_on_shutdown=False, limit=1)
