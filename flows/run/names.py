"""Names and tags of flow runs: which problems, which policy, which iteration. A person finds a run by them in the UI."""

from collections.abc import Callable
from pathlib import Path

from prefect import get_client
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from flows.run.state import read_state
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError


def name_of(kind: str) -> Callable[[], str]:
    """Return what names the runs of a flow, e.g. `local-1a2b3c4d · iteration 3 · policy 3 on generated problems`.

    `kind`: `training`; `iteration` and `policy`, which name the run's newest policy; or `problems`, which names none.
    """

    def name() -> str:
        return run_name(kind, RunConfig.model_validate(flow_run.parameters["config"]))

    return name


def run_name(kind: str, config: RunConfig) -> str:
    """Return the name of a flow run that starts now. The UI shows the flow's own name before it."""
    policy = newest_version(config)
    if kind == "training":
        parts = [f"{config.iterations} iteration{'s' * (config.iterations != 1)} on {problems_of(config)}"]
    elif kind == "iteration":
        parts = [f"iteration {policy}", f"policy {policy} on {problems_of(config)}"]
    elif kind == "policy":
        parts = [f"policy {policy} on {problems_of(config)}"]
    else:
        parts = [problems_of(config)]
    return " · ".join([config.run_id, *parts])


def problems_of(config: RunConfig) -> str:
    """Return the problem set in two words."""
    source = Path(config.problems.path).name if config.problems.path is not None else config.problems.source
    return f"{source} problems"


def newest_version(config: RunConfig) -> int:
    """Return the weight version of the run's newest policy; 0 where there is none yet."""
    try:
        newest = read_state(Path(config.runs_dir) / config.run_id).newest_policy
    except InputError:  # told when the run is opened
        return 0
    return 0 if newest is None else newest.weight_version


def tags_of(config: RunConfig) -> set[str]:
    """Return what a run can be filtered by."""
    model = Path(config.model.pretrained).name if config.model.pretrained is not None else "model from scratch"
    return {"kernelmill", config.name, config.run_id, problems_of(config), model}


def tag_flow_run(config: RunConfig) -> None:
    """Add the run's tags to the flow run that this is called in (one call of the API)."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, tags=sorted(tags_of(config) | set(context.flow_run.tags)))
