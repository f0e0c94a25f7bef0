"""The rejection-sampling control: as many judged kernels as RL had, in one or more rounds."""

from types import SimpleNamespace
from typing import Any

import pytest

from flows import rejection_control as control
from flows.run.state import RejectionState, RunState
from flows.settings.configuration import RunConfig
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.validation.task import quarantine_folder

PROBLEMS = ProblemSetRef(uri="/p", digest="p", train=800, heldout=1)


def batch(conversations: int, turns: int) -> TrajectoryBatchRef:
    return TrajectoryBatchRef(uri="/b", digest="b", run_id="r", iteration=0, trajectories=conversations, turns=turns)


class SmallRun(SimpleNamespace):
    """The part of a run that the control reads and notes."""

    def record_rejection(self, noted: RejectionState) -> None:
        self.state = self.state.model_copy(update={"rejection": noted})


@pytest.fixture
def run() -> SmallRun:
    first = CheckpointRef(uri="/sft", digest="sft")
    state = RunState(
        policies={0: first, 1: first, 2: first},
        batches={0: batch(100, 250), 1: batch(100, 150)},  # RL's conversations become shorter
    )
    rollout = {"samples_per_problem": 10, "problems_per_iteration": 10}
    return SmallRun(
        config=RunConfig.model_validate({"rollout": rollout}),
        workspace=None,
        judge=None,
        rollout_judge=None,
        state=state,
    )


@pytest.fixture
def named() -> list[str]:
    """Names of the pairs that were trained on."""
    return []


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, named: list[str]) -> list[tuple[str, int, int]]:
    """Return who held how many conversations, and by which seed, instead of holding them."""
    found: list[tuple[str, int, int]] = []

    def play(workspace: Any, policy: CheckpointRef, problems: Any, rollout: Any, judge: Any, seed: int):
        conversations = rollout.problems_per_iteration * rollout.samples_per_problem
        found.append((policy.digest, conversations, seed))
        return batch(conversations, conversations * 5 // 2)

    monkeypatch.setattr(control, "play_for_rejection", play)
    pairs = SftDataRef(uri="/s", digest="s", pairs=1, verified=True)
    monkeypatch.setattr(control, "make_rejection_pairs", lambda *_: pairs)
    after = {"sft": "once", "once": "twice"}

    def train(run: Any, policy: CheckpointRef, pairs: Any, name: str, *_: Any) -> CheckpointRef:
        named.append(name)
        return CheckpointRef(uri="/x", digest=after[policy.digest])

    monkeypatch.setattr(control, "trained_on", train)
    judged = (EvaluationRef(uri="/e", digest="e", policy_digest="x"), None)
    monkeypatch.setattr(control, "heldout_evaluations", lambda *_, **__: judged)
    return found


def test_as_many_kernels_are_judged_as_rl_had(run: SmallRun, played: list[tuple[str, int, int]]):
    control.evaluate_rejection_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    assert [conversations for _, conversations, _ in played] == [160]  # of 2.5 turns each, as in the first batch
    assert (run.state.rejection.judged, run.state.rejection.judged_by_rl) == (400, 400)
    assert run.state.rejection.policy.digest == "once"


def test_a_second_round_shares_the_kernels_and_begins_where_the_first_ended(
    run: SmallRun, played: list[tuple[str, int, int]], named: list[str]
):
    run.config = run.config.model_copy(update={"rejection_rounds": 2})
    control.evaluate_rejection_control(run, PROBLEMS)  # pyright: ignore[reportArgumentType]
    (first, few, one), (second, as_few, another) = played
    assert (first, second) == ("sft", "once")
    assert few == as_few == 80
    assert one != another, "other problems are drawn"
    assert (run.state.rejection.judged, run.state.rejection.policy.digest) == (400, "twice")
    # The check of the pairs has a folder for those of each round that it puts aside.
    assert [quarantine_folder(name) for name in named] == ["rejection", "rejection-round-2"]
