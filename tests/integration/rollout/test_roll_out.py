"""A policy that can write kernels, the embedded engine and the real judge, in one process."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels_eval import Judge
from kernels_eval.config import JudgeConfig
from kernels_eval.rewards import reward_of
from tasks.models.policy import load_policy
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import read_manifest
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, RolloutConfig, SamplingConfig
from tasks.rollout.engines import open_engine
from tasks.rollout.episode_loop import RolloutCounts
from tasks.rollout.worker import RolloutRequest, roll_out
from tasks.trajectories.reader import read_trajectories, read_turns
from tasks.trajectories.schema import verdict_from_row

pytestmark = pytest.mark.long

JUDGE = JudgeConfig(workers=2, compile="never", trials=1)
CONFIG = RolloutConfig(
    problems_per_iteration=5,
    samples_per_problem=6,
    batch_size=16,
    threads=1,
    sampling=SamplingConfig(max_new_tokens=64),
    episode=EpisodeConfig(prompt="source", feedback="brief", success_reward=10),
)


async def play(request: RolloutRequest) -> TrajectoryBatchRef:
    tokenizer = load_tokenizer(request.policy.path)
    engine = open_engine(request.policy, tokenizer, request.config)
    try:
        with Judge(request.judge) as judge:
            return await roll_out(request, engine, tokenizer, judge, RolloutCounts())
    finally:
        await engine.close()


@pytest.fixture(scope="module")
def batches(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path_factory: pytest.TempPathFactory
) -> list[TrajectoryBatchRef]:
    """The same rollout, played twice."""
    folder: Path = tmp_path_factory.mktemp("batches")
    return [
        asyncio.run(
            play(
                RolloutRequest(
                    policy=policy, problems=problem_set, split=Split.TRAIN, config=CONFIG, judge=JUDGE, run_id="run",
                    iteration=1, seed=4, destination=folder / name,
                )
            )
        )
        for name in ("first", "second")
    ]  # fmt: skip


def test_the_same_rollout_gives_the_same_bits(batches: list[TrajectoryBatchRef]) -> None:
    compared = ["trajectory_id", "turn_index", "prompt_token_ids", "response_token_ids", "response_logprobs", "reward"]
    first, second = (read_turns(batch).select(compared) for batch in batches)
    assert first.equals(second)


def test_all_that_was_planned_is_there(batches: list[TrajectoryBatchRef]) -> None:
    trajectories, turns = read_trajectories(batches[0]), read_turns(batches[0])
    assert len(trajectories) == 30
    assert trajectories["turns"].sum() == len(turns)
    assert set(turns["policy_digest"]) == set(trajectories["policy_digest"])
    assert (read_manifest(batches[0].path) or {})["metadata"]["generated_tokens"] == turns[
        "response_token_ids"
    ].list.len().sum()


def test_rewards_follow_from_the_stored_verdicts(batches: list[TrajectoryBatchRef]) -> None:
    turns = read_turns(batches[0])
    statuses = set()
    for row in turns.rows(named=True):
        verdict = verdict_from_row(row["verdict"])
        statuses.add(verdict.status.value)
        assert row["reward"] == reward_of("kernelbench", verdict)
    assert {"correct", "incorrect", "compile_error"} <= statuses, "the policy shows them all"


def test_every_recorded_log_probability_is_the_recomputed_one(
    batches: list[TrajectoryBatchRef], policy: CheckpointRef
) -> None:
    """For each token of a run of up to three turns: what the update will compute as the old policy's."""
    model: Any = load_policy(policy.path).eval()
    turns = read_turns(batches[0])
    assert turns["turn_index"].max() == 2
    worst = 0.0
    for row in turns.rows(named=True):
        prompt, response = row["prompt_token_ids"], row["response_token_ids"]
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
        expected = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(response).unsqueeze(1))[:, 0]
        worst = max(worst, float((torch.tensor(row["response_logprobs"]) - expected).abs().max()))
    assert worst < 1e-5


def test_tokens_are_carried_from_turn_to_turn(batches: list[TrajectoryBatchRef]) -> None:
    turns = read_turns(batches[0])
    assert turns["prompt_extends_previous"].all()
    for _, episode in turns.group_by("trajectory_id"):
        rows = episode.sort("turn_index").rows(named=True)
        for row, following in itertools.pairwise(rows):
            begin = row["prompt_token_ids"] + row["response_token_ids"]
            assert following["prompt_token_ids"][: len(begin)] == begin
