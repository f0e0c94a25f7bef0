"""The OpenAPI page is the expected: whatever is sent that it allows, or that it forbids, the reply is one that it declares.

Requests are generated from the page alone, as a fuzzer's are: by the schemas, with the examples mixed in, and with one thing broken.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval import Judge
from kernels_eval.config import ServerConfig
from kernels_eval.server.app import create_app

Send = Callable[..., httpx.Response]
LIMITS = ServerConfig(queue_limit=6, max_body_bytes=200_000)
SOURCES = st.sampled_from(["def f(:\n", "import torch\n", "", "\ud800", "\x00"]) | st.text(max_size=20)
JUNK: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({})
)


@pytest.fixture(scope="module")
def send(judge: Judge) -> Send:
    app = create_app(judge, LIMITS)

    def send(method: str, path: str, content: bytes | None = None) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(
                    method, path, content=content, headers={"Content-Type": "application/json"}, timeout=60
                )

        return asyncio.run(once())

    return send


@pytest.fixture(scope="module")
def page(send: Send) -> dict[str, Any]:
    return send("GET", "/openapi.json").json()


def values(schema: dict[str, Any], page: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, with its examples among it."""
    if "$ref" in schema:
        return values(page["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], page)
    examples = st.sampled_from(schema["examples"]) if "examples" in schema else st.nothing()
    for name in ("anyOf", "oneOf"):
        if name in schema:
            return examples | st.one_of([values(one, page) for one in schema[name]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    if kind == "object":
        required = schema.get("required", [])
        fields = {name: values(field, page) for name, field in schema.get("properties", {}).items()}
        parts = {name: field for name, field in fields.items() if name in required}
        rest = {name: field for name, field in fields.items() if name not in required}
        return examples | st.fixed_dictionaries(parts, optional=rest)
    if kind == "array":
        most = min(schema.get("maxItems", 3), 3)
        return examples | st.lists(values(schema["items"], page), min_size=schema.get("minItems", 0), max_size=most)
    if kind == "string":
        text = st.from_regex(schema["pattern"], fullmatch=True) if "pattern" in schema else SOURCES
        return examples | text.filter(lambda found: len(found) >= schema.get("minLength", 0))
    if kind == "integer":
        least, most = schema.get("minimum"), schema.get("maximum")
        return st.integers(None if least is None else int(least), None if most is None else int(most))
    if kind == "number":
        return st.floats(1e-3, 1e3) if "exclusiveMinimum" in schema else st.floats(allow_nan=False)
    return {"boolean": st.booleans(), "null": st.none()}[kind]


def broken(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The same with one field of some object replaced, left out or added."""

    @st.composite
    def one(draw: st.DrawFn) -> Any:
        value = json.loads(json.dumps(draw(good)))
        at = value
        while isinstance(at, dict | list) and at and draw(st.booleans()):
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[key], dict | list):
                break
            at = at[key]
        if isinstance(at, list):
            at.append(draw(JUNK))
        elif at and draw(st.booleans()):
            del at[draw(st.sampled_from(sorted(at)))]
        else:
            at[draw(st.sampled_from([*sorted(at), "surprise"]))] = draw(JUNK)
        return value

    return one()


def check_reply(reply: httpx.Response, operation: dict[str, Any], page: dict[str, Any]) -> None:
    """The code, the media type and the body are declared."""
    declared = operation["responses"].get(str(reply.status_code))
    assert declared is not None, (reply.status_code, reply.text)
    media = reply.headers["content-type"].partition(";")[0]
    assert media in declared["content"], media
    schema = {**declared["content"][media]["schema"], "components": page["components"]}
    if media != "text/plain":
        for line in reply.text.splitlines() if media == "application/x-ndjson" else [reply.text]:
            jsonschema.validate(json.loads(line), schema)
    assert set(declared.get("headers", {})) <= {name.title() for name in reply.headers}


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("path", ["/eval", "/eval/batch"])
def test_replies_to_what_the_page_allows_and_forbids(
    send: Send, page: dict[str, Any], judge: Judge, path: str, breaks: bool
) -> None:
    operation = page["paths"][path]["post"]
    cheap = json.loads(json.dumps(page))
    cheap["components"]["schemas"]["EvalSettings"]["properties"]["compile"] = {
        "enum": ["never"]
    }  # else it takes minutes
    good = values(operation["requestBody"]["content"]["application/json"]["schema"], cheap)
    codes: set[int] = set()

    @given(body=broken(good) if breaks else good)
    @settings(max_examples=40, deadline=None, database=None)
    def once(body: Any) -> None:
        reply = send("POST", path, json.dumps(body).encode())
        codes.add(reply.status_code)
        check_reply(reply, operation, page)

    once()
    assert codes >= ({422} if breaks else {200, 422}), codes
    assert (judge.waiting, judge.running) == (0, 0)


def test_every_get_replies_as_declared(send: Send, page: dict[str, Any]) -> None:
    paths = [path for path, methods in page["paths"].items() if "get" in methods]
    assert set(paths) == {"/health", "/workers", "/fault_statistics", "/metrics"}
    for path in paths:
        check_reply(send("GET", path), page["paths"][path]["get"], page)


@pytest.mark.parametrize(
    ("content", "code"), [(b"{", 422), (b"x" * 200_001, 413), (b'{"items": []}', 422), (b'{"a":' + b"[" * 50_000, 400)]
)
def test_refusals_as_declared(send: Send, page: dict[str, Any], content: bytes, code: int) -> None:
    for path in ("/eval", "/eval/batch"):
        reply = send("POST", path, content)
        assert reply.status_code == code, reply.text
        check_reply(reply, page["paths"][path]["post"], page)
