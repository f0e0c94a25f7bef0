"""Client of the judge's HTTP server, in the caller's process: has the asynchronous method of `kernels_eval.Judge`.

    async with HttpJudge("http://127.0.0.1:18188") as judge:
        verdict = await judge.evaluate_async(problem, kernel_source)

A full queue is waited for, as long as the caller waits. A server that cannot be reached or fails is asked again, then
an InfrastructureError: no verdict. A request that is refused for what it says (token, problem, setting) is an
InputError.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import ValidationError

from kernels_eval.config import TOKEN_VARIABLE
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_CONNECT_TIMEOUT_S = 10.0


class HttpJudge:
    """A judge at the other end of HTTP. For one event loop; many calls may be under way."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        settings: Mapping[str, Any] | None = None,
        attempts: int = 5,
        timeout_s: float = 600.0,
    ) -> None:
        """`token`: by default that of the environment. `settings`: of each request (kernels_eval.config.CHANGEABLE).

        `attempts`: at a server that fails; `timeout_s`: of one attempt, the server's queue included.
        """
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        self._url = url.rstrip("/")
        self._settings = dict(settings or {})
        self._attempts = attempts
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            limits=httpx.Limits(max_connections=None),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S), pool=None),
            trust_env=False,
        )

    async def __aenter__(self) -> "HttpJudge":
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def evaluate_async(self, problem: Problem | str, kernel_source: str, backend: str | None = None) -> Verdict:
        """Return the verdict on one kernel. Raises InputError if refused, InfrastructureError if the server fails."""
        source = problem if isinstance(problem, str) else problem.source
        request = {"problem_source": source, "kernel_source": kernel_source, "settings": self._settings}
        body = json.dumps(request if backend is None else {**request, "backend": backend}).encode()
        failures, wait_s, failure = 0, _FIRST_WAIT_S, ""
        while failures < self._attempts:
            if failure:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            try:
                reply = await self._client.post(
                    f"{self._url}/eval", content=body, headers={"Content-Type": "application/json"}
                )
            except httpx.HTTPError as error:
                failures, failure = failures + 1, f"{type(error).__name__}: {error}"
                continue
            if reply.status_code == 429:
                failure, wait_s = "", _FIRST_WAIT_S
                await asyncio.sleep(_retry_after_s(reply))
                continue
            if reply.status_code < 500:
                return self._verdict(reply)
            failures, failure = failures + 1, f"status {reply.status_code}: {_detail(reply)}"
        raise InfrastructureError(f"{self._url}: the judge gave no verdict in {self._attempts} attempts: {failure}")

    def _verdict(self, reply: httpx.Response) -> Verdict:
        detail = _detail(reply)
        if reply.status_code == 413 and detail.startswith("kernel_source:"):
            return Verdict(
                status=Status.COMPILE_ERROR, error_category=ErrorCategory.SOURCE_TOO_LONG, error_message=detail
            )
        if reply.status_code in (400, 401, 404, 413, 422):
            raise InputError(f"{self._url}: the judge refused the request ({reply.status_code}): {detail}")
        try:
            known: dict[str, Any] = {
                name: value for name, value in reply.json().items() if name in Verdict.model_fields
            }
            return Verdict.model_validate(known)
        except (ValueError, AttributeError, ValidationError) as error:
            raise InfrastructureError(f"{self._url}: not a verdict ({reply.status_code}): {detail}") from error


def _retry_after_s(reply: httpx.Response) -> float:
    announced = reply.headers.get("Retry-After", "")
    return min(float(announced), _LONGEST_WAIT_S) if announced.isdecimal() else 1.0


def _detail(reply: httpx.Response) -> str:
    """Return what a refusal says, in one line of at most 500 characters."""
    try:
        found: Any = reply.json()
        found = found.get("detail", found)
    except (ValueError, AttributeError):
        found = reply.text
    if isinstance(found, list):
        found = "; ".join(f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}" for one in found[:3])
    return " ".join(str(found).split())[:500]
