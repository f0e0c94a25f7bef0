"""Episodes end where they should, and no fault of engine or judge loses, repeats or rewards a turn."""

import asyncio
import itertools
import logging
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.verdict import Status
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, HorizonConfig, RolloutConfig, SamplingConfig
from tasks.rollout.episode import EpisodeLog, RolloutContext, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop
from tasks.rollout.episode_tasks import turn_limit
from tasks.rollout.judge_client import JudgeClient
from tasks.trajectories.reader import read_turns
from tasks.trajectories.schema import Termination, Trajectory
from tasks.trajectories.writer import write_trajectories


def play(
    simulation: Any,
    tokenizer: Any,
    engine: Any,
    judge: Any,
    problems: int = 10,
    samples: int = 4,
    episode: EpisodeConfig | None = None,
    patience_s: float = 0.05,
    max_new_tokens: int = 64,
    config: RolloutConfig | None = None,
    logs: Sequence[EpisodeLog] = (),
) -> tuple[list[Trajectory], EpisodeLoop]:
    episode = episode or EpisodeConfig(prompt="source", feedback="brief")
    context = RolloutContext(
        run_id="run",
        policy_digest="digest",
        tokenizer=tokenizer,
        episode=episode,
        sampling=SamplingConfig(max_new_tokens=max_new_tokens),
        backend="triton",
    )
    episode_loop = EpisodeLoop(
        context, engine, JudgeClient(judge, simulation.reward_on, patience_s), logs=logs, config=config
    )
    plans = plan_episodes(simulation.problem_rows(problems), Split.TRAIN, problems, samples, iteration=1, seed=5)
    return asyncio.run(episode_loop.run(plans)), episode_loop


def comparable(trajectories: list[Trajectory]) -> dict[str, Any]:
    return {
        trajectory.trajectory_id: [
            (turn.prompt_token_ids, turn.response_token_ids, turn.verdict, turn.reward) for turn in trajectory.turns
        ]
        for trajectory in trajectories
    }


def check(trajectories: list[Trajectory], episode: EpisodeConfig, expected: int) -> None:
    """Invariants of every trajectory, whatever failed."""
    ids = [trajectory.trajectory_id for trajectory in trajectories]
    assert len(set(ids)) == len(ids) == expected
    for trajectory in trajectories:
        turns = trajectory.turns
        assert [turn.turn_index for turn in turns] == list(range(len(turns)))
        assert 1 <= len(turns) <= episode.max_turns
        rewards = [turn.reward for turn in turns]
        faults = [turn.verdict.status is Status.INFRASTRUCTURE_ERROR for turn in turns]
        assert [reward is None for reward in rewards] == faults
        assert not any(faults[:-1]), "a fault ends its episode"
        assert faults[-1] == (trajectory.termination is Termination.INFRASTRUCTURE_ERROR)
        for turn, following in itertools.pairwise(turns):
            begin = (*turn.prompt_token_ids, *turn.response_token_ids)
            assert following.prompt_token_ids[: len(begin)] == begin
            assert following.prompt_extends_previous
        for turn in turns:
            assert len(turn.response_token_ids) == len(turn.response_logprobs)
        known = [reward for reward in rewards if reward is not None]
        successes = [reward >= episode.success_reward for reward in known]
        assert not any(successes[:-1])
        if trajectory.termination is Termination.SUCCESS:
            assert turns[-1].verdict.correct
            assert successes[-1]
        if trajectory.termination is Termination.REPEATED_FAILURE:
            assert known[-episode.max_zero_turns :] == [0.0] * episode.max_zero_turns
        if trajectory.termination is Termination.TURN_LIMIT:
            assert len(turns) == episode.max_turns


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_episodes_with_faults_lose_and_repeat_no_turn(simulation: Any, small_tokenizer: Any, count: int) -> None:
    episode = EpisodeConfig(prompt="source", feedback="brief", success_reward=1.5)
    engine = simulation.FaultyEngine(small_tokenizer, fault_rate=0.3)
    judge = simulation.FaultyJudge(fault_rate=0.3)
    told = Told()
    trajectories, episode_loop = play(
        simulation, small_tokenizer, engine, judge, count // 8, samples=8, episode=episode, logs=[told]
    )
    check(trajectories, episode, expected=count)
    ends = Counter(trajectory.termination for trajectory in trajectories)
    assert (
        min(ends[end] for end in set(Termination) - {Termination.CONTEXT_LIMIT, Termination.AGENT_STOPPED}) > count / 50
    ), ends
    assert episode_loop.counts.finished == episode_loop.counts.planned == count
    assert episode_loop.counts.judging == 0
    assert episode_loop.counts.turns == sum(len(trajectory.turns) for trajectory in trajectories)
    # Whoever listens hears of each turn and each trajectory once.
    played = {(each.trajectory_id, turn.turn_index) for each in trajectories for turn in each.turns}
    assert set(told.turns) == played
    assert set(told.trajectories) == {trajectory.trajectory_id for trajectory in trajectories}
    assert set(told.turns.values()) == set(told.trajectories.values()) == {1}
    # Nor does the table lose or repeat one.
    with tempfile.TemporaryDirectory() as folder:
        stored = read_turns(write_trajectories(trajectories, 0.4, Path(folder) / "batch"))
        assert set(stored.select("trajectory_id", "turn_index").iter_rows()) == played
        assert len(stored) == len(played)
    # What no fault touched is what it would have been without any.
    clean, _ = play(
        simulation,
        small_tokenizer,
        simulation.FaultyEngine(small_tokenizer),
        simulation.FaultyJudge(),
        problems=count // 8,
        samples=8,
        episode=episode,
    )
    expected = comparable(clean)
    for name, turns in comparable(trajectories).items():
        untouched = [turn for turn in turns if turn[3] is not None]
        assert untouched == expected[name][: len(untouched)]


class Told:
    """Counts what is logged."""

    def __init__(self) -> None:
        self.turns: Counter[tuple[str, int]] = Counter()
        self.trajectories: Counter[str] = Counter()

    def log_turn(self, problem_id: str, messages: Any, turn: Any, details: dict[str, Any]) -> None:
        self.turns[details["trajectory_id"], turn.turn_index] += 1

    def log_trajectory(self, trajectory: Trajectory, messages: Any, gamma: float) -> None:
        self.trajectories[trajectory.trajectory_id] += 1


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    engine_faults=st.floats(0, 1),
    judge_faults=st.floats(0, 1),
    max_turns=st.integers(1, 4),
    max_zero=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_any_mix_of_faults(
    simulation: Any,
    small_tokenizer: Any,
    engine_faults: float,
    judge_faults: float,
    max_turns: int,
    max_zero: int,
    seed: int,
) -> None:
    episode = EpisodeConfig(prompt="source", feedback="brief", max_turns=max_turns, max_zero_turns=max_zero)
    engine = simulation.FaultyEngine(small_tokenizer, engine_faults, seed)
    trajectories, _ = play(
        simulation, small_tokenizer, engine, simulation.FaultyJudge(judge_faults, seed), 6, 3, episode, 0.01
    )
    check(trajectories, episode, expected=18)


def test_the_same_plan_gives_the_same_tokens(simulation: Any, small_tokenizer: Any) -> None:
    first, _ = play(
        simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer, seed=1), simulation.FaultyJudge()
    )
    second, _ = play(
        simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer, seed=2), simulation.FaultyJudge()
    )
    assert comparable(first) == comparable(second)


def test_every_turn_has_its_own_seed(simulation: Any, small_tokenizer: Any) -> None:
    engine = simulation.FaultyEngine(small_tokenizer)
    play(simulation, small_tokenizer, engine, simulation.FaultyJudge())
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)


def test_a_fault_is_judged_once_more(simulation: Any, small_tokenizer: Any) -> None:
    class Recovers(simulation.FaultyJudge):
        async def evaluate_async(self, problem: Any, kernel_source: str) -> Any:
            self.calls += 1
            return simulation.FAULT if self.calls % 2 else simulation.verdict_on(kernel_source)

    judge = Recovers()
    episode = EpisodeConfig(task="kernelbench", prompt="source", feedback="brief")
    trajectories, _ = play(simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer), judge, 1, 8, episode)
    assert all(trajectory.turns[-1].reward is not None for trajectory in trajectories)


def test_single_turn_is_the_same_path(simulation: Any, small_tokenizer: Any) -> None:
    episode = EpisodeConfig(task="kernelbench", prompt="source", feedback="brief", max_turns=3)
    trajectories, _ = play(
        simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer), simulation.FaultyJudge(), episode=episode
    )
    assert {len(trajectory.turns) for trajectory in trajectories} == {1}
    assert {trajectory.termination for trajectory in trajectories} <= {Termination.SUCCESS, Termination.TURN_LIMIT}


def test_the_context_ends_an_episode_before_a_turn_that_would_be_cut(simulation: Any, small_tokenizer: Any) -> None:
    engine = simulation.FaultyEngine(small_tokenizer, context_tokens=130)
    trajectories, _ = play(simulation, small_tokenizer, engine, simulation.FaultyJudge())
    assert Termination.CONTEXT_LIMIT in {trajectory.termination for trajectory in trajectories}
    assert all(len(request.prompt_token_ids) + 64 <= 130 for request in engine.requests)


def test_problems_that_leave_no_room_are_left_out_and_none_left_is_an_error(
    simulation: Any, small_tokenizer: Any
) -> None:
    probe = simulation.FaultyEngine(small_tokenizer)
    play(simulation, small_tokenizer, probe, simulation.FaultyJudge())
    shortest, *_, longest = sorted({len(r.prompt_token_ids) for r in probe.requests if "turn 1" in r.name})
    engine = simulation.FaultyEngine(small_tokenizer, context_tokens=longest - 1 + 64)
    trajectories, episode_loop = play(simulation, small_tokenizer, engine, simulation.FaultyJudge())
    assert episode_loop.counts.left_out == 40 - len(trajectories) > 0
    with pytest.raises(InputError, match="max_new_tokens"):
        play(
            simulation,
            small_tokenizer,
            simulation.FaultyEngine(small_tokenizer, context_tokens=shortest + 63),
            simulation.FaultyJudge(),
        )


def test_an_engine_that_is_gone_stops_the_rollout_with_its_own_error(simulation: Any, small_tokenizer: Any) -> None:
    class Gone(simulation.FaultyEngine):
        async def generate(self, requests: Any, sampling: Any) -> Any:
            yield 0, self.respond(requests[0])
            raise InfrastructureError("out of memory")

    with pytest.raises(InfrastructureError, match="out of memory"):
        play(simulation, small_tokenizer, Gone(small_tokenizer), simulation.FaultyJudge())


def test_judging_overlaps_generation(simulation: Any, small_tokenizer: Any) -> None:
    """A response is judged while others of its batch are still being written."""
    judged_during_generation = 0

    class Slow(simulation.FaultyEngine):
        writing = 0

        async def generate(self, requests: Any, sampling: Any) -> Any:
            Slow.writing += 1
            async for item in super().generate(requests, sampling):
                yield item
                await asyncio.sleep(0.001)
            Slow.writing -= 1

    class Watching(simulation.FaultyJudge):
        async def evaluate_async(self, problem: Any, kernel_source: str) -> Any:
            nonlocal judged_during_generation
            verdict = await super().evaluate_async(problem, kernel_source)
            judged_during_generation += Slow.writing > 0
            return verdict

    judge = Watching()
    play(simulation, small_tokenizer, Slow(small_tokenizer), judge)
    assert judged_during_generation > 0.8 * judge.calls


def test_a_judged_sample_goes_on_while_others_wait(simulation: Any, small_tokenizer: Any) -> None:
    """On an engine that batches continuously, each sample re-enters by itself: one plays all its turns during another's first."""
    last_turn_asked = asyncio.Event()

    class Continuous(simulation.FaultyEngine):
        cohort_size = 1

        async def generate(self, requests: Any, sampling: Any) -> Any:
            (request,) = requests
            if request.name == "train-0001-p0-000 turn 1":
                await last_turn_asked.wait()
            if request.name == "train-0001-p0-001 turn 3":
                last_turn_asked.set()
            yield 0, self.respond(request)

    episode = EpisodeConfig(prompt="source", feedback="brief", success_reward=9, max_zero_turns=9)
    config = RolloutConfig(generation_patience_s=60.0)
    trajectories, _ = play(
        simulation, small_tokenizer, Continuous(small_tokenizer), simulation.FaultyJudge(), 1, 2, episode,
        patience_s=60.0, config=config,
    )  # fmt: skip
    check(trajectories, episode, expected=2)
    assert {each.termination for each in trajectories} == {Termination.TURN_LIMIT}, "nobody waited in vain"


def test_a_rollout_with_faults_in_most_episodes_has_failed(simulation: Any, small_tokenizer: Any) -> None:
    _, episode_loop = play(
        simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer), simulation.FaultyJudge(1.0, 0), 4, 2
    )
    with pytest.raises(InfrastructureError, match=r"ended \d of 8 episodes, more than 50%; the last one: "):
        episode_loop.counts.check_faults()


def test_one_cohort_is_judged_while_another_is_written(simulation: Any, small_tokenizer: Any) -> None:
    """On an engine of static batches: no verdict on the first cohort comes before the second one is generated."""
    second_cohort_asked = asyncio.Event()

    class Static(simulation.FaultyEngine):
        calls = 0

        async def generate(self, requests: Any, sampling: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                second_cohort_asked.set()
            async for item in super().generate(requests, sampling):
                yield item

    class Patient(simulation.FaultyJudge):
        async def evaluate_async(self, problem: Any, kernel_source: str) -> Any:
            await second_cohort_asked.wait()
            return await super().evaluate_async(problem, kernel_source)

    trajectories, episode_loop = play(
        simulation, small_tokenizer, Static(small_tokenizer), Patient(), 16, 8, patience_s=60.0,
        config=RolloutConfig(generation_patience_s=60.0),
    )  # fmt: skip
    assert episode_loop.counts.faults == 0
    assert len(trajectories) == 128


class Hanging:
    """Never answers some requests: on the first attempt, or on all."""

    def __init__(self, inner: Any, silent: Any) -> None:
        self.inner = inner
        self.silent = silent
        self.attempts: Counter[str] = Counter()
        self.cohort_size, self.context_tokens = inner.cohort_size, inner.context_tokens
        self.closed = 0

    async def generate(self, requests: Any, sampling: Any) -> Any:
        answered = []
        for index, request in enumerate(requests):
            self.attempts[request.name] += 1
            if not self.silent(request.name, self.attempts[request.name]):
                answered.append(index)
        try:
            for index in answered:
                await asyncio.sleep(0)
                yield index, self.inner.respond(requests[index])
            if len(answered) < len(requests):
                await asyncio.sleep(3600)
        finally:
            self.closed += 1


def test_an_engine_that_hangs_is_asked_once_more_and_then_given_up(
    simulation: Any, small_tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    episode = EpisodeConfig(task="kernelbench", prompt="source", feedback="brief")

    def silent(name: str, attempt: int) -> bool:
        return "p0-000 " in name or ("p1-001 " in name and attempt == 1)

    engine = Hanging(simulation.FaultyEngine(small_tokenizer), silent)
    started = time.perf_counter()
    with caplog.at_level(logging.WARNING, "kernelmill.rollout"):
        trajectories, episode_loop = play(
            simulation, small_tokenizer, engine, simulation.FaultyJudge(), 4, 2, episode,
            config=RolloutConfig(generation_patience_s=1.0, watch_after_s=0.08),
        )  # fmt: skip
    assert time.perf_counter() - started < 60
    check(trajectories, episode.model_copy(update={"max_turns": 1}), expected=8)
    given_up = [each for each in trajectories if each.termination is Termination.INFRASTRUCTURE_ERROR]
    assert [each.trajectory_id for each in given_up] == ["train-0001-p0-000"]
    assert given_up[0].turns[0].verdict.error_category == "engine_fault"
    assert given_up[0].turns[0].reward is None
    assert episode_loop.counts.faults == 1
    episode_loop.counts.check_faults()
    assert max(engine.attempts.values()) == 2
    assert engine.closed == 2, "an abandoned stream is told"
    # The log names sample, turn and phase, while it waits and when it acts.
    text = caplog.text
    assert re.search(r"still waiting: .*train-0001-p0-000 turn 1: generation for \d+ s", text)
    assert "2 without an answer, asked for once more: " in text
    assert "1 without an answer, given up: train-0001-p0-000 turn 1" in text


def test_a_judge_that_hangs_is_named_asked_once_more_and_given_up(
    simulation: Any, small_tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Silent(simulation.FaultyJudge):
        async def evaluate_async(self, problem: Any, kernel_source: str) -> Any:
            self.calls += 1
            await asyncio.sleep(3600)

    judge = Silent()
    episode = EpisodeConfig(task="kernelbench", prompt="source", feedback="brief")
    with caplog.at_level(logging.WARNING, "kernelmill.rollout"):
        trajectories, _ = play(
            simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer), judge, 1, 8, episode,
            patience_s=0.2, config=RolloutConfig(watch_after_s=0.05),
        )  # fmt: skip
    silent = [each for each in trajectories if each.turns[0].reward is None]
    assert silent
    assert judge.calls == 2 * len(silent)
    assert {each.turns[0].verdict.error_category for each in silent} == {"judge_silent"}
    assert re.search(r"still waiting: train-0001-p0-\d+ turn 1: judgement for", caplog.text)
    assert re.search(r"p0-\d+ turn 1: judgement: p0: no verdict in 0.2 s; asked once more", caplog.text)
    assert re.search(r"p0-\d+ turn 1: judgement: p0: no verdict in 0.2 s; given up", caplog.text)


def test_an_extended_horizon_is_played(simulation: Any, small_tokenizer: Any) -> None:
    horizon = HorizonConfig(level_turns=(1, 2), extension=2)
    episode = EpisodeConfig(prompt="source", feedback="brief", success_reward=9, max_zero_turns=9, horizon=horizon)
    engine = simulation.FaultyEngine(small_tokenizer)
    trajectories, _ = play(simulation, small_tokenizer, engine, simulation.FaultyJudge(), 20, 8, episode)
    lengths = {(each.level, len(each.turns)) for each in trajectories}
    assert lengths == {(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4)}
    for trajectory in trajectories:
        verdicts = [turn.verdict for turn in trajectory.turns]
        assert turn_limit(verdicts, trajectory.level, episode) == len(verdicts), "as the stored verdicts explain"


def test_conversations_share_their_first_answer_and_go_on_apart(simulation: Any, small_tokenizer: Any) -> None:
    episode = EpisodeConfig(prompt="source", feedback="brief", max_turns=3)
    config = RolloutConfig(samples_per_problem=6, samples_per_kernel=3)

    def played(config: RolloutConfig) -> tuple[list[Trajectory], Any]:
        engine = simulation.FaultyEngine(small_tokenizer)
        found, _ = play(
            simulation, small_tokenizer, engine, simulation.FaultyJudge(), 25, 6, episode, patience_s=5.0, config=config
        )
        return found, engine

    together, engine = played(config)
    apart, _ = played(RolloutConfig(samples_per_problem=6))
    check(together, episode, 25 * 6)
    first = {(each.group_id, each.sample_index): each.turns[0] for each in together}
    for (group, sample), turn in first.items():
        assert turn is first[group, sample // 3 * 3], "one answer, one verdict, one time"
    assert len({id(turn) for turn in first.values()}) == 25 * 2
    asked = Counter(request.name.rpartition(" turn ")[2] for request in engine.requests)
    assert asked["1"] == 25 * 2
    assert asked["2"] == sum(len(each.turns) > 1 for each in together) > 25 * 2
    # Whoever is asked gives the answer that it gives without sharing.
    alone = {each.trajectory_id: each.turns for each in apart}
    leaders = [each for each in together if each.sample_index % 3 == 0]
    assert [each.turns[0].response_token_ids for each in leaders] == [
        alone[each.trajectory_id][0].response_token_ids for each in leaders
    ]
    seconds = {each.turns[1].response_token_ids for each in together if len(each.turns) > 1}
    assert len(seconds) > 10
