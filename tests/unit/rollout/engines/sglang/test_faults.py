"""Whatever servers do, no turn is lost, played twice, or rewarded without a response."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.verdict import Status
from tasks.rollout.config import EpisodeConfig, SamplingConfig, SglangConfig
from tasks.rollout.engines import FinishReason, GenerationRequest
from tasks.rollout.engines.sglang.engine import SglangEngine
from tasks.rollout.engines.sglang.pool import Member
from tasks.rollout.engines.sglang.served_policy import ServedPolicy
from tasks.rollout.episode import RolloutContext, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop
from tasks.rollout.judge_client import JudgeClient
from tasks.trajectories.schema import Trajectory

CONTEXT = 4096
EPISODE = EpisodeConfig(prompt="source", feedback="brief")
PROMPTS = 24


class SteadyWeights:
    """In place of the canary: these servers answer from a script, there is no checkpoint to compare with."""

    context_tokens = CONTEXT

    def __init__(self, policy: ServedPolicy) -> None:
        self.policy = policy

    async def prepare(self, policy: Any, tokenizer: Any) -> ServedPolicy:
        return self.policy

    async def sync(self, members: Sequence[Member], policy: Any, patience_s: float = 0) -> dict[Member, None]:
        return dict.fromkeys(members)

    def close(self) -> None:
        pass


def play(
    simulation: Any, doubles: ModuleType, tokenizer: Any, faults: list[dict[str, float]], problems: int, **settings: Any
):
    """Play episodes on scripted servers with these faults, one set for each server."""
    script = simulation.FaultyEngine(tokenizer)

    def respond(prompt: list[int], seed: int) -> list[int]:
        return list(script.respond(GenerationRequest("", tuple(prompt), seed)).token_ids)

    config = SglangConfig(backoff_s=0.001, request_timeout_s=0.5, start_timeout_s=20, **settings)
    policy = ServedPolicy(Path(), "default", Path(), Path(), "default", None, (tokenizer.eos_token_id,), (), CONTEXT)

    async def scenario(urls: list[str]) -> tuple[list[Trajectory], EpisodeLoop]:
        weights: Any = SteadyWeights(policy)
        engine = SglangEngine([Member(url, None, config.concurrency) for url in urls], config, weights)
        await engine.serve(None, tokenizer)  # pyright: ignore[reportArgumentType]
        context = RolloutContext("run", "digest", tokenizer, EPISODE, SamplingConfig(max_new_tokens=64), "triton")
        episode_loop = EpisodeLoop(context, engine, JudgeClient(simulation.FaultyJudge(), simulation.reward_on, 5))
        try:
            rows = simulation.problem_rows(problems)
            return await episode_loop.run(
                plan_episodes(rows, rows[0].split, problems, 4, iteration=1, seed=5)
            ), episode_loop
        finally:
            await engine.close()

    running = [
        doubles.RunningDouble(
            doubles.Double(doubles.ScriptedPolicy(respond, CONTEXT), "", faults=doubles.Faults(**fault))
        )
        for fault in faults
    ]
    try:
        for server in running:
            server.__enter__()
        return asyncio.run(scenario([server.url for server in running]))
    finally:
        for server in running:
            server.stop()


def check(trajectories: list[Trajectory], expected: int) -> None:
    ids = [trajectory.trajectory_id for trajectory in trajectories]
    assert len(set(ids)) == len(ids) == expected
    for trajectory in trajectories:
        assert [turn.turn_index for turn in trajectory.turns] == list(range(len(trajectory.turns)))
        for turn in trajectory.turns:
            fault = turn.verdict.status is Status.INFRASTRUCTURE_ERROR
            assert fault == (turn.reward is None) == (turn.finish_reason == FinishReason.FAULT.value)
            assert len(turn.response_token_ids) == len(turn.response_logprobs)
            assert fault == (not turn.response_token_ids)


def comparable(trajectories: list[Trajectory]) -> dict[str, list[Any]]:
    return {
        t.trajectory_id: [(turn.prompt_token_ids, turn.response_token_ids, turn.reward) for turn in t.turns]
        for t in trajectories
    }


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rate=st.floats(0, 0.6), shares=st.lists(st.floats(0.01, 1), min_size=5, max_size=5), seed=st.integers(0, 99))
def test_any_mix_of_faults(
    simulation: Any, doubles: ModuleType, small_tokenizer: Any, rate: float, shares: list[float], seed: int
) -> None:
    names = ("error", "hang", "drop", "abort", "nonsense")
    # A hang costs its time limit: few of them.
    shares[1] /= 20
    fault = {name: rate * share / sum(shares) for name, share in zip(names, shares, strict=True)} | {"seed": seed}
    trajectories, _ = play(simulation, doubles, small_tokenizer, [fault, fault | {"seed": seed + 1}], problems=8)
    check(trajectories, 32)


@pytest.mark.long
def test_faults_change_no_token_of_a_long_run(simulation: Any, doubles: ModuleType, small_tokenizer: Any) -> None:
    """Every third attempt fails, one way or another; what comes out is what three sound servers give."""
    faults = {"error": 0.15, "hang": 0.002, "drop": 0.08, "abort": 0.05, "nonsense": 0.05}
    faulty, episode_loop = play(
        simulation, doubles, small_tokenizer, [faults | {"seed": n} for n in range(3)], PROMPTS, attempts=12
    )
    check(faulty, 4 * PROMPTS)
    sound, _ = play(simulation, doubles, small_tokenizer, [{}] * 3, PROMPTS)
    assert comparable(faulty) == comparable(sound)
    assert episode_loop.counts.faults == 0
