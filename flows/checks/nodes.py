"""Checks of a cluster before a run: its nodes have joined, hold what is reserved, and lack nothing that stages need.

A stage would miss a package, a folder or SGLang only when it starts there, hours later.
"""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any
from uuid import uuid4

from flows.capacity.planner import gpus_of, needs_of
from flows.checks.named_files import named_models
from flows.checks.packages import declared_packages, wrong_packages
from flows.services.ray_cluster import Note, RayCluster
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError, first_line
from tasks.cluster.placement import living_nodes
from tasks.rollout.engines.kind import Outcome, kind_of

_FIX = "install what deployments/container/Dockerfile installs"


def check_cluster(config: RunConfig, note: Note = lambda _text: None) -> None:
    """Check the cluster that `ray.address` names. Waits for `ray.nodes`; tells `note` so, and that GPUs are missing.

    Raises InputError for what can never work, RayUnavailableError if nodes do not join in time.
    """
    cluster = RayCluster(config.ray, needs_of(config))
    joined = cluster.join(note)
    try:
        cluster.bundles()
        _check_nodes(config)
        found, wanted = sum(node.get("GPU", 0.0) for node in living_nodes()), gpus_of(config)
        if found < wanted:  # an autoscaler may add nodes once they are asked for
            note(f"ray.address: found {found:g} GPUs, expected {wanted}: stages wait until the cluster has them")
    finally:
        if joined:
            cluster.stop()


def _check_nodes(config: RunConfig) -> None:
    """Raise InputError for the first node that lacks something."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote: Any = ray.remote
    look, resource = remote(num_cpus=0, max_retries=0)(lacking), config.ray.worker_resource
    within_s = config.ray.answer_timeout_s
    nodes = [node for node in ray.nodes() if node["Alive"] and (resource is None or resource in node["Resources"])]
    mark = Path(config.runs_dir).absolute() / f".seen-by-nodes-{uuid4().hex}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        answers = [
            look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                config, mark, _declared(), _models_here(config), _may_generate(config, node["Resources"])
            )
            for node in nodes
        ]
        for node, answer in zip(nodes, answers, strict=True):
            try:
                lack: str | None = ray.get(answer, timeout=within_s)
            except GetTimeoutError:
                lack = f"no answer within {within_s:g} s (ray.answer_timeout_s)"
            except RayError as error:
                lack = first_line(error)
            if lack is not None:
                raise InputError(f"ray.address: node {node['NodeManagerAddress']}: {lack}")
    finally:
        mark.unlink()


def lacking(
    config: RunConfig, mark: Path, packages: list[str], models: dict[str, str], may_generate: bool
) -> str | None:
    """Return what this machine lacks for a run's stages, or None.

    Args:
        config: the run's settings.
        mark: a file in the folder of runs that the machine of the run has made.
        packages: requirements of packages that have to be installed.
        models: folders of models, by the settings that name them.
        may_generate: the rollout's process may be placed here, with the servers that it starts.
    """
    wrong = wrong_packages(packages)
    if wrong:
        return f"packages: {'; '.join(wrong)}: {_FIX}"
    if not mark.is_file():
        return f"runs_dir: found no such folder as here at {mark.parent}, expected one that all nodes share"
    for setting, folder in models.items():
        if not Path(folder).exists():
            return f"{setting}: found no folder {folder} there, expected it on all nodes"
    return _lacks_engine(config) if may_generate else None


def _lacks_engine(config: RunConfig) -> str | None:
    """Return what the engine lacks here, or None."""
    try:
        engine = kind_of(config.rollout)
        engine.check(config.rollout, config.has_team, is_here=True)
    except InputError as error:
        return str(error)
    found = engine.look(config.rollout, is_here=True)
    return f"{engine.label}: {found.found}" if found.outcome is Outcome.FAILED else None


def _declared() -> list[str]:
    """Return the packages that a run needs; none if ours is not installed here, and so declares nothing."""
    with suppress(PackageNotFoundError):
        return declared_packages("train")
    return []


def _models_here(config: RunConfig) -> dict[str, str]:
    """Return the folders of models that stages on nodes read, by the settings that name them.

    A name without a folder is a hub's. A Megatron checkpoint is converted by the driver.
    """
    converted = {"model.pretrained"} if config.model.megatron else set[str]()
    named = named_models(config)
    return {setting: name for setting, name in named.items() if setting not in converted and Path(name).exists()}


def _may_generate(config: RunConfig, resources: dict[str, float]) -> bool:
    """True for a node with the GPUs that the rollout's process, or one of its servers, takes."""
    return resources.get("GPU", 0.0) >= max(needs_of(config)["rollout"].gpus)
