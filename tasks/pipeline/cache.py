"""Stage cache: the decisive part of a stage's arguments, and the Prefect task that computes it or takes its result.

A result is a `StageOutcome` as JSON in `runs/prefect/results/<key>`: a reference to the artifact, never its data, with
a path relative to the folder of runs.
"""

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel, decisive_part, mark_of_code, normalised, with_source
from tasks.pipeline import retries
from tasks.pipeline.code_version import content_digest
from tasks.pipeline.integrity import later_damage_of
from tasks.pipeline.references import (
    ArtifactRef,
    CheckpointRef,
    EvaluationRef,
    ProblemSetRef,
    SftDataRef,
    TrajectoryBatchRef,
)
from tasks.pipeline.retries import StagesConfig, can_heal
from tasks.pipeline.store import is_available

_LOGGER = logging.getLogger("kernelmill.stage")


class StageOutcome(FrozenModel):
    """Result of a stage's Prefect task, as the cache stores it."""

    reference: ProblemSetRef | SftDataRef | CheckpointRef | TrajectoryBatchRef | EvaluationRef
    """Its path is relative to the folder of runs."""
    seconds: float
    """Wall time of the computation."""


def decisive(value: Any, metadata: Iterable[Any] = ()) -> Any:
    """Return the part of a stage's argument that decides its result, as plain data.

    `metadata`: that of its annotation. Of a name of code (`Annotated[str, REWARD]`) the source counts too.
    """
    if isinstance(value, str) and (mark := mark_of_code(metadata)) is not None:
        return with_source(mark, value)
    if isinstance(value, ArtifactRef):
        return {"digest": value.digest}
    if isinstance(value, tuple | list):
        return [decisive(item) for item in value]
    if isinstance(value, dict):
        return {key: decisive(item) for key, item in value.items()}
    return decisive_part(value, _content, with_source) if isinstance(value, FrozenModel) else normalised(value)


def _content(name: str) -> str:
    """Return the digest of a file or folder; the name itself if nothing is there, e.g. of a model on the hub."""
    return content_digest(Path(name)) if Path(name).exists() else name


def run_cached(
    compute: Callable[[str, list[ArtifactRef]], StageOutcome],
    name: str,
    label: str,
    key: str,
    inputs: list[ArtifactRef],
    results: Path,
    stages: StagesConfig,
    refresh: bool,
) -> StageOutcome:
    """Run `compute` as a Prefect task, or return the result stored in `results` under `key`.

    `refresh`: compute in any case. `inputs` are passed to the task for Prefect to draw the dependencies between stages.
    """
    from prefect.tasks import Task, exponential_backoff

    results.mkdir(parents=True, exist_ok=True)
    limit_s = stages.timeout_of(name)
    task = Task(
        fn=compute,
        name=name,
        task_run_name=label,
        # No tags: for each tag Prefect asks the server for a slot of its concurrency limit, a write that SQLite
        # sometimes refuses (HTTP 503); the client repeats it 2 s later.
        cache_key_fn=lambda _context, parameters: parameters["key"],
        refresh_cache=refresh,
        persist_result=True,
        result_storage=results,
        result_serializer="json",
        cache_result_in_memory=False,
        retries=stages.retries,
        retry_delay_seconds=exponential_backoff(stages.backoff_s),
        retry_jitter_factor=0.5,
        retry_condition_fn=can_heal,
        timeout_seconds=None if limit_s is None else limit_s + retries.GRACE_S,
    )
    return task(key, inputs)


def keep(results: Path, key: str, outcome: StageOutcome) -> None:
    """Store a result that another machine computed, as `run_cached` stores its own."""
    from prefect.filesystems import LocalFileSystem
    from prefect.results import ResultStore
    from prefect.serializers import JSONSerializer

    results.mkdir(parents=True, exist_ok=True)
    storage = LocalFileSystem(basepath=str(results))
    ResultStore(result_storage=storage, serializer=JSONSerializer()).write(outcome, key=key)


def is_stored(results: Path, key: str, runs_dir: Path, warn: Callable[[str], None] = _LOGGER.warning) -> bool:
    """True if there is a result that can be read, and its artifact is still there, with no file changed since.

    `warn` is told of a changed one.
    """
    from prefect.filesystems import LocalFileSystem
    from prefect.results import ResultStore

    if not (results / key).exists():
        return False
    try:
        json.loads((results / key).read_bytes())  # of what is not JSON, Prefect would try whether it is a pickle
        outcome = ResultStore(result_storage=LocalFileSystem(basepath=str(results))).read(key).result
    except (ValueError, KeyError, OSError, TypeError, AttributeError):
        return False  # half written by a killed process, or by another version
    if not isinstance(outcome, StageOutcome):
        return False
    reference = outcome.reference.found_in(runs_dir)
    try:
        if not is_available(reference):
            return False
        damage = later_damage_of(reference.path)
    except InputError as error:  # its manifest cannot be read
        damage = str(error)
    if damage is not None:
        warn(f"{damage}; it is made again")
    return damage is None
