"""The SGLang engine against a double of the server that samples with the real policy."""

import asyncio
import itertools
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels_eval.errors import InfrastructureError
from tasks.models.policy import load_policy
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig, SglangConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest, PolicyServer, open_engine, stop_tokens
from tasks.rollout.engines.local.engine import load_engine
from tasks.rollout.engines.sglang import tensors as sglang_tensors

pytestmark = pytest.mark.long

QUICK = SglangConfig(start_timeout_s=60, backoff_s=0.01, request_timeout_s=60)


def opened(servers: Sequence[Any], policy: CheckpointRef, tokenizer: Any, settings: SglangConfig = QUICK) -> Any:
    config = RolloutConfig(
        engine="sglang", threads=1, sglang_urls=tuple(server.url for server in servers), sglang=settings
    )
    return open_engine(policy, tokenizer, config)


def some_requests(count: int, length: int = 20, first_seed: int = 0, prefix: str = "t") -> list[GenerationRequest]:
    prompts = [tuple(5 + (7 * n + k) % 250 for k in range(length + n % 5)) for n in range(count)]
    return [GenerationRequest(f"r{n}", prompt, first_seed + n, f"{prefix}{n}") for n, prompt in enumerate(prompts)]


async def collected(engine: Any, requests: Sequence[GenerationRequest], sampling: SamplingConfig) -> list[Generation]:
    found: dict[int, Generation] = {}
    async for index, generation in engine.generate(requests, sampling):
        assert index not in found
        found[index] = generation
    return [found[index] for index in range(len(requests))]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(max_new_tokens=24),
        SamplingConfig(max_new_tokens=2),
        SamplingConfig(temperature=0, max_new_tokens=24),
        SamplingConfig(temperature=0.6, top_k=12, top_p=0.9, max_new_tokens=16),
    ],
    ids=["training", "short", "greedy", "evaluation"],
)
def test_both_engines_keep_the_same_contract(
    servers: Any, policies: Any, small_tokenizer: Any, sampling: SamplingConfig
) -> None:
    """Tokens, the end of turn among them, log-probabilities at T = 1, reasons: as the embedded engine gives them."""
    requests = some_requests(24)

    async def scenario() -> tuple[list[Generation], list[Generation]]:
        embedded = load_engine(policies["first"].path, small_tokenizer, 64)
        served = opened(servers(2), policies["first"], small_tokenizer)
        try:
            return await collected(embedded, requests, sampling), await collected(served, requests, sampling)
        finally:
            await embedded.close()
            await served.close()

    expected, found = asyncio.run(scenario())
    assert [g.token_ids for g in found] == [g.token_ids for g in expected]
    assert [g.finish_reason for g in found] == [g.finish_reason for g in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=5e-5)
    reasons = {g.finish_reason for g in found}
    assert FinishReason.FAULT not in reasons
    if sampling.max_new_tokens == 24 and sampling.temperature:
        assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


def test_an_end_of_turn_at_the_limit_is_the_same_to_both(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    """Each response that stops is sampled again with exactly its own length as the limit."""

    async def scenario() -> None:
        engine = opened(servers(), policies["first"], small_tokenizer)
        requests = some_requests(40)
        free = await collected(engine, requests, SamplingConfig(max_new_tokens=40))
        stopped = [(r, g) for r, g in zip(requests, free, strict=True) if g.finish_reason is FinishReason.STOP]
        assert stopped
        for request, generation in stopped[:5]:
            sampling = SamplingConfig(max_new_tokens=len(generation.token_ids))
            (again,) = await collected(engine, [request], sampling)
            assert again.token_ids == generation.token_ids
            assert again.finish_reason is FinishReason.STOP
        await engine.close()

    asyncio.run(scenario())


def test_both_engines_stop_at_the_same_tokens(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    from tasks.rollout.engines import stop_token_ids

    path = policies["first"].path
    expected = stop_tokens(load_policy(path).generation_config, small_tokenizer)
    assert stop_token_ids(path, small_tokenizer) == tuple(sorted(expected))


def test_later_turns_find_the_earlier_ones_in_the_cache(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers(3)
        engine = opened(running, policies["first"], small_tokenizer)
        sampling = SamplingConfig(max_new_tokens=8)
        first = some_requests(12)
        answers = await collected(engine, first, sampling)
        for server in running:
            server.double.cached_tokens.clear()
        second = [
            GenerationRequest(r.name, (*r.prompt_token_ids, *g.token_ids, 5, 6, 7), 99, r.routing_key)
            for r, g in zip(first, answers, strict=True)
        ]
        await collected(engine, second, sampling)
        served = [len(server.double.cached_tokens) for server in running]
        assert sum(served) == 12
        assert min(served) >= 2, "spread over the servers"
        found = sorted(itertools.chain(*(server.double.cached_tokens for server in running)))
        assert found == sorted(len(r.prompt_token_ids) - 3 for r in second)
        await engine.close()

    asyncio.run(scenario())


def test_no_more_requests_at_once_than_agreed(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer, QUICK.model_copy(update={"concurrency": 3}))
        most = [0, 0]

        async def watch() -> None:
            while True:
                for number, server in enumerate(running):
                    most[number] = max(most[number], len(server.double.active))
                await asyncio.sleep(0.001)

        watching = asyncio.ensure_future(watch())
        await collected(engine, some_requests(40), SamplingConfig(max_new_tokens=8))
        watching.cancel()
        await engine.close()
        assert most == [3, 3]

    asyncio.run(scenario())


def test_a_failed_attempt_goes_to_another_server_with_the_same_seed(
    servers: Any, policies: Any, small_tokenizer: Any
) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer)
        running[0].double.faults.error = 1.0
        for server in running:
            server.double.requests.clear()
        await collected(engine, some_requests(4, first_seed=70), SamplingConfig(max_new_tokens=4))
        bad, good = ([r["sampling_params"]["sampling_seed"] for r in s.double.requests] for s in running)
        assert bad
        assert set(bad) <= set(good)
        assert sorted(good) == [70, 71, 72, 73]
        rids = [r["rid"] for s in running for r in s.double.requests]
        assert len(set(rids)) == len(rids)
        assert len({len(rid) for rid in rids}) == 1, "aborting one must not abort another whose name begins so"
        await engine.close()

    asyncio.run(scenario())


def test_what_no_server_can_do_is_a_fault_that_says_so(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer)
        for server in running:
            server.double.requests.clear()
        limit = SamplingConfig(max_new_tokens=engine.context_tokens)
        (refused,) = await collected(engine, some_requests(1), limit)
        assert refused.finish_reason is FinishReason.FAULT
        assert "HTTP 400" in (refused.error or "")
        assert sum(len(server.double.requests) for server in running) == 1, "not asked twice"
        for server in running:
            server.double.faults.nonsense = 1.0
        (broken,) = await collected(engine, some_requests(1), SamplingConfig(max_new_tokens=4))
        assert broken.finish_reason is FinishReason.FAULT
        assert broken.token_ids == ()
        await engine.close()

    asyncio.run(scenario())


def test_the_context_is_what_the_server_has_room_for(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        engine = opened(servers(), policies["first"], small_tokenizer)
        assert engine.context_tokens == 2048 - 6
        room = engine.context_tokens - 2000
        (filled,) = await collected(engine, some_requests(1, 2000), SamplingConfig(max_new_tokens=room))
        assert filled.finish_reason is not FinishReason.FAULT
        await engine.close()

    asyncio.run(scenario())


def test_a_server_that_hangs_is_left_and_told_to_stop(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer, QUICK.model_copy(update={"request_timeout_s": 1}))
        running[0].double.faults.hang = 1.0
        found = await collected(engine, some_requests(6), SamplingConfig(max_new_tokens=4))
        assert all(g.finish_reason is not FinishReason.FAULT for g in found)
        assert "abort_request" in running[0].double.calls
        await engine.close()

    asyncio.run(scenario())


def test_cancelling_aborts_what_is_under_way(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers()
        double = running[0].double
        engine = opened(running, policies["first"], small_tokenizer)
        work = collected(engine, some_requests(8), SamplingConfig(max_new_tokens=1500))
        task = asyncio.ensure_future(work)
        while len(double.active) < 8:
            await asyncio.sleep(0.005)
        under_way = set(double.active)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while double.active:
            await asyncio.sleep(0.01)
        assert set(double.aborted) >= under_way
        await engine.close()

    asyncio.run(scenario())


def test_a_killed_server_is_done_without(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer)
        found: list[Generation] = []
        async for _, generation in engine.generate(some_requests(60), SamplingConfig(max_new_tokens=16)):
            if not found:
                await asyncio.to_thread(running[0].stop)
            found.append(generation)
        assert len(found) == 60
        assert all(g.finish_reason is not FinishReason.FAULT for g in found)
        await engine.close()

    asyncio.run(scenario())


def test_when_every_server_is_gone_so_is_the_engine(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer, QUICK.model_copy(update={"start_timeout_s": 1}))
        for server in running:
            server.stop()
        with pytest.raises(InfrastructureError, match=r"no SGLang server is left.*ConnectError"):
            await collected(engine, some_requests(4), SamplingConfig(max_new_tokens=4))
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("push", ["disk", "tensors"])
def test_weights_are_pushed_to_idle_servers_and_generation_goes_on(
    servers: Any, policies: Any, small_tokenizer: Any, monkeypatch: pytest.MonkeyPatch, push: Any
) -> None:
    """The checkpoint has the optimizer's state in it: the server must not see it."""
    monkeypatch.setattr(sglang_tensors, "BY_VALUE_BYTES", 30_000)

    async def scenario() -> None:
        running = servers(2)
        settings = QUICK.model_copy(update={"push": push})
        engine = opened(running, policies["first"], small_tokenizer, settings)
        assert isinstance(engine, PolicyServer)
        before = await collected(engine, some_requests(8), SamplingConfig(max_new_tokens=16))
        for server in running:
            server.double.calls.clear()
        await engine.serve(policies["updated"], small_tokenizer)
        load = ["update_weights_from_disk"]
        if push == "tensors":
            load = ["update_weights_from_tensor"] * len(list(sglang_tensors.buckets(policies["updated"].path, 30_000)))
            assert len(load) > 2, "in several messages"
        for server in running:
            assert server.double.calls == [
                "pause_generation",
                "flush_cache",
                *load,
                "flush_cache",
                "continue_generation",
            ]
            assert server.double.weight_version == "digest-updated"
        after = await collected(engine, some_requests(8), SamplingConfig(max_new_tokens=16))
        assert [g.logprobs for g in before] != [g.logprobs for g in after]
        reference = load_policy(policies["updated"].path)
        for request, generation in zip(some_requests(8), after, strict=True):
            ids = torch.tensor([[*request.prompt_token_ids, *generation.token_ids]])
            with torch.inference_mode():
                scores = reference(input_ids=ids).logits[0].log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
            assert generation.logprobs == pytest.approx(scores[len(request.prompt_token_ids) - 1 :].tolist(), abs=5e-5)
        await engine.close()

    asyncio.run(scenario())


def test_what_lies_beside_the_weights_is_kept_from_servers(
    servers: Any, policies: Any, small_tokenizer: Any, tmp_path: Path
) -> None:
    """A checkpoint of another trainer, with more safetensors than the model's."""
    folder = tmp_path / "foreign"
    shutil.copytree(policies["updated"].path, folder)
    shutil.copy(folder / "model.safetensors", folder / "ema.safetensors")

    async def scenario() -> None:
        engine = opened(servers(), CheckpointRef(uri=str(folder), digest="digest-foreign"), small_tokenizer)
        assert list(tmp_path.glob(".serving-*")), "a restarted server loads it again"
        await engine.close()
        assert not list(tmp_path.glob(".serving-*"))

    asyncio.run(scenario())


def test_somebody_elses_requests_do_not_keep_weights_from_changing(
    servers: Any, policies: Any, small_tokenizer: Any
) -> None:
    import httpx

    async def scenario() -> None:
        (server,) = servers()
        ends: list[str] = []
        async with httpx.AsyncClient(timeout=None) as client:

            async def ask(seed: int) -> None:  # until one is cut off, however long it takes to open the engine
                while "abort" not in ends:
                    sampling = {"max_new_tokens": 2000, "sampling_seed": seed}
                    body = {"input_ids": [5, 6, 7], "sampling_params": sampling}
                    answer = (await client.post(f"{server.url}/generate", json=body)).json()
                    ends.append(answer["meta_info"]["finish_reason"]["type"])

            foreign = [asyncio.ensure_future(ask(seed)) for seed in range(24)]
            while not server.double.active:
                await asyncio.sleep(0.01)
            engine = await asyncio.to_thread(opened, [server], policies["updated"], small_tokenizer)
            until = time.monotonic() + 60  # its answer may be on the way
            while "abort" not in ends and time.monotonic() < until:
                await asyncio.sleep(0.01)
            for task in foreign:
                task.cancel()
            await asyncio.gather(*foreign, return_exceptions=True)
            assert "abort" in ends
        await engine.close()

    asyncio.run(scenario())


def test_a_server_that_keeps_its_weights_is_caught_whatever_it_says(
    servers: Any, policies: Any, small_tokenizer: Any
) -> None:
    """An update moves log-probabilities by 0.001, a hundredth of the threshold; and trying again does not get it through."""

    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["first"], small_tokenizer, QUICK.model_copy(update={"start_timeout_s": 1}))
        running[1].double.faults.keeps_weights = True
        with pytest.raises(
            InfrastructureError, match=r"still answers from the weights before.*\(mean\).*\(max\)"
        ) as caught:
            await engine.serve(policies["updated"], small_tokenizer)
        assert running[1].url in str(caught.value)
        assert running[0].url not in str(caught.value)
        await engine.close()
        with pytest.raises(InfrastructureError, match="still answers from the weights before"):
            await asyncio.to_thread(opened, running, policies["updated"], small_tokenizer)
        running[1].double.faults.keeps_weights = False
        engine = await asyncio.to_thread(opened, running, policies["updated"], small_tokenizer)
        await engine.close()

    asyncio.run(scenario())


def test_other_weights_under_the_right_label_are_refused(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    (server,) = servers()
    server.double.policy.load(policies["other"].uri)
    server.double.weight_version = "digest-first"
    with pytest.raises(
        InfrastructureError, match=r"expected a mean of at most 0.1 \(rollout.sglang.canary_threshold\)"
    ):
        opened([server], policies["first"], small_tokenizer)


def test_a_push_that_fails_leaves_no_server_paused(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    (server,) = servers(refuses_weights=True)
    with pytest.raises(InfrastructureError, match="Rolling back to original weights"):
        opened([server], policies["updated"], small_tokenizer, QUICK.model_copy(update={"start_timeout_s": 1}))
    assert not server.double.paused


def test_a_server_that_somebody_left_paused_is_woken(servers: Any, policies: Any, small_tokenizer: Any) -> None:
    (server,) = servers()
    server.double.paused = True
    asyncio.run(opened([server], policies["first"], small_tokenizer).close())


def test_a_server_restarted_with_old_weights_is_found_out_and_brought_up_to_date(
    servers: Any, policies: Any, small_tokenizer: Any
) -> None:
    async def scenario() -> None:
        running = servers(2)
        engine = opened(running, policies["updated"], small_tokenizer)
        double = running[0].double
        double.policy.load(policies["first"].uri)
        double.weight_version = "default"
        found = await collected(engine, some_requests(20), SamplingConfig(max_new_tokens=8))
        assert all(g.finish_reason is not FinishReason.FAULT for g in found)
        assert engine.counts["failures"] >= 1
        async with asyncio.timeout(60):
            while double.weight_version != "digest-updated" or not all(m.is_up for m in engine._pool.members):
                await asyncio.sleep(0.05)
        double.requests.clear()
        await collected(engine, some_requests(20, prefix="new"), SamplingConfig(max_new_tokens=8))
        assert double.requests
        await engine.close()

    asyncio.run(scenario())


def test_a_server_that_is_down_at_the_start_is_waited_for_then_done_without(
    servers: Any, policies: Any, small_tokenizer: Any
) -> None:
    from types import SimpleNamespace

    gone = SimpleNamespace(url="http://127.0.0.1:9")
    settings = QUICK.model_copy(update={"start_timeout_s": 1})
    engine = opened([*servers(), gone], policies["first"], small_tokenizer, settings)
    asyncio.run(engine.close())
    with pytest.raises(InfrastructureError, match=r"http://127\.0\.0\.1:9"):
        opened([gone], policies["first"], small_tokenizer, settings)
