"""Further problems are drawn until enough groups have variance; the same ones each time, and never more than is allowed."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.verdict import Status, Verdict
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import MANIFEST
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, RolloutConfig, SamplingConfig
from tasks.rollout.engines import Generation, GenerationRequest
from tasks.rollout.episode import plan_episodes
from tasks.rollout.episode_loop import RolloutCounts
from tasks.rollout.refill import Refill, RefillRecord, further_problems, refill_for, refill_record, useful_groups
from tasks.rollout.worker import RolloutRequest, roll_out
from tasks.trajectories.reader import read_turns
from tasks.trajectories.schema import Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories
from tasks.update.config import UpdateConfig
from tasks.update.dataset import read_samples

PROBLEMS = 30
CONFIG = RolloutConfig(
    problems_per_iteration=4,
    samples_per_problem=2,
    sampling=SamplingConfig(max_new_tokens=64),
    episode=EpisodeConfig(task="kernelbench", prompt="source", feedback="brief"),
)
SOURCE = (
    "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n        return x * {}.0\n"
    "def get_inputs():\n    return [torch.randn(64, 32)]\ndef get_init_inputs():\n    return []\n"
)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    folder = tmp_path_factory.mktemp("problems")
    rows = [{"problem_id": f"p{n:02d}", "source": SOURCE.format(n + 2), "split": "train"} for n in range(PROBLEMS)]
    rows.append({"problem_id": "held_out", "source": SOURCE.format(99), "split": "heldout"})
    file = folder / "problems.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    config = ProblemsConfig(source="jsonl", path=str(file), train=PROBLEMS, heldout=1, flag_trivial=False)
    return build_problem_set(config, folder / "set")


@pytest.fixture
def play(simulation: Any, small_tokenizer: Any, problems: ProblemSetRef, tmp_path: Path) -> Any:
    """A function that plays an iteration with a policy that answers at random, and publishes it."""

    def played(
        refill: Refill | None, name: str = "batch", config: RolloutConfig = CONFIG, engine: Any = None
    ) -> TrajectoryBatchRef:
        request = RolloutRequest(
            policy=CheckpointRef(uri="nowhere", digest="policy"), problems=problems, split=Split.TRAIN, config=config,
            judge=JudgeConfig(), run_id="run", iteration=3, seed=1, destination=tmp_path / name, refill=refill,
        )  # fmt: skip
        engine = engine or simulation.FaultyEngine(small_tokenizer)
        return asyncio.run(roll_out(request, engine, small_tokenizer, simulation.FaultyJudge(), RolloutCounts()))

    return played


def wanted(groups: int, problems: int = PROBLEMS, compares: Any = "turns") -> Refill:
    return Refill(groups=groups, problems=problems, compares=compares)


def record(batch: TrajectoryBatchRef) -> RefillRecord:
    found = refill_record(batch)
    assert found is not None
    return found


@pytest.mark.parametrize("advantage", ["turn_rloo", "grpo"])
def test_problems_are_drawn_until_the_update_has_its_groups(play: Any, problems: ProblemSetRef, advantage: Any) -> None:
    batch = play(wanted(8, compares=UpdateConfig(advantage=advantage).estimator.compares))
    found = record(batch)
    assert found.useful >= found.wanted == 8
    assert found.missing == 0
    assert found.rounds >= 1
    assert found.problems == CONFIG.problems_per_iteration + found.further
    turns = read_turns(batch)
    # The update comes to the same count, on the same data, and groups without variance are still there.
    samples = read_samples(batch, UpdateConfig(advantage=advantage, wanted_groups=8), 1000)
    assert samples.groups_used == found.useful
    assert samples.groups_missing == 0
    assert samples.groups_constant == found.problems - found.useful > 0
    # What was drawn is the beginning of the iteration's own order: a larger first draw would have played the same.
    rows = read_problems(problems, Split.TRAIN)
    order = plan_episodes(rows, Split.TRAIN, found.problems, 2, 3, 1)
    assert set(turns["trajectory_id"]) == {plan.trajectory_id for plan in order}


def test_without_wanted_groups_the_first_draw_is_all(play: Any) -> None:
    batch = play(None)
    assert refill_record(batch) is None
    assert batch.trajectories == 8
    assert set(read_turns(play(wanted(1), "enough"))["trajectory_id"]) == set(read_turns(batch)["trajectory_id"])


def test_it_ends_at_the_limit_and_says_so(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kernelmill.rollout"):
        limited, everything = record(play(wanted(25, 7), "limited")), record(play(wanted(1000), "everything"))
    assert (limited.problems, limited.further) == (7, 3)
    assert limited.missing == 25 - limited.useful > 0
    assert everything.problems == PROBLEMS
    said = [message for message in caplog.messages if "wanted groups" in message]
    assert said[0].endswith("after 7 problems, as many as update.most_problems allows")
    assert said[1].endswith("after 30 problems, all that there are")


def test_a_rollout_killed_in_a_later_draw_is_played_again_to_the_same_tokens(
    play: Any, simulation: Any, small_tokenizer: Any, tmp_path: Path
) -> None:
    class DyingEngine(simulation.FaultyEngine):
        calls = 0

        async def generate(
            self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
        ) -> AsyncIterator[tuple[int, Generation]]:
            self.calls += 1
            if self.calls == 2:
                raise InfrastructureError("the machine went away")
            async for answer in super().generate(requests, sampling):
                yield answer

    with pytest.raises(InfrastructureError, match="went away"):
        play(wanted(8), "killed", engine=DyingEngine(small_tokenizer))
    assert not (tmp_path / "killed").exists()
    columns = ["trajectory_id", "turn_index", "response_token_ids", "reward", "return"]
    again, straight = play(wanted(8), "killed"), play(wanted(8), "straight")
    assert read_turns(again).select(columns).equals(read_turns(straight).select(columns))
    assert record(again) == record(straight)


def refill_of(update: UpdateConfig) -> Refill | None:
    return refill_for(CONFIG, update.wanted_groups, update.most_problems, update.estimator.compares)


def test_settings_become_a_refill() -> None:
    update = UpdateConfig(wanted_groups=10)
    assert refill_of(UpdateConfig()) is None
    assert refill_of(update) == wanted(10, 4 * CONFIG.problems_per_iteration)
    assert refill_of(update.model_copy(update={"most_problems": 6})) == wanted(10, 6)
    # Estimators without a baseline train on every group.
    assert refill_of(update.model_copy(update={"advantage": "gae"})) is None


@given(goal=st.integers(1, 100), useful=st.integers(0, 99), played=st.integers(1, 100))
def test_at_least_one_problem_is_drawn_and_at_most_as_many_again(goal: int, useful: int, played: int) -> None:
    if useful < goal:
        assert 1 <= further_problems(goal, useful, played) <= played


def test_a_broken_record_is_named(play: Any) -> None:
    batch = play(wanted(1))
    manifest = batch.path / MANIFEST
    manifest.write_text(manifest.read_text().replace('"wanted": 1', '"wanted": "many"'))
    with pytest.raises(InputError, match=r"metadata.refill: not a refill's record"):
        refill_record(batch)


@pytest.mark.parametrize("credit", ["improvement", "counterfactual"])
def test_shared_first_answers_count_once_as_in_the_update(play: Any, credit: Any) -> None:
    episode = CONFIG.episode.model_copy(update={"task": "kernelbench_multiturn", "max_turns": 3})
    changes = {"samples_per_problem": 6, "samples_per_kernel": 3, "episode": episode}
    refill = Refill(groups=40, problems=PROBLEMS, compares="turns", credit=credit, credit_discount=0.9)
    batch = play(refill, config=CONFIG.model_copy(update=changes))
    turns = read_turns(batch)
    assert (
        turns.filter(turns["turn_index"] == 0).n_unique(["group_id", "created_at"]) < turns["trajectory_id"].n_unique()
    )
    settings = UpdateConfig(credit=credit, credit_discount=0.9, wanted_groups=40)
    assert read_samples(batch, settings, 1000).groups_used == record(batch).useful


def test_a_stop_counts_as_in_the_update(tmp_path: Path) -> None:
    """Of two conversations with equal rewards one ended by a stop, after which the tester has no turn."""

    def conversation(sample: int, termination: Termination) -> Trajectory:
        turns = tuple(
            Turn(
                turn_index=place, role=role, prompt_token_ids=(1, place), response_token_ids=(2,),
                response_logprobs=(-0.1,), prompt_extends_previous=not place, finish_reason="stop", response_text="",
                kernel_source="k", verdict=Verdict(status=Status.CORRECT, compiled=True, correct=True), reward=1.0,
                generation_s=0.0, evaluation_s=0.0, created_at=datetime(2026, 1, 1, tzinfo=UTC),
            )
            for place, role in enumerate(("generator", "optimizer"))
        )  # fmt: skip
        return Trajectory(
            run_id="run", iteration=0, policy_digest="p", problem_id="a", problem_digest="d", split="train", level=1,
            group_id="a", trajectory_id=f"a-{sample}", sample_index=sample, turns=turns, termination=termination,
        )  # fmt: skip

    both = [conversation(0, Termination.AGENT_STOPPED), conversation(1, Termination.TURN_LIMIT)]
    settings = UpdateConfig(credit="final_of_all_turns", credit_discount=0.9)
    refill = Refill(groups=1, problems=1, compares="turns", credit=settings.credit, credit_discount=0.9)
    samples = read_samples(write_trajectories(both, 0.4, tmp_path / "batch"), settings, 1000)
    assert samples.groups_used == useful_groups(both, 0.4, refill) == 2
    values = {(each.trajectory, each.group[1]): each.return_ for each in samples.samples}
    assert [values["a-0", turn] for turn in (0, 1)] == pytest.approx([0.867, 1.0])
    assert [values["a-1", turn] for turn in (0, 1)] == pytest.approx([0.8103, 0.93])
