"""A stage as a Prefect task: cache key, place in the store, retries, progress.

A stage is declared beside its code (`tasks/<stage>/task.py`):

    @stage_task("update", code="tasks.update.train", label="update {iteration}")
    def update(stage: Stage, request: UpdateRequest) -> CheckpointRef:
        from tasks.update.train import update_policy          # imported when it runs: a cache hit needs no torch
        return update_policy(request, stage.destination, stage.progress)

and called in a flow as `update(workspace, request)`. Its cache key is a digest of the stage's name, the version of
its code, and every argument (a reference counts by its content digest, a configuration by its decisive part). A
stage with many arguments takes them as one `StageRequest`, whose fields count like arguments. The
result is stored as JSON under `runs/prefect/results/<key>`, independent of any Prefect server's database. If the
artifact of a hit is gone or was changed, it is computed again. Before a stage computes, the files that it reads are
compared with their manifests; a damaged artifact is made again by the stage that it came from.
"""

import difflib
import inspect
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args

from kernels_eval.errors import InputError, first_line
from kernels_eval.frozen import FrozenModel, Operational
from tasks.pipeline.cache import StageOutcome, decisive, is_stored, keep, run_cached
from tasks.pipeline.code_version import code_version
from tasks.pipeline.integrity import damage_of
from tasks.pipeline.references import ArtifactRef, Progress, silent
from tasks.pipeline.retries import STAGE_NAMES, StagesConfig, StageStoppedError, heals, limited
from tasks.pipeline.store import digest_of, parts_of, published_digest

if TYPE_CHECKING:
    from tasks.pipeline.shared_store import SharedStore  # imports fsspec

P = ParamSpec("P")
R = TypeVar("R", bound=ArtifactRef)
OptimizerSteps = Sequence[Mapping[str, Any]]

REPORT_STAGE = "report"
"""Not a cached stage, but `--refresh` accepts it."""
_DECLARED: dict[str, str] = {}
"""The label of each stage that was declared, by name."""


class StageListener(Protocol):
    """Observer of a run's stages: the command line draws them, a worker logs them."""

    def started(self, label: str) -> None:
        """A stage begins to compute."""

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None:
        """A stage has done `done` of `total` units."""

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        """A stage is done; `cached`: nothing was computed, and `seconds` are those of the earlier computation."""

    def failed(self, label: str, error: BaseException) -> None:
        """A stage did not finish."""

    def noted(self, text: str) -> None:
        """A result that a person wants to know as soon as it is there, in one line."""

    def warned(self, text: str) -> None:
        """Something beside the stages happened, e.g. a service was started again; the run goes on."""


@dataclass(frozen=True)
class StageRecord:
    """One stage of one run, for the summary."""

    label: str
    stage: str
    seconds: float
    """Wall time of the computation (of the earlier one, if cached)."""
    overhead_s: float
    """Wall time beside the computation: Prefect, cache lookup, artifact."""
    cached: bool
    began: float
    """Seconds since 1970 at the begin of the computation; of a cached one: of its look-up."""
    docs_dir: Path
    """Data Docs of the stage, if it is a check."""
    uri: str
    """Path of its artifact."""
    digest: str
    """Content digest of its artifact."""


@dataclass
class Workspace:
    """Folders and listeners of the stages of one run."""

    runs_dir: Path
    run_id: str
    listeners: Sequence[StageListener]
    before_work: Callable[[], None] = lambda: None
    """Called before a stage computes, not for a cache hit; starts Ray the first time."""
    refresh: frozenset[str] = frozenset()
    """Stages that are computed again even if cached, by name (`update`: every one of them) or label (`update 3`)."""
    stages: StagesConfig = field(default_factory=StagesConfig)
    refreshed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Uri and digest of artifacts computed again because of `refresh`: stages that read them are computed again too."""
    makers: dict[str, Callable[[], ArtifactRef]] = field(default_factory=dict[str, Callable[[], ArtifactRef]])
    """By uri of an artifact of this driver: a function that makes it again."""
    returned: dict[str, ArtifactRef] = field(default_factory=dict[str, ArtifactRef])
    """By uri: the reference that Prefect returned; by its identity Prefect draws the dependencies between stages."""
    records: list[StageRecord] = field(default_factory=list[StageRecord])
    on_steps: Callable[[str, str, str, OptimizerSteps], None] = lambda _name, _label, _key, _rows: None
    """Called with name, label and key of a training's stage, and the optimizer steps that it did, as they come."""
    shared: "SharedStore | None" = None
    """Store that machines share, if there is one."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set when the run ends although stages of other threads compute: what fails then is not tried again."""

    def tell(self, event: Callable[[StageListener], None]) -> None:
        """Pass an event on to every listener."""
        for listener in self.listeners:
            event(listener)

    def warn(self, text: str) -> None:
        """Tell every listener of something beside the stages."""
        self.tell(lambda each: each.warned(text))

    @property
    def run_dir(self) -> Path:
        """`runs/<run_id>`."""
        return self.runs_dir / self.run_id

    @property
    def results_dir(self) -> Path:
        """Folder of the stages' cached results."""
        return self.runs_dir / "prefect" / "results"


@dataclass(frozen=True)
class Stage:
    """First argument of a stage's function: its folders and its progress callback."""

    workspace: Workspace
    name: str
    key: str
    progress: Progress = silent
    label: str = ""

    def on_steps(self, rows: OptimizerSteps) -> None:
        """Pass on optimizer steps of this stage's training."""
        if rows:
            self.workspace.on_steps(self.name, self.label, self.key, rows)

    @property
    def destination(self) -> Path:
        """`runs/store/<stage>/<key>`: the stage publishes here."""
        return self.workspace.runs_dir / "store" / self.name / self.key

    @property
    def docs_dir(self) -> Path:
        """`runs/data_docs/<stage>/<key>`: a check writes its pages here."""
        return self.workspace.runs_dir / "data_docs" / self.name / self.key

    @property
    def work_dir(self) -> Path:
        """`runs/work/<stage>/<key>`: interim state to resume from; the same folder after a kill."""
        return self.workspace.runs_dir / "work" / self.name / self.key


class StageRequest(FrozenModel):
    """All arguments of a stage in one value. To labels and to the cache key its fields are the stage's arguments.

    A field that cannot change the result is `Annotated[..., Operational]`.
    """


@dataclass(frozen=True)
class StageTask(Generic[P, R]):
    """A stage as a cached, retried Prefect task; call it inside a flow."""

    name: str
    function: Callable[Concatenate[Stage, P], R]
    code: str
    label: str
    ignored: frozenset[str]
    detail: str = ""

    def __call__(self, workspace: Workspace, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the stage's reference, computed or from the cache."""
        started, began = time.perf_counter(), time.time()
        arguments = self.arguments(*args, **kwargs)
        label = self.label.format(**arguments)
        key = self.key(arguments)
        stage = Stage(workspace, self.name, key, label=label)
        attempts = 0

        def compute(key: str, inputs: list[ArtifactRef]) -> StageOutcome:
            nonlocal attempts
            attempts += 1
            return self._compute(stage, attempts, *args, **kwargs)

        try:
            shown = f"{label}: {self.detail.format(**arguments)}" if self.detail else label
            inputs = _references(arguments.values())
            again = bool({self.name, label} & workspace.refresh) or any(
                (value.uri, value.digest) in workspace.refreshed for value in inputs
            )
            refresh = again or not _is_found(workspace, key)
            if refresh:
                _mend(workspace, inputs)
            inputs = [workspace.returned.get(value.uri, value) for value in inputs]
            outcome = run_cached(
                compute, self.name, shown, key, inputs, workspace.results_dir, workspace.stages, refresh
            )
            if workspace.shared is not None:
                workspace.shared.offer(key, outcome)
            made = outcome.reference.found_in(workspace.runs_dir)
            workspace.returned[made.uri] = outcome.reference
            if again:
                workspace.refreshed.add((made.uri, made.digest))
        except BaseException as error:
            failure = error
            workspace.tell(lambda listener: listener.failed(label, failure))
            raise
        elapsed = time.perf_counter() - started
        overhead = elapsed - outcome.seconds if attempts else elapsed
        overhead = round(max(overhead, 0.0), 4)
        record = StageRecord(
            label, self.name, outcome.seconds, overhead, not attempts, began, stage.docs_dir, made.uri, made.digest
        )
        workspace.records.append(record)

        def make_again() -> R:
            (workspace.results_dir / key).unlink(missing_ok=True)
            return self(workspace, *args, **kwargs)

        workspace.makers.setdefault(made.uri, make_again)  # a check returns what an earlier stage made
        workspace.tell(lambda listener: listener.finished(label, outcome.seconds, cached=not attempts))
        return made  # pyright: ignore[reportReturnType]  # the union member that the function returned

    def _compute(self, stage: Stage, attempt: int, /, *args: P.args, **kwargs: P.kwargs) -> StageOutcome:
        """Compute the stage, and show it to listeners and in Prefect. `attempt`: its number, the first is 1."""
        from tasks.pipeline.prefect_artifacts import publish_refusal, publish_summary, shown_progress

        workspace, label = stage.workspace, stage.label
        _check_not_stopped(workspace, label)
        workspace.tell(lambda listener: listener.started(label))
        workspace.before_work()
        begun = time.perf_counter()
        limit_s = workspace.stages.timeout_of(self.name)
        try:
            with shown_progress(workspace.run_id, self.name, label) as show, limited(label, limit_s):

                def progress(done: int, total: int, **figures: float) -> None:
                    workspace.tell(lambda listener: listener.progressed(label, done, total, figures))
                    show(done, total)

                reference = self.function(replace(stage, progress=progress), *args, **kwargs)
        except InputError as error:
            publish_refusal(workspace.run_id, self.name, label, error)
            raise
        except Exception as error:
            _check_not_stopped(workspace, label)  # its workers were ended
            if heals(error) and attempt <= workspace.stages.retries:
                reason = first_line(error).rstrip(".")
                workspace.warn(f"{label}: {reason}; it is tried again")
            raise
        seconds = round(time.perf_counter() - begun, 3)
        docs_dir = stage.docs_dir if stage.docs_dir.is_dir() else None
        publish_summary(workspace.run_id, self.name, label, reference, seconds, docs_dir)
        return StageOutcome.model_validate({"reference": reference.stored_in(workspace.runs_dir), "seconds": seconds})

    def key(self, arguments: dict[str, Any]) -> str:
        """Return the cache key of a call with these arguments."""
        known = self._metadata()
        deciding = {
            name: decisive(value, known[name])
            for name, value in arguments.items()
            if name not in self.ignored and Operational not in known[name]
        }
        return digest_of([self.name, code_version(self.code), deciding])

    def _metadata(self) -> dict[str, Sequence[Any]]:
        """Return the metadata of each argument's annotation, and of each field of a request."""
        found: dict[str, Sequence[Any]] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, StageRequest):
                found |= {field: each.metadata for field, each in parameter.annotation.model_fields.items()}
            else:
                found[name] = get_args(parameter.annotation)
        return found

    def arguments(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments of a call by name, those of a request by field."""
        bound = inspect.signature(self.function).bind(None, *args, **kwargs)
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for name, value in list(bound.arguments.items())[1:]:
            arguments |= dict(value) if isinstance(value, StageRequest) else {name: value}
        return arguments


def _is_found(workspace: Workspace, key: str) -> bool:
    """True if a stage's result and its artifact are there. What is not may come from the store that machines share."""
    if is_stored(workspace.results_dir, key, workspace.runs_dir, workspace.warn):
        return True
    outcome = None if workspace.shared is None else workspace.shared.fetch(key)
    if outcome is None:
        return False
    keep(workspace.results_dir, key, outcome)
    return is_stored(workspace.results_dir, key, workspace.runs_dir)


def _check_not_stopped(workspace: Workspace, label: str) -> None:
    """Raise StageStoppedError if the run ends."""
    if workspace.stopped.is_set():
        raise StageStoppedError(f"{label}: stopped, because the run ends")


def _references(values: Iterable[Any]) -> list[ArtifactRef]:
    """Return the references among a stage's arguments, and those in mappings."""
    flat = (item for value in values for item in (value.values() if isinstance(value, dict) else (value,)))
    return [item for item in flat if isinstance(item, ArtifactRef)]


def _mend(workspace: Workspace, inputs: Iterable[ArtifactRef]) -> None:
    """Have damaged inputs made again by their stages. Raises InputError if one came from no stage of this driver.

    Contents are reproducible: what is made again has the digest that it had. If not, what follows from it has to be
    computed anew, by another start of the run.
    """
    parts = [part for reference in inputs for part in parts_of(reference.path)]
    known = {Path(uri).resolve(): uri for uri in list(workspace.makers)}  # the other line adds some
    for reference in [
        *(ArtifactRef(uri=known.get(part, str(part)), digest=published_digest(part)) for part in parts),
        *inputs,
    ]:
        damage = damage_of(reference.path)
        if damage is None:
            continue
        maker = workspace.makers.get(reference.uri)
        if maker is None:
            raise InputError(f"{damage}; remove {reference.path}, and `kernelmill train` makes it again")
        workspace.warn(f"{damage}; it is made again")
        if maker().digest != reference.digest:
            raise InputError(f"{damage}; it was made again with another content: start the same run again to go on")


def stage_task(
    name: str, *, code: str, label: str = "", detail: str = "", ignored: tuple[str, ...] = ()
) -> Callable[[Callable[Concatenate[Stage, P], R]], StageTask[P, R]]:
    """Declare a stage.

    `name`: its folder in the store. `code`: the module whose source, with all that it imports, is its version. `label`:
    format string over the arguments, unique in a run. `detail`: format string appended to the name of the task run.
    `ignored`: arguments that do not decide the result.
    """

    def declare(function: Callable[Concatenate[Stage, P], R]) -> StageTask[P, R]:
        _DECLARED[name] = label or name
        return StageTask(name, function, code, label or name, frozenset(ignored), detail)

    return declare


def check_refresh(entries: Iterable[str], iterations: int | None = None) -> None:
    """Raise InputError unless each entry is a stage's name (`update`) or label (`update 3`), of `iterations`."""
    numbered = (re.escape(label).replace(r"\{iteration\}", r"(\d+)") for label in _DECLARED.values())
    labels = [re.sub(r"\\\{.*?\\\}", ".*", label) for label in numbered]
    for entry in entries:
        matches = [match for label in labels if (match := re.fullmatch(label, entry))]
        if iterations is not None and any(int(number) >= iterations for match in matches for number in match.groups()):
            raise InputError(f"--refresh {entry}: expected an iteration from 0 to {iterations - 1}")
        if matches or entry in (*STAGE_NAMES, *_DECLARED, REPORT_STAGE):
            continue
        known = [*STAGE_NAMES, REPORT_STAGE]
        meant = "".join(f"; did you mean {name}?" for name in difflib.get_close_matches(entry, known, n=1))
        raise InputError(f"--refresh {entry}: no such stage{meant}; there are {', '.join(known)}")
