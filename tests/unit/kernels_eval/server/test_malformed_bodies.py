"""Whatever is sent as a request that is none: a refusal that says why in a sentence, and a server that goes on."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kernels_eval import Judge, JudgeConfig
from kernels_eval.server.app import create_app

GOOD: dict[str, Any] = {"problem_source": "import torch", "kernel_source": "y"}
"""A request as it should be, but for its problem, which is none: nothing is ever judged here."""
NAMES = (
    "problem_source",
    "kernel_source",
    "backend",
    "settings",
    "items",
    "original_model_src",
    "trials",
    "",
    "\ud800",
)
TEXTS = ("", "a", "\x00", "\ud800", "\U0001f600", "problem_source", "def f(:", "x" * 70_000)
NUMBERS = (0, -1, 3, 1 << 70, 10**400, 1e308, -0.0, float("nan"), float("inf"))


def anything(generator: random.Random, depth: int = 0) -> Any:
    kind = generator.randrange(6 if depth < 4 else 4)
    if kind < 4:
        return (None, generator.random() < 0.5, generator.choice(NUMBERS), generator.choice(TEXTS))[kind]
    if kind == 4:
        return [anything(generator, depth + 1) for _ in range(generator.randrange(4))]
    return {generator.choice(NAMES): anything(generator, depth + 1) for _ in range(generator.randrange(5))}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def random_json() -> Iterator[bytes]:
    generator = random.Random(5)
    for _ in range(150):
        yield encoded(anything(generator))
        yield encoded({**GOOD, generator.choice(NAMES): anything(generator)})


def damaged() -> Iterator[bytes]:
    generator = random.Random(6)
    for _ in range(150):
        body = bytearray(encoded({"items": [GOOD]}))
        for _ in range(generator.randrange(1, 4)):
            body[generator.randrange(len(body))] = generator.randrange(256)
        yield bytes(body)


def nested() -> Iterator[bytes]:
    for depth in (10, 1000, 100_000):
        yield from (b"[" * depth, b"[" * depth + b"]" * depth, b'{"settings":' * depth)
        for source in ("(" * depth, "x=" + "-" * depth + "1", "x" + ".a" * min(depth, 20_000)):
            yield encoded({**GOOD, "problem_source": source})


def odd() -> Iterator[bytes]:
    yield from (b"", b"\xff\xfe", b"\xef\xbb\xbf{}", b"\x00" * 100, b"NaN", b'"', b"1" * 5000, b"1e999999", b"[]")
    yield json.dumps(GOOD).encode("utf-16")
    yield b'{"items":[' + b"{}," * 600 + b"{}]}"
    yield encoded({**GOOD, "problem_source": "\ud800", "kernel_source": "\udfff"})
    yield b" " * (17 << 20)


@pytest.mark.parametrize("bodies", [random_json, damaged, nested, odd])
def test_a_malformed_body_is_refused_in_a_sentence(bodies: Any) -> None:
    with Judge(JudgeConfig(workers=1)) as judge:
        asyncio.run(_send_all(judge, list(bodies())))


async def _send_all(judge: Judge, bodies: list[bytes]) -> None:
    app: Any = create_app(judge)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        for index, body in enumerate(bodies):
            path = ("/eval", "/eval/batch")[index % 2]
            reply = await client.post(path, content=body, headers={"Content-Type": "application/json"}, timeout=60)
            assert 400 <= reply.status_code < 500, (reply.status_code, body[:200])
            detail = reply.json()["detail"]
            messages = [detail] if isinstance(detail, str) else [misfit["msg"] for misfit in detail]
            assert messages, body[:200]
            assert all(0 < len(message) <= 1000 for message in messages), body[:200]
        assert (judge.running, judge.waiting) == (0, 0)
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("place", ["settings", "body", "items"])
def test_many_wrong_fields_are_refused_in_a_moment(place: str) -> None:
    many = {f"field{number}": 1 for number in range(100_000)}
    body: dict[str, Any] = {"settings": {**GOOD, "settings": many}, "body": GOOD | many, "items": {"items": [many]}}[
        place
    ]

    async def refused() -> httpx.Response:
        with Judge(JudgeConfig(workers=1)) as judge:
            transport = httpx.ASGITransport(app=create_app(judge))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                path, headers = "/eval/batch" if place == "items" else "/eval", {"content-type": "application/json"}
                return await client.post(path, content=encoded(body), headers=headers)

    began = time.process_time()
    reply = asyncio.run(refused())
    assert reply.status_code == 422
    assert "fields, found 1000" in reply.text
    assert len(reply.content) < 20_000
    assert time.process_time() - began < 5
