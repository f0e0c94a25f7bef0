"""Deployments and automations of a Prefect server: the flows that it can start, and its reaction to failed runs.

Flows run under the same names (`training/local`, …), with a run configuration as their parameters, in two ways:
`kernelmill serve` runs them one at a time in child processes; a Prefect worker runs those of `prefect.yaml`, which is
generated (`python -m flows.services.deployments > prefect.yaml`), in the folder of `prefect deploy`.

Automations come from `deployments/automations`. `vanished-runs.yaml` marks a run without heartbeats as Crashed.
`failure-webhook.yaml` sends the JSON object `flow`, `run`, `state`, `message`, `url` if a run fails, crashes or is
cancelled. Its address and token are stored as a secret in a Webhook block.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from flows.services.environment import QUIET, set_defaults
from flows.services.prefect_server import prefect_server
from flows.settings.configuration import load_configuration
from kernels_eval.errors import InputError

WORK_POOL = "kernelmill"
SOURCE = Path("deployments/configs/local.yaml")
WEBHOOK_TEMPLATE = Path("deployments/automations/failure-webhook.yaml")
VANISHED_TEMPLATE = Path("deployments/automations/vanished-runs.yaml")
BLOCK_NAME = "kernelmill-failures"
_BLOCK_ID = "{{ WEBHOOK_BLOCK_ID }}"
_HEADER = """\
# Deployments of kernelmill for a Prefect worker (process work pool). Generated from deployments/configs/local.yaml by
# `python -m flows.services.deployments > prefect.yaml`; a test compares them. Start a server first, then:
#
#   export PREFECT_API_URL=http://127.0.0.1:4200/api
#   prefect work-pool create kernelmill --type process
#   prefect deploy --all
#   prefect worker start --pool kernelmill
#   kernelmill alert
#   prefect deployment run training/local
"""


@dataclass(frozen=True)
class DeployedFlow:
    """A flow that the UI, a schedule or `prefect deployment run <flow>/local` can start, described by its docstring."""

    entrypoint: str
    cron: str | None = None
    """Schedule, inactive until it is turned on in the UI."""
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """Parameters beside the configuration."""


FLOWS = (
    DeployedFlow("flows.training.training_flow"),
    DeployedFlow("flows.iteration.training_iteration_flow", cron="0 3 * * *"),
    DeployedFlow("flows.sft.sft_flow"),
    DeployedFlow("flows.evaluation.evaluation_flow"),
    DeployedFlow(
        "flows.comparison.compare_flow",
        parameters={"policies": [{"name": "SFT", "version": 0}, {"name": "newest"}]},
    ),
)


def parameters_from(source: Path) -> dict[str, Any]:
    """Return a run configuration as a flow's parameter, without defaults: unnamed settings follow the code."""
    return {"config": load_configuration(source).model_dump(mode="json", exclude_unset=True)}


def deployment_file(source: Path = SOURCE) -> str:
    """Return the text of prefect.yaml for a run configuration."""
    parameters = parameters_from(source)
    deployments: list[dict[str, Any]] = []
    for deployed in FLOWS:
        deployment: dict[str, Any] = {
            "name": "local",
            "entrypoint": deployed.entrypoint,
            "parameters": {**parameters, **deployed.parameters} if deployed.parameters else parameters,
            "tags": ["kernelmill"],
            "work_pool": {"name": WORK_POOL, "job_variables": {"env": QUIET}},
            # One driver per run: a second one would be refused.
            "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
        }
        if deployed.cron is not None:
            deployment["schedules"] = [{"cron": deployed.cron, "timezone": "UTC", "active": False}]
        deployments.append(deployment)
    content = {
        "name": "kernelmill",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": deployments,
    }
    return _HEADER + yaml.safe_dump(content, sort_keys=False, width=120)


def serve(source: Path = SOURCE, echo: Callable[[str], None] = print) -> None:
    """Serve the flows until Ctrl-C or SIGTERM, with a Prefect server if none answers; `echo` prints a line."""
    set_defaults()
    runs_dir = Path(load_configuration(source).runs_dir)
    parameters = parameters_from(source)
    with prefect_server(runs_dir) as server:
        from prefect import serve as serve_deployments
        from prefect.schedules import Cron
        from prefect.types.entrypoint import EntrypointType

        deployments = [
            resolve_name(deployed.entrypoint).to_deployment(
                name="local",
                parameters={**parameters, **deployed.parameters},
                schedules=[Cron(deployed.cron, timezone="UTC", active=False)] if deployed.cron else None,
                tags=["kernelmill"],
                concurrency_limit=1,
                # Imported as a file, a flow could not import the other packages.
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
            for deployed in FLOWS
        ]
        echo(f"Prefect: {server.ui_url}   (PREFECT_API_URL={server.api_url}; Ctrl-C ends it)")
        for deployed in FLOWS:
            echo(f"  prefect deployment run {resolve_name(deployed.entrypoint).name}/local")
        serve_deployments(*deployments, pause_on_shutdown=False, limit=1)


def load_template(path: Path, block_id: str | None = None) -> dict[str, Any]:
    """Return the automation in a file with the block's id. Raises InputError if it is none or has no place for it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if block_id is not None and _BLOCK_ID not in text:
        raise InputError(f"{path}: expected {_BLOCK_ID} as the block_document_id of an action, found none")
    loaded = yaml.safe_load(text if block_id is None else text.replace(_BLOCK_ID, block_id))
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected an automation, found {type(loaded).__name__}")
    return {str(key): value for key, value in loaded.items()}


def mark_vanished_runs(template: Path = VANISHED_TEMPLATE) -> str:
    """Have the server mark runs without a living process as Crashed; return the automation's id."""
    return _replace_automation(load_template(template))


def call_webhook_on_failure(url: str, token: str | None = None, template: Path = WEBHOOK_TEMPLATE) -> str:
    """Have the server call `url` on failures; return the automation's id. `token` is sent as a bearer token."""
    from prefect.blocks.webhook import Webhook
    from prefect.types import SecretDict
    from pydantic import SecretStr

    if not url.startswith(("http://", "https://")):
        raise InputError(f"the webhook's address: found {url!r}, expected http://… or https://…")
    headers: dict[str, Any] = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    block: Any = Webhook(method="POST", url=SecretStr(url), headers=SecretDict(headers))
    return _replace_automation(load_template(template, str(block.save(BLOCK_NAME, overwrite=True))))


def _replace_automation(content: dict[str, Any]) -> str:
    """Create an automation, in place of one with the same name."""
    from prefect.automations import Automation

    automations: Any = Automation
    with suppress(ValueError):  # none has this name
        automations.read(name=str(content["name"])).delete()
    return str(automations(**content).create().id)


if __name__ == "__main__":
    print(deployment_file(), end="")
