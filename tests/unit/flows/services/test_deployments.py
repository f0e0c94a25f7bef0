"""Deployments: every shipped configuration becomes parameters that the flows and the server accept."""

import importlib
from pathlib import Path

import pytest
from prefect import Flow
from prefect.utilities.schema_tools import validate

from flows.cli.main import run
from flows.services import deployments
from flows.services.deployments import FLOWS, WORK_POOL, deploy, deployments_of, schedule_of
from flows.settings.configuration import check_configuration, load_configuration, overridden
from kernels_eval.errors import InfrastructureError, InputError

CONFIGS = sorted(Path("deployments/configs").glob("*.yaml"))


def flow_of(entrypoint: str) -> Flow[..., object]:
    module, _, name = entrypoint.rpartition(".")
    flow = getattr(importlib.import_module(module), name)
    assert isinstance(flow, Flow)
    return flow


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_can_be_deployed(path: Path):
    config = load_configuration(path)
    made = deployments_of(config, None, for_workers=True)
    assert {entry.full_name for entry in made} == {f"{deployed.flow_name}/{path.stem}" for deployed in FLOWS}
    for deployed, entry in zip(FLOWS, made, strict=True):
        assert (entry.entrypoint, entry.work_pool_name, entry.work_queue_name) == (
            deployed.entrypoint, WORK_POOL, path.stem
        )  # fmt: skip
        flow_of(deployed.entrypoint).validate_parameters(entry.parameters)
        assert check_configuration(entry.parameters["config"], "here") == config
    # As the server does. Every flow has the same schema of a configuration, as the next test sees.
    validate(made[0].parameters, flow_of(FLOWS[0].entrypoint).parameters.model_dump(), raise_on_error=True)


def test_the_server_takes_a_configuration_and_overrides_for_every_flow():
    made = deployments_of(load_configuration("deployments/configs/local.yaml"), None, for_workers=True)
    schemas = [flow_of(deployed.entrypoint).parameters.model_dump() for deployed in FLOWS]
    for entry, schema in zip(made, schemas, strict=True):
        validate(entry.parameters, schema, raise_on_error=True)
        validate(entry.parameters | {"overrides": ["seed=1"]}, schema, raise_on_error=True)
        assert schema["definitions"]["RunConfig"] == schemas[0]["definitions"]["RunConfig"]
        # The UI's form shows every setting with its description.
        assert "RL iterations." in str(schema["definitions"]["RunConfig"])
    assert {deployed.flow_name for deployed in FLOWS} == {
        "training", "training-iteration", "sft", "evaluation", "compare"
    }  # fmt: skip


def test_a_schedule_starts_the_iteration_alone():
    made = deployments_of(load_configuration(CONFIGS[0]), schedule_of("0 3 * * *", "Europe/Berlin"), for_workers=False)
    scheduled = {entry.flow_name: entry.schedules for entry in made if entry.schedules}
    assert list(scheduled) == ["training-iteration"]
    (entry,) = scheduled["training-iteration"]
    assert (entry.active, str(entry.schedule.cron), entry.schedule.timezone) == (True, "0 3 * * *", "Europe/Berlin")


@pytest.mark.parametrize(
    ("cron", "timezone"), [("every day", "UTC"), ("61 * * * *", "UTC"), ("0 3 * * *", "Mars/Base")]
)
def test_a_wrong_schedule_is_named(cron: str, timezone: str):
    with pytest.raises(InputError, match="--cron, --timezone: found"):
        schedule_of(cron, timezone)


def test_overrides_are_settings_as_on_the_command_line():
    config = load_configuration("deployments/configs/local.yaml")
    changed = overridden(config, ["seed=7", "update.learning_rate=3e-4"])
    assert changed == load_configuration("deployments/configs/local.yaml", ["seed=7", "update.learning_rate=3e-4"])
    assert overridden(config, []) is config
    for override, words in (("seeed=7", "did you mean seed"), ("seed", "expected the form")):
        with pytest.raises(InputError, match=words):
            overridden(config, [override])


def test_deployments_of_one_name_are_refused():
    config = load_configuration("deployments/configs/local.yaml")
    with pytest.raises(InputError, match="two configurations have the name 'local'"):
        deploy([config, config])


def test_deploy_names_the_address_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    monkeypatch.setattr(deployments, "SERVER_WAIT_S", 0.1)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        with pytest.raises(InfrastructureError, match=r"127\.0\.0\.1:9/api .*prefect server start"):
            deploy([load_configuration("deployments/configs/local.yaml")])
        assert run(["deploy", "deployments/configs/local.yaml"]) == 1
        assert run(["deploy", "deployments/configs/none.yaml"]) == 2
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert run(["deploy", "deployments/configs/local.yaml"]) == 2
    assert "PREFECT_API_URL: expected the address" in capsys.readouterr().err
