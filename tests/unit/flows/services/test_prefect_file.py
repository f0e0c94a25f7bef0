"""prefect.yaml: made from the local configuration, and what it names is there."""

import importlib
from pathlib import Path

import yaml
from prefect import Flow

from flows.services.deployments import WORK_POOL, deployments_of
from flows.services.prefect_file import SOURCE, deployment_file
from flows.settings.configuration import check_configuration, load_configuration


def test_the_checked_in_file_is_the_one_that_is_made() -> None:
    made = deployment_file()
    assert Path("prefect.yaml").read_text() == made, "run: python -m flows.services.prefect_file > prefect.yaml"


def test_it_has_the_deployments_that_the_command_registers() -> None:
    config = load_configuration(SOURCE)
    registered = {deployment.flow_name: deployment for deployment in deployments_of(config, None, for_workers=True)}
    found = yaml.safe_load(deployment_file())["deployments"]
    for deployment in found:
        module, _, name = deployment["entrypoint"].rpartition(".")
        flow = getattr(importlib.import_module(module), name)
        assert isinstance(flow, Flow)
        same = registered.pop(flow.name)
        assert (deployment["name"], deployment["parameters"]) == (same.name, same.parameters)
        assert deployment["work_pool"]["name"] == same.work_pool_name == WORK_POOL
        assert deployment["work_pool"]["work_queue_name"] == same.work_queue_name
        assert check_configuration(deployment["parameters"]["config"], "here") == config
        flow.validate_parameters(deployment["parameters"])
        assert all(not schedule["active"] for schedule in deployment.get("schedules", []))
    assert not registered
