"""The manifests: of the shape that their programs take, naming things that exist, open to nobody by accident.

No container engine or cluster takes part: Compose's and KubeRay's shapes are stated here for what the files use (an unknown key is an
error); `ray up` has a schema of its own that comes with Ray.
"""

import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from packaging.requirements import Requirement
from pydantic import BaseModel, ConfigDict, Field

from flows.services.deployments import WORK_POOL

DEPLOYMENTS = Path("deployments")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HealthCheck(Strict):
    test: list[str] = Field(min_length=2)
    interval: str = Field(pattern=r"^\d+s$")
    timeout: str = Field(pattern=r"^\d+s$")
    retries: int
    start_period: str | None = Field(default=None, pattern=r"^\d+s$")


class DependsOn(Strict):
    condition: Literal["service_healthy", "service_started", "service_completed_successfully"]


class Build(Strict):
    context: str
    dockerfile: str


class Service(Strict):
    image: str = Field(pattern=r"^[a-z0-9/._-]+:[A-Za-z0-9._-]+$")
    build: Build | None = None
    init: bool | None = None
    restart: Literal["unless-stopped", "no", "always"]
    command: list[str] | None = None
    environment: dict[str, str] = {}
    volumes: list[str] = []
    ports: list[str] = []
    depends_on: dict[str, DependsOn] = {}
    healthcheck: HealthCheck
    profiles: list[str] = []
    shm_size: str | None = None
    security_opt: list[str] = []
    ipc: str | None = None
    deploy: dict[str, Any] | None = None


class Compose(Strict):
    model_config = ConfigDict(extra="allow")
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]


@pytest.fixture(scope="module")
def compose() -> Compose:
    content = yaml.safe_load((DEPLOYMENTS / "compose.yaml").read_text())
    assert {key for key in content if not key.startswith("x-")} == {"name", "services", "volumes"}
    return Compose.model_validate(content)


def test_every_service_is_there_with_a_health_check(compose: Compose):
    assert {"postgres", "prefect", "worker", "judge", "kernels", "sglang", "wandb"} == set(compose.services)
    for name, service in compose.services.items():
        assert service.healthcheck.test[0] in ("CMD", "CMD-SHELL"), name
        for other, condition in service.depends_on.items():
            assert other in compose.services
            assert condition.condition == "service_healthy"
    assert {"kernels", "sglang", "wandb"} == {name for name, service in compose.services.items() if service.profiles}


def test_volumes_are_declared_and_used(compose: Compose):
    used = {volume.partition(":")[0] for service in compose.services.values() for volume in service.volumes}
    assert used == set(compose.volumes)
    paths = {
        volume.split(":")[1]
        for name in ("worker", "sglang")
        for volume in compose.services[name].volumes
        if volume.startswith("runs:")
    }
    assert len(paths) == 1  # weights are pushed by the names of folders


def test_ports_are_on_loopback_and_no_secret_is_in_the_file(compose: Compose):
    for service in compose.services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.ports)
        for name, value in service.environment.items():
            if re.search("PASSWORD|TOKEN|SECRET", name):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?.*\}", value), name
    address = compose.services["prefect"].environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert "${POSTGRES_PASSWORD:?}" in address


def test_our_commands_exist(compose: Compose):
    from typer.main import get_command

    from flows.cli.main import app

    judge = compose.services["judge"].command
    assert judge is not None
    group = get_command(app).commands[judge[1]]  # pyright: ignore[reportAttributeAccessIssue]
    command = group.commands[judge[2]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {argument for argument in judge if argument.startswith("--")} <= known
    script = (compose.services["worker"].command or [""])[-1]
    assert "kernelmill deploy ${KERNELMILL_CONFIGS:-deployments/configs/local.yaml} &&" in script
    assert f"worker start --pool {WORK_POOL}" in script


def test_the_image_is_built_from_what_is_there(compose: Compose):
    build = compose.services["worker"].build
    assert build is not None
    dockerfile = DEPLOYMENTS / build.context / build.dockerfile
    ignored = Path(".dockerignore").read_text().splitlines()
    for line in dockerfile.read_text().splitlines():
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            for source in sources:
                assert Path(source).exists(), source
                assert f"!{source.split('/')[0]}" in ignored, source
    assert "USER kernelmill" in dockerfile.read_text()


def test_ray_up_takes_the_file():
    import ray.autoscaler
    from jsonschema import Draft7Validator

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    content = yaml.safe_load((DEPLOYMENTS / "ray" / "aws.yaml").read_text())
    assert [error.message for error in Draft7Validator(schema).iter_errors(content)] == []
    workers = content["available_node_types"]["gpu"]
    assert (workers["min_workers"], workers["max_workers"]) == (2, 4)
    assert content["head_node_type"] in content["available_node_types"]
    assert content["max_workers"] >= workers["max_workers"]
    assert "--dashboard-host=127.0.0.1" in content["head_start_ray_commands"][-1]


class Container(Strict):
    name: str
    image: str
    ports: list[dict[str, Any]] = []
    env: list[dict[str, Any]] = []
    resources: dict[Literal["requests", "limits"], dict[str, str]]
    volumeMounts: list[dict[str, str]]
    securityContext: dict[str, Any] | None = None


class PodSpec(Strict):
    containers: list[Container] = Field(min_length=1)
    volumes: list[dict[str, Any]]


class PodTemplate(Strict):
    spec: PodSpec


class HeadGroup(Strict):
    serviceType: Literal["ClusterIP"]
    rayStartParams: dict[str, str]
    template: PodTemplate


class WorkerGroup(Strict):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int
    rayStartParams: dict[str, str]
    template: PodTemplate


class RayClusterSpec(Strict):
    rayVersion: str
    enableInTreeAutoscaling: bool
    autoscalerOptions: dict[str, int]
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]


def test_kuberay_takes_the_file():
    documents = list(yaml.safe_load_all((DEPLOYMENTS / "ray" / "kuberay.yaml").read_text()))
    claim, cluster = documents
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = RayClusterSpec.model_validate(cluster["spec"])
    pinned = next(
        str(requirement.specifier).removeprefix("==")
        for line in (DEPLOYMENTS / "constraints.txt").read_text().splitlines()
        if line.startswith("ray==") and (requirement := Requirement(line.split("#")[0].strip()))
    )
    assert spec.rayVersion == pinned
    (workers,) = spec.workerGroupSpecs
    assert (workers.minReplicas, workers.maxReplicas) == (2, 4)
    assert workers.minReplicas <= workers.replicas <= workers.maxReplicas
    for template in (spec.headGroupSpec.template, workers.template):
        (container,) = template.spec.containers
        assert container.resources["requests"] == container.resources["limits"]
        volumes = {volume["name"] for volume in template.spec.volumes}
        assert {mount["name"] for mount in container.volumeMounts} == volumes
        assert {entry["name"] for entry in container.env} == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
        assert all("value" not in entry for entry in container.env if entry["name"] == "RAY_AUTH_TOKEN")
        claims = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in template.spec.volumes
            if "persistentVolumeClaim" in volume
        ]
        assert claims == [claim["metadata"]["name"]]


def test_manifests_and_compose_name_the_same_image():
    texts = [(DEPLOYMENTS / name).read_text() for name in ("compose.yaml", "ray/aws.yaml", "ray/kuberay.yaml")]
    images = {match for text in texts for match in re.findall(r"image: (kernelmill:\S+)", text)}
    version = re.search(r'^version = "(.+)"$', Path("pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert images == {f"kernelmill:{version[1]}"}
