"""`prefect.yaml`: the flows that a Prefect worker can run, with a run configuration as their parameters.

The file is made from a run configuration, so that the UI's form starts from values that are known to be valid:

    python -m flows.services.deployments > prefect.yaml

A worker runs a flow from the installed package, in the folder that `prefect deploy` was called in (`$PWD`).
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flows.services.environment import QUIET
from flows.settings.configuration import load_configuration

WORK_POOL = "kernelmill"
SOURCE = Path("deployments/configs/local.yaml")
_HEADER = """\
# Deployments of kernelmill for a Prefect worker (a process work pool). Made by `python -m flows.services.deployments > prefect.yaml`
# from deployments/configs/local.yaml; a test compares them. Start a server first, then:
#
#   export PREFECT_API_URL=http://127.0.0.1:4200/api
#   prefect work-pool create kernelmill --type process
#   prefect deploy --all
#   prefect worker start --pool kernelmill
#   kernelmill alert
#   prefect deployment run training/local
"""


@dataclass(frozen=True)
class Served:
    """A flow that can be started from the UI, on a schedule, or with `prefect deployment run <flow>/local`."""

    entrypoint: str
    description: str
    cron: str | None = None
    """A schedule, off until somebody turns it on."""
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """Beside the configuration."""

    def flow(self) -> Any:
        """Import the flow."""
        module, _, name = self.entrypoint.rpartition(".")
        return getattr(importlib.import_module(module), name)


FLOWS = (
    Served(
        "flows.training.training_flow",
        "The whole loop: SFT, RL iterations, held-out evaluation before and after, report.",
    ),
    Served("flows.iteration.training_iteration_flow", "One more iteration from the run's newest policy.", "0 3 * * *"),
    Served("flows.sft.sft_flow", "Problems, judged SFT pairs, and SFT."),
    Served("flows.evaluation.evaluation_flow", "The newest policy on the held-out problems."),
    Served(
        "flows.comparison.compare_flow",
        "Two or more policies on the same held-out problems, with paired intervals and one report.",
        parameters={"policies": [{"name": "SFT", "version": 0}, {"name": "newest"}]},
    ),
)


def parameters_from(source: Path) -> dict[str, Any]:
    """Return a run configuration as a flow's parameter, without its defaults: what the file does not name keeps following the code."""
    return {"config": load_configuration(source).model_dump(mode="json", exclude_unset=True)}


def deployment_file(source: Path = SOURCE) -> str:
    """Return the text of prefect.yaml for a run configuration."""
    parameters = parameters_from(source)
    deployments: list[dict[str, Any]] = []
    for served in FLOWS:
        deployment: dict[str, Any] = {
            "name": "local",
            "description": served.description,
            "entrypoint": served.entrypoint,
            "parameters": {**parameters, **served.parameters} if served.parameters else parameters,
            "tags": ["kernelmill"],
            "work_pool": {"name": WORK_POOL, "job_variables": {"env": QUIET}},
            # One driver a run: a second one would only be refused.
            "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
        }
        if served.cron is not None:
            deployment["schedules"] = [{"cron": served.cron, "timezone": "UTC", "active": False}]
        deployments.append(deployment)
    content = {
        "name": "kernelmill",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": deployments,
    }
    return _HEADER + yaml.safe_dump(content, sort_keys=False, width=120)


if __name__ == "__main__":
    print(deployment_file(), end="")
