"""Servers that hold a base, and are given each policy as an adapter on it: of one policy, and of a team."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from imported import import_file

from kernels_eval.errors import InfrastructureError, InputError
from tasks.agents.team import publish_team
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig, SglangConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest, PolicyServer, open_engine
from tasks.rollout.engines.local.engine import load_engine
from tasks.training.config import LoraConfig

RANK = 8
SETTINGS = SglangConfig(start_timeout_s=60, backoff_s=0.01, request_timeout_s=60, adapter_rank=RANK)
SAMPLING = SamplingConfig(max_new_tokens=16)


@pytest.fixture(scope="session")
def adapted(
    policies: dict[str, CheckpointRef], small_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CheckpointRef]:
    """Four policies that are adapters on the first one: two steps of two agents."""
    double = import_file(Path(__file__).parents[4] / "doubles" / "adapted_policy.py")
    folder, lora = tmp_path_factory.mktemp("adapted"), LoraConfig(rank=RANK, alpha=2 * RANK)
    return {
        name: double.save_adapted(policies["first"], small_tokenizer, folder / name, lora, number)
        for number, name in enumerate(("writer-1", "writer-2", "mender-1", "mender-2"))
    }


def opened(server: Any, policy: CheckpointRef, tokenizer: Any) -> Any:
    return open_engine(
        policy, tokenizer, RolloutConfig(engine="sglang", threads=1, sglang_urls=(server.url,), sglang=SETTINGS)
    )


def requests_of(agent: str, count: int = 6) -> list[GenerationRequest]:
    prompts = [tuple(5 + (7 * n + k) % 250 for k in range(20 + n)) for n in range(count)]
    return [GenerationRequest(f"{agent}{n}", prompt, n, agent) for n, prompt in enumerate(prompts)]


async def sampled(engine: Any, requests: Sequence[GenerationRequest]) -> list[Generation]:
    found = {index: generation async for index, generation in engine.generate(requests, SAMPLING)}
    return [found[index] for index in range(len(requests))]


def assert_same(found: Sequence[Generation], expected: Sequence[Generation]) -> None:
    assert [g.token_ids for g in found] == [g.token_ids for g in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=2e-4)


async def from_merged(policy: CheckpointRef, tokenizer: Any, requests: Sequence[GenerationRequest]) -> list[Generation]:
    engine = load_engine(policy.path, tokenizer, 64)
    try:
        return await sampled(engine, requests)
    finally:
        await engine.close()


def team_of(adapted: dict[str, CheckpointRef], step: int, folder: Path, **others: CheckpointRef) -> CheckpointRef:
    members = {"mender": adapted[f"mender-{step}"], "writer": adapted[f"writer-{step}"], **others}
    return publish_team(members, folder / f"team-{step}-{len(others)}", step)


def test_a_policy_is_its_adapter_on_the_servers_base(
    servers: Any, policies: Any, adapted: Any, small_tokenizer: Any
) -> None:
    (server,) = servers(1)

    async def scenario() -> None:
        engine = opened(server, policies["first"], small_tokenizer)
        try:
            assert_same(
                await sampled(engine, requests_of("")),
                await from_merged(policies["first"], small_tokenizer, requests_of("")),
            )
            for name in ("writer-1", "writer-2"):
                await engine.serve(adapted[name], small_tokenizer)
                expected = await from_merged(adapted[name], small_tokenizer, requests_of(""))
                assert_same(await sampled(engine, requests_of("")), expected)
                assert len(server.double.adapters) == 1  # the one before is gone
            await engine.serve(policies["first"], small_tokenizer)
            assert not server.double.adapters
        finally:
            await engine.close()

    asyncio.run(scenario())
    weights = [call for call in server.double.calls if call.startswith("update_weights")]
    assert len(weights) == 1  # the base, once: the server's own label was another
    assert server.double.calls.count("load_lora_adapter") == 2


def test_a_team_shares_one_server(servers: Any, adapted: Any, small_tokenizer: Any, tmp_path: Path) -> None:
    (server,) = servers(1)
    both = [*requests_of("writer"), *requests_of("mender")]

    async def scenario() -> None:
        engine = opened(server, team_of(adapted, 1, tmp_path), small_tokenizer)
        assert isinstance(engine, PolicyServer)
        try:
            for step in (1, 2):
                if step == 2:
                    await engine.serve(team_of(adapted, 2, tmp_path), small_tokenizer)
                found = await sampled(engine, both)
                assert_same(found[:6], await from_merged(adapted[f"writer-{step}"], small_tokenizer, both[:6]))
                assert_same(found[6:], await from_merged(adapted[f"mender-{step}"], small_tokenizer, both[6:]))
                assert len(server.double.adapters) == 2
        finally:
            await engine.close()

    asyncio.run(scenario())
    assert server.double.calls.count("load_lora_adapter") == 4


def test_a_server_that_lost_its_adapters_gets_them_again(
    servers: Any, adapted: Any, small_tokenizer: Any, tmp_path: Path
) -> None:
    """A server that was started again holds its base: requests wait for the adapter, and none fails."""
    (server,) = servers(1)

    async def scenario() -> None:
        engine = opened(server, team_of(adapted, 1, tmp_path), small_tokenizer)
        try:
            server.double.adapters.clear()
            found = await sampled(engine, requests_of("writer"))
            assert {generation.finish_reason for generation in found} <= {FinishReason.STOP, FinishReason.LENGTH}
            assert_same(found, await from_merged(adapted["writer-1"], small_tokenizer, requests_of("writer")))
        finally:
            await engine.close()

    asyncio.run(scenario())


def test_a_server_that_answers_without_the_adapter_is_refused(
    servers: Any, doubles: Any, adapted: Any, small_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server,) = servers(1)
    monkeypatch.setattr(doubles.ModelPolicy, "adapted", lambda policy, folder: policy)
    with pytest.raises(InfrastructureError, match="differ from the checkpoint's"):
        opened(server, adapted["writer-1"], small_tokenizer)


def test_agents_on_different_bases_cannot_share_servers(
    servers: Any, policies: Any, adapted: Any, small_tokenizer: Any, tmp_path: Path
) -> None:
    (server,) = servers(1)
    team = team_of(adapted, 1, tmp_path, third=policies["other"])
    with pytest.raises(InputError, match="agents mender and third have different bases"):
        opened(server, team, small_tokenizer)
