"""Requests that the server refuses before anything is judged, and how: through the whole ASGI application, without a judge's processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval import Judge, JudgeConfig
from kernels_eval.config import ServerConfig
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from kernels_eval.server.app import create_app

CONFIG = ServerConfig(
    max_body_bytes=100_000, max_problem_bytes=5000, max_kernel_bytes=5000, queue_limit=3, body_timeout_s=1.5
)
TOKEN = "correct-horse"
GOOD = {"problem_source": EXAMPLE_PROBLEM, "kernel_source": EXAMPLE_KERNEL}
Send = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, timeout_s=5.0)) as judge:
        yield judge
        assert not judge._zygotes._known, "a refused request started the judge's processes"


@pytest.fixture(scope="module")
def send(judge: Judge) -> Send:
    return sender(judge, None)


def sender(judge: Judge, token: str | None) -> Send:
    app = create_app(judge, CONFIG, token)

    def send(method: str, path: str, **arguments: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, **arguments)

        return asyncio.run(once())

    return send


def as_json(value: Any) -> dict[str, Any]:
    return {"content": json.dumps(value).encode(), "headers": {"Content-Type": "application/json"}}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "problem_source"),
        ({"problem_source": EXAMPLE_PROBLEM}, 422, "kernel_source"),
        ({"original_model_src": EXAMPLE_PROBLEM}, 422, "custom_model_src"),
        ({**GOOD, "problem_source": "x = 1"}, 422, "missing: Model"),
        ({**GOOD, "problem_source": "def f(:"}, 422, "not Python"),
        ({**GOOD, "problem_source": "(" * 4999}, 422, "not Python"),
        ({**GOOD, "problem_source": "-" * 4999}, 422, "not Python"),
        ({**GOOD, "problem_source": "\x00"}, 422, "not Python"),
        ({**GOOD, "problem_source": "\ud800"}, 422, "unicode"),
        ({**GOOD, "problem_source": EXAMPLE_PROBLEM + "#" * 5000}, 413, "problem_source: expected at most 5000 bytes"),
        ({**GOOD, "kernel_source": "é" * 3000}, 413, "kernel_source"),
        ({**GOOD, "kernel_source": 3}, 422, "kernel_source"),
        ({**GOOD, "backend": "tpu"}, 422, "backend"),
        ({**GOOD, "surprise": 1}, 422, "surprise"),
        ({**GOOD, "settings": {"timeout_s": 6}}, 422, "at most 5"),
        ({**GOOD, "settings": {"timeout_s": float("nan")}}, 422, "timeout_s"),
        ({**GOOD, "settings": {"trials": 0}}, 422, "trials"),
        ({**GOOD, "settings": {"targets": ["cuda:x"]}}, 422, "targets"),
        ({**GOOD, "settings": {"workers": 9}}, 422, "workers"),
        ([], 422, "body"),
        (None, 422, "body"),
    ],
)  # fmt: skip
def test_bad_requests(send: Send, body: Any, status: int, words: str) -> None:
    reply = send("POST", "/eval", **as_json(body))
    assert reply.status_code == status, reply.text
    assert words in reply.text
    assert len(reply.content) < 2000, "the client's own input is not sent back"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"a":' + b"[" * 50_000, b"9" * 5000, b"[" * 9 + b"]" * 8])
def test_what_is_not_json(send: Send, body: bytes) -> None:
    reply = send("POST", "/eval", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 422), reply.text


@pytest.mark.parametrize(
    ("items", "status", "words"),
    [
        ([], 422, "items"),
        ([GOOD, {**GOOD, "problem_source": "x = 1"}], 422, '"loc":["body","items",1]'),
        ([GOOD, {"problem_source": "x = 1"}], 422, '"loc":["body","items",1,"kernel_source"]'),
        ([{"problem_source": "x", "kernel_source": ""}] * 513, 422, "512"),
        ([GOOD] * 4, 413, "the queue has 3 places"),
    ],
)
def test_bad_batches(send: Send, judge: Judge, items: list[Any], status: int, words: str) -> None:
    reply = send("POST", "/eval/batch", json={"items": items})
    assert reply.status_code == status, reply.text
    assert words in reply.text
    assert judge.waiting == judge.running == 0, "nothing of a refused batch is judged"


def test_too_long_whether_announced_or_not(send: Send) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10_000

    assert send("POST", "/eval", content=b"x" * 100_001).status_code == 413
    reply = send("POST", "/eval", content=chunks(), headers={"Content-Type": "application/json"})
    assert reply.status_code == 413
    assert "100000" in reply.json()["detail"]


def test_a_request_that_never_ends(send: Send) -> None:
    async def drips() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" "
            await asyncio.sleep(0.05)

    reply = send("POST", "/eval", content=drips(), headers={"Content-Type": "application/json"})
    assert reply.status_code == 408


@pytest.mark.parametrize(
    "header", [None, "", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer ", f"Bearer {TOKEN}x", "Bearer \xff\xfe"]
)
def test_without_the_token_only_health_is_told(judge: Judge, header: str | None) -> None:
    send = sender(judge, TOKEN)
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for method, path in [
        ("GET", "/workers"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("POST", "/eval"),
        ("GET", "/x"),
    ]:
        reply = send(method, path, headers=headers)
        assert reply.status_code == 401, (method, path)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in reply.text
    assert send("GET", "/health", headers=headers).status_code == 200


def test_with_the_token(judge: Judge) -> None:
    send = sender(judge, TOKEN)
    for scheme in ("Bearer", "bearer"):
        assert send("GET", "/workers", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200
    schema = send("GET", "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert schema["components"]["securitySchemes"]
    assert schema["paths"]["/eval"]["post"]["security"]


def test_the_documentation_is_open_and_complete(judge: Judge) -> None:
    send = sender(judge, TOKEN)
    reply = send("GET", "/docs")
    assert reply.status_code == 200
    assert TOKEN not in reply.text
    assert "connect-src 'self'" in reply.headers["content-security-policy"]
    schema = send("GET", "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    for path in schema["paths"]:
        assert f'data-path="{path}"' in reply.text
    for name in schema["components"]["schemas"]:
        assert f'<section id="{name}">' in reply.text
    assert (
        reply.text.count("&quot;problem_source&quot;: &quot;") == 2
    )  # an example that can be sent, alone and in a batch
    assert send("GET", "/redoc", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_the_state(send: Send) -> None:
    health = send("GET", "/health").json()
    assert (health["workers"], health["in_service"], health["queue_limit"]) == (1, 1, 3)
    workers = send("GET", "/workers").json()["workers"]
    assert [worker["state"] for worker in workers] == ["idle", "reserve", "reserve"]
    assert send("GET", "/fault_statistics").json()["total"] == 0
    metrics = send("GET", "/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'kernelmill_judge_workers{state="idle"} 1' in metrics.text
    assert 'kernelmill_judge_http_replies_total{code="422"}' in metrics.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["problem_source", "kernel_source", "backend", "settings", "original_model_src", "custom_model_src", "num_correct_trials", "items"]
)  # fmt: skip


@given(body=st.dictionaries(NAMES, JSON, max_size=6) | JSON, path=st.sampled_from(["/eval", "/eval/batch"]))
@settings(max_examples=150, deadline=None)
def test_no_body_is_an_internal_error(send: Send, body: Any, path: str) -> None:
    reply = send("POST", path, **as_json(body))
    assert reply.status_code in (400, 413, 422), reply.text
    assert reply.json()["detail"]


def test_every_reply_is_declared_with_a_schema(send: Send) -> None:
    schema = send("GET", "/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], path
            for code, reply in operation["responses"].items():
                assert reply["content"], (path, method, code)
                assert all(media["schema"] for media in reply["content"].values())
    assert set(schema["paths"]["/eval"]["post"]["responses"]) == {
        "200",
        "400",
        "401",
        "403",
        "408",
        "413",
        "422",
        "429",
        "503",
    }
    assert set(schema["paths"]["/eval/batch"]["post"]["responses"]["200"]["content"]) == {"application/x-ndjson"}
    for name in ("EvalRequest", "KernelBenchRequest"):
        assert schema["components"]["schemas"][name]["examples"]
    unexplained = [
        f"{name}.{field}"
        for name in ("EvalSettings", "Health", "WorkerReport", "KernelBenchVerdict")
        for field, values in schema["components"]["schemas"][name]["properties"].items()
        if not {"type", "anyOf", "$ref", "allOf"} & set(values)
    ]
    assert not unexplained


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8000"},
        {"Origin": "http://localhost.evil.example"},
        {"Host": "evil.example"},
        {"Host": "evil.example:18188", "Origin": "http://evil.example:18188"},  # a name that resolves to 127.0.0.1
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "0.0.0.0:18188"},
        {"Host": "["},
    ],
)
@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/x-www-form-urlencoded"])
def test_a_web_page_of_another_site_has_nothing_judged(
    send: Send, judge: Judge, headers: dict[str, str], kind: str
) -> None:
    reply = send("POST", "/eval", content=json.dumps(GOOD).encode(), headers={"Content-Type": kind, **headers})
    assert reply.status_code == 403, reply.text
    assert "access-control-allow-origin" not in reply.headers
    assert send("GET", "/workers", headers=headers).status_code == 403
    assert send("GET", "/health", headers=headers).status_code == 403
    assert judge.waiting == judge.running == 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:18188", "[::1]:18188", "localhost:9"])
def test_its_own_page_is_answered(send: Send, host: str) -> None:
    assert send("GET", "/workers", headers={"Host": host, "Origin": f"http://{host}"}).status_code == 200
    assert send("GET", "/workers", headers={"Host": host}).status_code == 200


def test_a_server_with_a_token_has_any_name_but_answers_to_no_other_site(judge: Judge) -> None:
    send, signed = sender(judge, TOKEN), {"Authorization": f"Bearer {TOKEN}", "Host": "gpu-7.cluster:18188"}
    assert send("GET", "/workers", headers=signed).status_code == 200
    assert send("GET", "/workers", headers={**signed, "Origin": "http://gpu-7.cluster:18188"}).status_code == 200
    assert send("GET", "/workers", headers={**signed, "Origin": "https://evil.example"}).status_code == 403
