"""Stages of two lanes in one real flow, and the end of one when the other fails."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prefect import flow

from flows.run.lane import Lane
from kernels_eval.errors import InfrastructureError
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.retries import StagesConfig
from tasks.pipeline.stage import Stage, Workspace, stage_task
from tasks.pipeline.store import publish, published_digest

WITHIN_S = 120.0
meeting = threading.Barrier(2)
at_work, killed = threading.Event(), threading.Event()
tries: list[int] = []


@dataclass
class Heard:
    """Remembers what it is told."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def started(self, label: str) -> None:
        self.events.append(("started", label))

    def progressed(self, label: str, done: int, total: int, figures: dict[str, float]) -> None: ...

    def finished(self, label: str, seconds: float, cached: bool) -> None:
        self.events.append(("finished", label))

    def failed(self, label: str, error: BaseException) -> None:
        self.events.append((type(error).__name__, label))

    def noted(self, text: str) -> None: ...

    def warned(self, text: str) -> None: ...


@stage_task("meets", code="tasks.pipeline.references", label="meets {number}")
def meets(stage: Stage, number: int) -> CheckpointRef:
    """Wait for the other stage: in turns, both would fail."""
    meeting.wait(WITHIN_S)
    with publish(stage.destination) as folder:
        (folder / "number.txt").write_text(str(number))
    return CheckpointRef(uri=str(stage.destination), digest=published_digest(stage.destination))


@stage_task("waits", code="tasks.pipeline.references", label="waits {number}")
def waits(stage: Stage, number: int) -> CheckpointRef:
    """Fail as a stage whose worker is killed."""
    tries.append(number)
    at_work.set()
    assert killed.wait(WITHIN_S)
    raise InfrastructureError("the worker died")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, "run", [Heard()], stages=StagesConfig(backoff_s=0.05))


@pytest.mark.usefixtures("server")
def test_stages_of_both_lanes_compute_at_the_same_time_in_one_flow(workspace: Workspace):
    @flow
    def both() -> None:
        with Lane(lambda: None) as lane:
            other = lane.submit(meets, workspace, 1)
            assert meets(workspace, 2) != other.result(WITHIN_S)

    both()
    assert {record.label for record in workspace.records} == {"meets 1", "meets 2"}


@pytest.mark.usefixtures("server")
def test_a_stage_that_is_ended_with_the_run_is_not_tried_again(workspace: Workspace):
    def stop() -> None:
        workspace.stopped.set()
        killed.set()

    @flow
    def fails() -> None:
        with Lane(stop) as lane:
            lane.submit(waits, workspace, 1)
            lane.submit(waits, workspace, 2)
            assert at_work.wait(WITHIN_S)
            raise ValueError("the update failed")

    with pytest.raises(ValueError, match="the update failed"):
        fails()
    assert tries == [1]
    heard: Heard = workspace.listeners[0]  # pyright: ignore[reportAssignmentType]
    assert heard.events == [("started", "waits 1"), ("StageStoppedError", "waits 1")]
