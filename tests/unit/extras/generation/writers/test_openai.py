"""Any server with OpenAI's chat completions: what is sent, what is repeated, and what is refused at once."""

import asyncio
import threading
import time
from typing import Any

import pytest

from extras.generation.writers import Draft, RefusedConversationError
from extras.generation.writers import openai as module
from extras.generation.writers.openai import OpenAIWriter
from kernels_eval.errors import InfrastructureError, InputError
from tasks.rollout.config import SamplingConfig

MESSAGES = [{"role": "user", "content": "write"}]
SAMPLING = SamplingConfig(temperature=0.7, top_p=0.9, max_new_tokens=77)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT_S", 0.02)


def asked(address: str, **options: Any) -> Draft:
    async def once() -> Draft:
        writer = OpenAIWriter(address, "m", SAMPLING, **options)
        try:
            return await writer.write(MESSAGES, 11)
        finally:
            await writer.close()

    return asyncio.run(once())


def test_an_answer_with_its_cost(openai_double: Any):
    with openai_double([{"text": "ok", "finish_reason": "length"}], key="secret") as double:
        draft = asked(double.address, key="secret")
    assert draft == Draft("ok", 100, 40, truncated=True)
    assert double.requests == [
        {"model": "m", "messages": MESSAGES, "temperature": 0.7, "top_p": 0.9, "max_tokens": 77, "seed": 11}
    ]


def test_text_that_is_no_unicode_is_replaced(openai_double: Any):
    with openai_double([{"text": "a \ud800 b"}]) as double:
        assert asked(double.address).text == "a ? b"


def test_what_may_pass_is_asked_again(openai_double: Any):
    busy = [{"text": "busy", "status": status} for status in (429, 500, 503)]
    with openai_double([*busy, {"text": "ok"}]) as double:
        assert asked(double.address).text == "ok"
    assert len(double.requests) == 4


def test_a_server_that_is_away_for_a_while_loses_no_conversation(openai_double: Any):
    with openai_double([{"text": "ok"}]) as double:
        address = double.address
    found: list[Draft] = []
    thread = threading.Thread(target=lambda: found.append(asked(address, patience_s=30)))
    thread.start()
    time.sleep(0.3)
    import uvicorn  # the same port again

    app = __import__("openai_server").create_app(double)
    server = uvicorn.Server(uvicorn.Config(app, port=int(address.split(":")[2].split("/")[0]), log_level="warning"))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    thread.join(timeout=20)
    server.should_exit = True
    serving.join(timeout=10)
    assert [draft.text for draft in found] == ["ok"]


def test_patience_ends(openai_double: Any):
    with openai_double([{"text": "busy", "status": 503}]) as double, pytest.raises(InfrastructureError, match="503"):
        asked(double.address, patience_s=0.3)


@pytest.mark.parametrize(("status", "error"), [(401, InputError), (404, InputError), (400, RefusedConversationError)])
def test_what_no_repetition_mends_is_refused_at_once(openai_double: Any, status: int, error: type[Exception]):
    with openai_double([{"text": "maximum context length", "status": status}]) as double:
        with pytest.raises(error, match="maximum context length"):
            asked(double.address)
        assert len(double.requests) == 1
    with pytest.raises(InputError, match="expected an address"):
        OpenAIWriter("localhost:8000", "m", SAMPLING)


def test_a_model_that_wants_the_newer_name_of_the_limit(openai_double: Any):
    refusal = {"text": "Unsupported parameter: use 'max_completion_tokens' instead.", "status": 400}
    with openai_double([refusal, {"text": "ok"}]) as double:
        assert asked(double.address).text == "ok"
    assert double.requests[1]["max_completion_tokens"] == 77
    assert "max_tokens" not in double.requests[1]


def test_the_digest_is_of_model_and_sampling():
    def digest(model: str, **sampling: Any) -> str:
        return OpenAIWriter("http://h/v1", model, SAMPLING.model_copy(update=sampling)).digest

    assert digest("a") == digest("a")
    assert len({digest("a"), digest("b"), digest("a", temperature=0.1)}) == 3
