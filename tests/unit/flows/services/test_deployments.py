"""prefect.yaml: made from the local configuration, and what it names is there."""

import importlib
from pathlib import Path

import yaml
from prefect import Flow

from flows.services.deployments import SOURCE, WORK_POOL, deployment_file
from flows.settings.configuration import check_configuration, load_configuration


def test_the_checked_in_file_is_the_one_that_is_made():
    expected = deployment_file()
    assert Path("prefect.yaml").read_text() == expected, "run: python -m flows.services.deployments > prefect.yaml"


def test_every_deployment_names_a_flow_and_a_valid_configuration():
    content = yaml.safe_load(deployment_file())
    names = set()
    for deployment in content["deployments"]:
        module, _, name = deployment["entrypoint"].rpartition(".")
        flow = getattr(importlib.import_module(module), name)
        assert isinstance(flow, Flow)
        names.add(flow.name)
        assert deployment["work_pool"]["name"] == WORK_POOL
        assert check_configuration(deployment["parameters"]["config"], "here") == load_configuration(SOURCE)
        flow.validate_parameters(deployment["parameters"])
        assert all(not schedule["active"] for schedule in deployment.get("schedules", []))
        # The UI's form shows every setting with its description.
        schema = flow.parameters.model_dump()
        assert "RL iterations." in str(schema["definitions"]["RunConfig"])
        if flow.name == "compare":
            assert "What the policy is called" in str(schema["definitions"]["PolicyChoice"])
    assert names == {"training", "training-iteration", "sft", "evaluation", "compare"}
