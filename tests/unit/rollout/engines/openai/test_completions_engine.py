"""The engine of a completions server, against a server over HTTP."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.checks.settings import check_settings
from flows.settings.configuration import load_configuration
from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from tasks.rollout.config import OpenAiConfig, RolloutConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.kind import Outcome, kind_of
from tasks.rollout.engines.openai.engine import CompletionsEngine
from tests.doubles.completions_server import EOS, CompletionsServer

SAMPLING = SamplingConfig(max_new_tokens=8)
REQUESTS = [GenerationRequest(f"request {seed}", (11, 12, 13), seed) for seed in range(5)]


def answers(
    server: CompletionsServer, requests: Sequence[GenerationRequest] = REQUESTS, sampling: SamplingConfig = SAMPLING,
    **settings: Any,
) -> dict[int, Generation]:  # fmt: skip
    async def collect() -> dict[int, Generation]:
        engine = CompletionsEngine(OpenAiConfig(url=server.url, **settings), (EOS, 99), 64)
        try:
            return {index: found async for index, found in engine.generate(requests, sampling)}
        finally:
            await engine.close()

    return asyncio.run(collect())


@pytest.mark.parametrize(("form", "last_logprob"), [("vllm", -0.25), ("llama", 0.0)])
def test_each_request_gets_the_tokens_that_the_server_sampled(form: str, last_logprob: float):
    with CompletionsServer(form) as server:
        found = answers(server)
    assert sorted(found) == list(range(5))
    for seed, generation in found.items():
        turned = seed % 3
        assert generation.token_ids == (*(13, 12, 11)[turned:], *(13, 12, 11)[:turned], EOS)
        assert generation.finish_reason is FinishReason.STOP
        assert len(generation.logprobs) == 4
        assert generation.logprobs[-1] == last_logprob
    asked = server.asked[0]
    assert asked["model"] == "served"
    assert asked["prompt"] == [11, 12, 13]
    assert asked["stop_token_ids"] == [EOS, 99]
    assert (asked["temperature"], asked["top_p"], asked["top_k"]) == (1.0, 1.0, -1)


def test_a_response_ends_at_the_limit():
    with CompletionsServer() as server:
        (found,) = answers(server, REQUESTS[:1], SamplingConfig(max_new_tokens=2)).values()
    assert (found.token_ids, found.finish_reason) == ((13, 12), FinishReason.LENGTH)


def test_an_answer_without_token_ids_is_a_fault_that_says_what_is_missing():
    with CompletionsServer("text") as server:
        (found,) = answers(server, REQUESTS[:1]).values()
    assert found.finish_reason is FinishReason.FAULT
    assert "return_tokens_as_token_ids" in (found.error or "")
    assert len(server.asked) == 1, "another attempt would change nothing"


@pytest.mark.parametrize(
    ("faults", "attempts", "reason"), [([503], 2, "stop"), ([429, 500], 2, "fault"), ([400], 1, "fault")]
)
def test_a_busy_server_is_asked_again_and_a_refusal_is_final(faults: list[int], attempts: int, reason: str):
    with CompletionsServer() as server:
        server.faults = list(faults)
        (found,) = answers(server, REQUESTS[:1], attempts=2).values()
    assert found.finish_reason == reason
    assert len(server.asked) == attempts


def test_a_server_that_is_gone_is_a_fault():
    with CompletionsServer() as server:
        pass
    (found,) = answers(server, REQUESTS[:1], attempts=1, model="named").values()
    assert found.finish_reason is FinishReason.FAULT


def test_the_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    with CompletionsServer(key="secret") as server:
        config = RolloutConfig(engine="openai", openai=OpenAiConfig(url=server.url))
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        assert kind_of(config).look(config, True).outcome is Outcome.FAILED
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert kind_of(config).look(config, True).outcome is Outcome.OK
        assert answers(server, REQUESTS[:1])[0].finish_reason is FinishReason.STOP


def test_without_an_address_it_is_refused():
    config = RolloutConfig(engine="openai")
    with pytest.raises(InputError, match=r"rollout.openai.url: found '', expected an address"):
        kind_of(config).check(config, False, True)


def test_nothing_is_trained_on_an_engine_whose_weights_stay(tmp_path: Path):
    engine = ["rollout.engine=openai", f"runs_dir={tmp_path}"]
    with pytest.raises(InputError, match=r"rollout\.engine: openai cannot be given new weights") as raised:
        check_settings(load_configuration("deployments/configs/test.yaml", engine))
    assert "\n" not in str(raised.value)
    evaluation = [*engine, "iterations=0", "sft=none", "control=false", "model.pretrained=some/model"]
    check_settings(load_configuration("deployments/configs/test.yaml", evaluation))


def test_the_settings_of_this_engine_change_no_key_of_the_others():
    assert "openai" not in decisive_part(RolloutConfig())
    one, other = (RolloutConfig(openai=OpenAiConfig(url="http://a/v1", model=name)) for name in "ab")
    assert decisive_part(one) != decisive_part(other)


def test_no_engine_is_asked_for_by_name_outside_its_folder():
    names = ("sglang", "transformers", "openai")
    for package in ("flows", "tasks", "extras"):
        for path in Path(package).rglob("*.py"):
            if "engines" not in path.parts:
                text = path.read_text(encoding="utf-8")
                assert not any(f'engine {sign} "{name}"' in text for name in names for sign in ("==", "!=")), path
