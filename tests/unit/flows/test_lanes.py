"""The order of rollouts, evaluations and updates, and which policy writes which rollout."""

import threading
from typing import Any

import pytest

from flows import lanes
from flows.settings.configuration import RunConfig, check_configuration
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef

PROBLEMS = ProblemSetRef(uri="/p", digest="p", train=1, heldout=1)
FIRST = CheckpointRef(uri="/0", digest="0")
WITHIN_S = 60.0


def configured(iterations: int, staleness: int, interval: int | None = None) -> RunConfig:
    return check_configuration(
        {
            "iterations": iterations,
            "evaluation": {"interval": interval},
            "rollout": {"staleness": staleness},
            "judge": {"device": "cpu"},
        },
        "here",
    )


class Work:
    """The stages of a run, which only write down that they were called, or wait for each other as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, int, int]] = []
        """(stage, iteration, policy)."""
        self.waits: dict[tuple[str, int], tuple[str, int]] = {}
        """A stage, by name and iteration, and the one that has to begin before it ends."""
        self.begun: dict[tuple[str, int], threading.Event] = {}
        monkeypatch.setattr(lanes, "collect_trajectories", self._collect)
        monkeypatch.setattr(lanes, "update_policy", self._update)
        monkeypatch.setattr(lanes, "evaluate_policy", lambda _, __, policy: self._do("evaluation", policy, policy))

    def _do(self, stage: str, number: Any, policy: CheckpointRef) -> None:
        number = number.weight_version if isinstance(number, CheckpointRef) else number
        self._event(stage, number).set()
        if (stage, number) in self.waits:
            assert self._event(*self.waits[stage, number]).wait(WITHIN_S), f"{stage} {number} waited in vain"
        self.done.append((stage, number, policy.weight_version))

    def _event(self, stage: str, number: int) -> threading.Event:
        return self.begun.setdefault((stage, number), threading.Event())

    def _collect(self, _: Any, __: Any, policy: CheckpointRef, iteration: int) -> TrajectoryBatchRef:
        self._do("rollout", iteration, policy)
        return TrajectoryBatchRef(uri="/b", digest="b", run_id="r", iteration=iteration, trajectories=1, turns=1)

    def _update(
        self, _: Any, policy: CheckpointRef, batch: TrajectoryBatchRef, iteration: int, others_follow: bool
    ) -> CheckpointRef:
        assert batch.iteration == iteration == policy.weight_version
        self._do("update" if others_follow else "last update", iteration, policy)
        return CheckpointRef(uri="/p", digest=str(iteration + 1), weight_version=iteration + 1)

    def run(self, config: RunConfig) -> CheckpointRef:
        class Run:
            def stop_stages(self) -> None:
                raise AssertionError("nothing failed")

        Run.config = config  # type: ignore[attr-defined]
        return lanes.run_iterations(Run(), PROBLEMS, FIRST)  # type: ignore[arg-type]

    def of(self, *stages: str) -> list[tuple[str, int, int]]:
        return [each for each in self.done if each[0] in stages]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def test_without_staleness_stages_take_turns(work: Work):
    assert work.run(configured(2, 0, interval=1)).weight_version == 2
    assert work.done == [
        ("evaluation", 0, 0), ("rollout", 0, 0), ("update", 0, 0),
        ("evaluation", 1, 1), ("rollout", 1, 1), ("last update", 1, 1),
        ("evaluation", 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("staleness", "writers"), [(1, [0, 0, 1, 2, 3]), (2, [0, 0, 0, 1, 2]), (8, [0] * 5)])
def test_policy_i_minus_s_writes_rollout_i(work: Work, staleness: int, writers: list[int]):
    work.run(configured(5, staleness))
    assert work.of("rollout") == [("rollout", number, writer) for number, writer in enumerate(writers)]
    assert work.of("update", "last update") == [
        *(("update", number, number) for number in range(4)),
        ("last update", 4, 4),
    ]
    assert work.of("evaluation") == [("evaluation", 0, 0), ("evaluation", 5, 5)]


def test_a_rollout_goes_on_beside_the_update_before_it(work: Work):
    """Each waits for the other to begin: in turns, neither would end."""
    work.waits = {("update", 0): ("rollout", 1), ("rollout", 1): ("update", 0)}
    work.run(configured(2, 1))
    assert len(work.of("rollout")) == 2


def test_an_evaluation_goes_on_beside_an_update_and_behind_the_rollout(work: Work):
    work.waits = {("update", 0): ("evaluation", 0), ("evaluation", 0): ("update", 0)}
    work.run(configured(3, 1, interval=1))
    generated = [each[:2] for each in work.of("rollout", "evaluation")]
    assert generated == [
        ("rollout", 0), ("rollout", 1), ("evaluation", 0), ("rollout", 2), ("evaluation", 1), ("evaluation", 2),
        ("evaluation", 3),
    ]  # fmt: skip


def test_a_failed_update_stops_what_is_generated(work: Work, monkeypatch: pytest.MonkeyPatch):
    stopped = threading.Event()

    def fail(*_: Any, **__: Any) -> CheckpointRef:
        raise ValueError("the update failed")

    def collect(*arguments: Any) -> TrajectoryBatchRef:
        if arguments[3] == 1:
            assert stopped.wait(WITHIN_S)
            raise RuntimeError("its worker was killed")
        return TrajectoryBatchRef(uri="/b", digest="b", run_id="r", iteration=0, trajectories=1, turns=1)

    class Run:
        config = configured(3, 1)

        def stop_stages(self) -> None:
            stopped.set()

    monkeypatch.setattr(lanes, "update_policy", fail)
    monkeypatch.setattr(lanes, "collect_trajectories", collect)
    with pytest.raises(ValueError, match="the update failed"):
        lanes.run_iterations(Run(), PROBLEMS, FIRST)  # type: ignore[arg-type]
    assert stopped.is_set()


def test_no_iterations_are_one_evaluation(work: Work):
    assert work.run(configured(0, 1)) == FIRST
    assert work.done == [("evaluation", 0, 0)]
