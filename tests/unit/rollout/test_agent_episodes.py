"""Conversations of agents: each turn from its agent's engine and policy, and an end where an agent says so."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError, InputError
from tasks.agents.config import AgentConfig
from tasks.agents.team import publish_team
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import publish, published_digest
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.team import TeamEngine, TeamServer, open_together, team_engine
from tasks.rollout.episode import RolloutContext, authors_in, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop
from tasks.rollout.judge_client import JudgeClient
from tasks.trajectories.reader import load_trajectories, read_turns_file
from tasks.trajectories.schema import TURNS_FILE, Termination, Trajectory
from tasks.trajectories.writer import write_trajectories

AGENTS = {
    "generator": AgentConfig(turns="first", shown="problem"),
    "optimizer": AgentConfig(turns="later", shown="kernel", may_stop=True),
}


def policy_in(folder: Path, version: int = 3) -> CheckpointRef:
    with publish(folder) as partial:
        (partial / "config.json").write_text(folder.name)
    return CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=version)


def play(
    simulation: Any, tokenizer: Any, engine: Any, policy: CheckpointRef, episode: EpisodeConfig
) -> list[Trajectory]:
    context = RolloutContext(
        run_id="run",
        policy_digest=policy.digest,
        authors=authors_in(policy, episode.agents),
        tokenizer=tokenizer,
        episode=episode,
        sampling=SamplingConfig(max_new_tokens=64),
        backend="triton",
    )
    judge = JudgeClient(simulation.FaultyJudge(), simulation.reward_on, 5.0)
    plans = plan_episodes(simulation.problem_rows(40), Split.TRAIN, 40, 2, iteration=1, seed=5)
    return asyncio.run(EpisodeLoop(context, engine, judge).run(plans))


class Stopper:
    """Answers `stop` to every other request, by its seed; another engine answers the rest."""

    cohort_size = 48
    context_tokens = 4096

    def __init__(self, other: Any) -> None:
        self.other = other
        self.requests: list[GenerationRequest] = []

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        self.requests += requests
        ids = (*self.other.tokenizer("stop")["input_ids"], self.other.tokenizer.eos_token_id)
        for index, request in enumerate(requests):
            await asyncio.sleep(0)
            stop = Generation(ids, (-0.125,) * len(ids), FinishReason.STOP, 0.1)
            yield index, stop if request.seed % 2 else self.other.respond(request)

    async def close(self) -> None:
        pass


@pytest.fixture
def team(tmp_path: Path) -> CheckpointRef:
    return publish_team({name: policy_in(tmp_path / name) for name in AGENTS}, tmp_path / "team", 3)


def test_each_turn_is_its_agents(simulation: Any, small_tokenizer: Any, team: CheckpointRef, tmp_path: Path) -> None:
    engines = {"generator": simulation.FaultyEngine(small_tokenizer)}
    engines["optimizer"] = Stopper(engines["generator"].__class__(small_tokenizer))
    episode = EpisodeConfig(prompt="source", feedback="brief", agents=AGENTS, max_turns=4, success_reward=9)
    trajectories = play(simulation, small_tokenizer, TeamEngine(engines), team, episode)
    assert len(trajectories) == 80
    assert {request.agent for request in engines["generator"].requests} == {"generator"}
    assert {request.agent for request in engines["optimizer"].requests} == {"optimizer"}
    # Every first turn is the generator's and every later one the optimizer's, and the table says whose weights wrote it.
    written = write_trajectories(trajectories, 0.4, tmp_path / "batch")
    for row in read_turns_file(written.path / TURNS_FILE).iter_rows(named=True):
        expected = "generator" if row["turn_index"] == 0 else "optimizer"
        assert (row["role"], row["agent"], row["weight_version"]) == (expected, expected, 3)
        assert row["policy_digest"] == published_digest(tmp_path / expected)
    assert sorted(load_trajectories(written.path), key=lambda each: each.trajectory_id) == sorted(
        trajectories, key=lambda each: each.trajectory_id
    )


def test_a_stop_keeps_the_best_kernel_and_its_reward(
    simulation: Any, small_tokenizer: Any, team: CheckpointRef
) -> None:
    engine = TeamEngine(
        {
            "generator": simulation.FaultyEngine(small_tokenizer),
            "optimizer": Stopper(simulation.FaultyEngine(small_tokenizer)),
        }
    )
    episode = EpisodeConfig(
        prompt="source", feedback="brief", agents=AGENTS, max_turns=4, success_reward=9, max_zero_turns=4
    )
    trajectories = play(simulation, small_tokenizer, engine, team, episode)
    stopped = [each for each in trajectories if each.termination is Termination.AGENT_STOPPED]
    assert len(stopped) > 20
    for each in trajectories:
        *earlier, last = each.turns
        said_stop = last.response_text.startswith("stop")
        assert (each.termination is Termination.AGENT_STOPPED) is said_stop
        if said_stop:
            best = max(turn.reward or 0.0 for turn in earlier)
            assert last.reward == best
            kept = next(turn for turn in reversed(earlier) if turn.reward == best)
            assert (last.kernel_source, last.verdict) == (kept.kernel_source, kept.verdict)


def test_one_agent_with_default_settings_plays_as_without_agents(
    simulation: Any, small_tokenizer: Any, tmp_path: Path
) -> None:
    policy = policy_in(tmp_path / "policy")

    def played(agents: dict[str, AgentConfig]) -> list[Any]:
        episode = EpisodeConfig(prompt="source", feedback="brief", agents=agents)
        found = play(simulation, small_tokenizer, simulation.FaultyEngine(small_tokenizer), policy, episode)
        return [
            (
                each.trajectory_id,
                each.termination,
                turn.role,
                turn.prompt_token_ids,
                turn.response_token_ids,
                turn.reward,
            )
            for each in sorted(found, key=lambda each: each.trajectory_id)
            for turn in each.turns
        ]

    assert played({}) == played({"solver": AgentConfig()})


def test_a_failing_engine_fails_the_team(simulation: Any, small_tokenizer: Any) -> None:
    class Broken(Stopper):
        async def generate(self, requests: Any, sampling: Any) -> AsyncIterator[tuple[int, Generation]]:
            raise InfrastructureError("no server answers")
            yield

    healthy = simulation.FaultyEngine(small_tokenizer)
    engine = TeamEngine({"generator": healthy, "optimizer": Broken(healthy)})

    async def ask(agent: str) -> list[int]:
        requests = [GenerationRequest(name="x", prompt_token_ids=(1,), seed=1, agent=agent)]
        return [index async for index, _ in engine.generate(requests, SamplingConfig())]

    assert asyncio.run(ask("generator")) == [0]
    with pytest.raises(InfrastructureError, match="no server answers"):
        asyncio.run(ask("optimizer"))
    with pytest.raises(InputError, match="tester"):
        asyncio.run(ask("tester"))


def test_servers_change_their_policies_together(simulation: Any, small_tokenizer: Any, team: CheckpointRef) -> None:
    class Server(Stopper):
        served: CheckpointRef | None = None

        async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
            self.served = policy

    servers = {name: Server(simulation.FaultyEngine(small_tokenizer)) for name in AGENTS}
    engine = team_engine(servers)
    assert isinstance(engine, TeamServer)
    asyncio.run(engine.serve(team, small_tokenizer))
    assert {name: server.served.path.name for name, server in servers.items() if server.served} == {
        "generator": "generator",
        "optimizer": "optimizer",
    }
    mixed = team_engine({**servers, "optimizer": Stopper(simulation.FaultyEngine(small_tokenizer))})
    assert not isinstance(mixed, TeamServer)


def test_an_error_of_one_server_is_the_team_s(simulation: Any, small_tokenizer: Any, team: CheckpointRef) -> None:
    class Dead(Stopper):
        async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
            raise InfrastructureError("no SGLang server is left")

    engine = team_engine({name: Dead(simulation.FaultyEngine(small_tokenizer)) for name in AGENTS})
    assert isinstance(engine, TeamServer)
    with pytest.raises(InfrastructureError, match="no SGLang server is left"):  # as such: the stage is tried again
        asyncio.run(engine.serve(team, small_tokenizer))


def test_engines_of_a_team_open_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=20)

    def opening(number: int) -> Any:
        both.wait()
        return Closable(number)

    opened = open_together({"generator": lambda: opening(1), "optimizer": lambda: opening(2)})
    assert [(agent, engine.number) for agent, engine in opened.items()] == [("generator", 1), ("optimizer", 2)]  # type: ignore[attr-defined]


def test_engines_that_opened_are_closed_if_one_does_not() -> None:
    first = Closable(1)

    def failing() -> Any:
        raise InfrastructureError("no server")

    with pytest.raises(InfrastructureError, match="no server"):
        open_together({"generator": lambda: first, "optimizer": failing})
    assert first.is_closed


class Closable(Stopper):
    """An engine that knows whether it was closed."""

    def __init__(self, number: int) -> None:
        super().__init__(None)
        self.number = number
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True
