"""The application without routes: its page asks no other host, and its schema says what a reply and a caller need."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
from fastapi import FastAPI
from pydantic import BaseModel

from kernels_eval.server.application import LINES, open_application
from kernels_eval.verdict import JUDGE_VERSION


class Wanted(BaseModel):
    """A request."""

    count: int


@contextlib.asynccontextmanager
async def nothing(_: FastAPI) -> AsyncIterator[None]:
    yield


def application(has_token: bool) -> FastAPI:
    app = open_application("kernels", "s", nothing, has_token=has_token, streaming=("/many", "post"))

    @app.post("/many")
    def many(wanted: Wanted) -> list[int]:
        return [wanted.count]

    return app


def get(app: FastAPI, path: str) -> httpx.Response:
    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(once())


def test_the_page_is_served_under_a_policy_that_loads_nothing_from_elsewhere() -> None:
    reply = get(application(has_token=False), "/docs")
    assert reply.status_code == 200
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "http:" not in policy
    assert "/many" in reply.text
    assert get(application(has_token=False), "/redoc").status_code == 404


def test_the_streamed_reply_is_declared_as_lines() -> None:
    schema = get(application(has_token=False), "/openapi.json").json()
    assert list(schema["paths"]["/many"]["post"]["responses"]["200"]["content"]) == [LINES]
    assert schema["info"]["version"] == JUDGE_VERSION


def test_a_token_is_in_the_schema_if_there_is_one() -> None:
    with_token, without = (get(application(has), "/openapi.json").json() for has in (True, False))
    assert with_token["paths"]["/many"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in without["paths"]["/many"]["post"]
