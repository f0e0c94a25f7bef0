"""`prefect.yaml`: the flows that a Prefect worker can run, with a run configuration as their parameters.

The file is made from a run configuration, so that the UI's form starts from values that are known to be valid:

    python -m flows.deployments > prefect.yaml

A worker runs a flow from the installed package, in the folder that `prefect deploy` was called in (`$PWD`).
"""

from pathlib import Path
from typing import Any

import yaml

from flows.configuration import load_configuration

WORK_POOL = "kernelmill"
SOURCE = Path("deployments/configs/local.yaml")
_HEADER = """\
# Deployments of kernelmill for a Prefect worker (a process work pool). Made by `python -m flows.deployments > prefect.yaml`
# from deployments/configs/local.yaml; a test compares them. Start a server first, then:
#
#   export PREFECT_API_URL=http://127.0.0.1:4200/api
#   prefect work-pool create kernelmill --type process
#   prefect deploy --all
#   prefect worker start --pool kernelmill
#   prefect deployment run training/local
"""
_FLOWS = (
    (
        "flows.training.training_flow",
        "The whole loop: SFT, RL iterations, held-out evaluation before and after, report.",
        None,
    ),
    ("flows.iteration.training_iteration_flow", "One more iteration from the run's newest policy.", "0 3 * * *"),
    ("flows.sft.sft_flow", "Problems, judged SFT pairs, and SFT.", None),
    ("flows.evaluation.evaluation_flow", "The newest policy on the held-out problems.", None),
)


def deployment_file(source: Path = SOURCE) -> str:
    """Return the text of prefect.yaml for a run configuration."""
    # Without its defaults: what the file does not name keeps following the code.
    parameters = {"config": load_configuration(source).model_dump(mode="json", exclude_unset=True)}
    deployments: list[dict[str, Any]] = []
    for entrypoint, description, cron in _FLOWS:
        deployment: dict[str, Any] = {
            "name": "local",
            "description": description,
            "entrypoint": entrypoint,
            "parameters": parameters,
            "tags": ["kernelmill"],
            "work_pool": {"name": WORK_POOL},
            # One driver a run: a second one would only be refused.
            "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
        }
        if cron is not None:
            deployment["schedules"] = [{"cron": cron, "timezone": "UTC", "active": False}]
        deployments.append(deployment)
    content = {
        "name": "kernelmill",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": deployments,
    }
    return _HEADER + yaml.safe_dump(content, sort_keys=False, width=120)


if __name__ == "__main__":
    print(deployment_file(), end="")
