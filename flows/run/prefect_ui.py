"""A run as Prefect's UI shows it: names and tags of flow runs, and log lines of stages. Called in the driver."""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from prefect import get_client
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import Pause
from prefect.runtime import flow_run

from flows.run.state import read_state
from flows.settings.configuration import RunConfig, overridden
from flows.settings.plurals import counted
from kernels_eval.errors import InputError
from tasks.pipeline.retries import StageStoppedError

SUSPENDED_EVENT = "kernelmill.flow-run.suspended"
"""Event of a flow run whose process ends because it is suspended."""


def name_of(kind: str) -> Callable[[], str]:
    """Return a function that names a flow run, e.g. `local-1a2b3c4d · iteration 3 · policy 3 on generated problems`.

    `kind`: `training`; `iteration` or `policy`, which name the run's newest policy; or `problems`, which names none.
    """

    def name() -> str:
        given = flow_run.parameters
        return run_name(kind, overridden(RunConfig.model_validate(given["config"]), given.get("overrides", ())))

    return name


def run_name(kind: str, config: RunConfig) -> str:
    """Return the name of a flow run that starts now. The UI shows the flow's own name before it."""
    policy, problems = newest_version(config), problems_of(config)
    described = {
        "training": f"{counted(config.iterations, 'iteration')} on {problems}",
        "iteration": f"iteration {policy} · policy {policy} on {problems}",
        "policy": f"policy {policy} on {problems}",
        "problems": problems,
    }
    return f"{config.run_id} · {described[kind]}"


def problems_of(config: RunConfig) -> str:
    """Return a short name of the problem set."""
    source = Path(config.problems.path).name if config.problems.path is not None else config.problems.source
    return f"{source} problems"


def newest_version(config: RunConfig) -> int:
    """Return the weight version of the run's newest policy; 0 if there is none yet."""
    try:
        newest = read_state(Path(config.runs_dir) / config.run_id).newest_policy
    except InputError:  # raised again when the run is opened
        return 0
    return 0 if newest is None else newest.weight_version


def tags_of(config: RunConfig) -> set[str]:
    """Return the tags by which a run can be filtered."""
    model = Path(config.model.pretrained).name if config.model.pretrained is not None else "model from scratch"
    return {"kernelmill", config.name, config.run_id, problems_of(config), model}


def tag_flow_run(config: RunConfig) -> None:
    """Add the run's tags to the current flow run (one API call)."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, tags=sorted(tags_of(config) | set(context.flow_run.tags)))


def note_flow_run(logger: logging.Logger | logging.LoggerAdapter[logging.Logger]) -> None:
    """Log the id of the current flow run, if there is one: `kernelmill view` links to it."""
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None:
        logger.info("Prefect flow run %s", context.flow_run.id)


@contextmanager
def announced_suspension() -> Generator[None]:
    """Emit an event if the block ends because the flow run is suspended.

    Prefect marks a run as Suspended at once, but its process works until the next stage begins and sends heartbeats
    meanwhile. The event ends the server's wait for the next one (`flows/services/automations/vanished-runs.yaml`).
    """
    try:
        yield
    except Pause:
        context = FlowRunContext.get()
        if context is not None and context.flow_run is not None:
            emit_event(
                SUSPENDED_EVENT,
                resource={"prefect.resource.id": f"prefect.flow-run.{context.flow_run.id}"},
                related=[
                    {
                        "prefect.resource.id": f"prefect.flow.{context.flow_run.flow_id}",
                        "prefect.resource.role": "flow",
                        "prefect.resource.name": context.flow.name if context.flow is not None else "",
                    }
                ],
            )
        raise


class LogListener:
    """Logs the events of stages, progress at most every `interval_s`; Prefect's run logger sends them to the UI."""

    def __init__(
        self, logger: logging.Logger | logging.LoggerAdapter[logging.Logger], interval_s: float = 30.0
    ) -> None:
        self.logger = logger
        self.interval_s = interval_s
        self._last: dict[str, float] = {}

    def started(self, label: str) -> None:
        """Log the start."""
        self._last[label] = time.monotonic()
        self.logger.info("%s: started", label)

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        """Log progress, if the last line is old enough."""
        now = time.monotonic()
        if now - self._last.get(label, 0.0) >= self.interval_s:
            self._last[label] = now
            shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
            self.logger.info("%s: %d of %d %s", label, done, total, shown)

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        """Log the end."""
        self.logger.info("%s: %s", label, "cached" if cached else f"done in {seconds:.1f} s")

    def failed(self, label: str, error: BaseException) -> None:
        """Log the failure, or the suspension of the flow run."""
        if isinstance(error, Pause):
            self.logger.info("%s: not begun: the flow run is suspended", label)
            return
        if isinstance(error, StageStoppedError):
            self.logger.info("%s: stopped", label)
            return
        self.logger.error("%s: failed: %s", label, error)

    def noted(self, text: str) -> None:
        """Log the line."""
        self.logger.info("%s", text)

    def warned(self, text: str) -> None:
        """Log the note."""
        self.logger.warning("%s", text)
