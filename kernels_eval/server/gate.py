"""Gate: everything that refuses a request (origin, token, size, time, places in the queue), and the replies to it.

`Gate` is plain ASGI, outside the framework: a request without the token is refused before its body is read, and no
more of a body is held than allowed, whatever its headers say.

A browser on this machine reaches loopback, and sends requests that any web page asks for. Two headers, which a page
cannot change, tell them apart: `Origin` names the page's site, which must be this server; `Host` names what the
browser looked up. A site may have its own name resolve to 127.0.0.1 and then is "the same origin" (DNS rebinding).
Without a token the server listens on loopback alone, and `Host` must be a loopback name.
"""

import asyncio
import contextlib
import hmac
import itertools
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from kernels_eval.errors import InfrastructureError
from kernels_eval.judge import Judge
from kernels_eval.loopback import is_on_loopback
from kernels_eval.server.schemas import NAMES, ErrorReply, InvalidReply, Misfit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_LINGER_S = 5.0
_SHORTEST_RETRY_S = 1
_LONGEST_RETRY_S = 60
_MOST_MISFITS = 50
"""Wrong fields of a request that a refusal names."""
_UNKNOWN_VERDICT_S = 0.1
"""Assumed duration of a verdict before there were any."""
OPEN_PATHS = frozenset({"/health", "/docs"})
"""Open without the token: to monitoring, and to a reader, who gives the token to the page."""
FOREIGN: dict[int | str, dict[str, Any]] = {
    403: {"model": ErrorReply, "description": "A web page of another site, or another host name, asked."}
}
UNAUTHORISED: dict[int | str, dict[str, Any]] = FOREIGN | {
    401: {"model": ErrorReply, "description": "The server has a token, and it was not sent."}
}
REFUSALS: dict[int | str, dict[str, Any]] = UNAUTHORISED | {
    400: {"model": ErrorReply, "description": "The body is nested too deeply to be read."},
    408: {"model": ErrorReply, "description": "The request took too long to arrive."},
    413: {"model": ErrorReply, "description": "The request, or a source in it, is too long."},
    422: {
        "model": InvalidReply,
        "description": "The body is not JSON, a field is missing or wrong, or the problem is not a problem.",
    },
    429: {
        "model": ErrorReply,
        "description": "The queue is full.",
        "headers": {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}},
    },
    503: {
        "model": ErrorReply,
        "description": "The server is stopping, or the machine failed (KernelBench's names only).",
    },
}
"""Replies without a verdict, as the OpenAPI page declares them."""


class Gate:
    """Wraps the application: checks each request before the framework sees it, and counts replies by status code."""

    def __init__(
        self, app: App, *, token: str | None, max_body_bytes: int, body_timeout_s: float, replies: Counter[int]
    ) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._replies = replies

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def counted_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._replies[message["status"]] += 1
            await send(message)

        try:
            headers: dict[bytes, bytes] = dict(scope["headers"])
            self._check_origin(headers)
            self._check_token(scope["path"], headers)
            self._check_announced_size(headers)
            await self._app(scope, self._limited(receive), counted_send)
        except HTTPException as refused:
            if not started:
                await _reply(counted_send, refused, receive)

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """Refuse what a web page of another site sends, with or without a name of its own for this machine."""
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            raise HTTPException(403, "Origin: expected none, or this server's own: it answers to no other web page")
        if self._token is None and host and not is_on_loopback(f"http://{host}"):
            raise HTTPException(403, "Host: expected a loopback name or address: this server has no token")

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._token is None or path in OPEN_PATHS:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            expected = "expected the header `Authorization: Bearer <token>` with this server's token"
            raise HTTPException(401, expected, {"WWW-Authenticate": "Bearer"})

    def _check_announced_size(self, headers: dict[bytes, bytes]) -> None:
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_body_bytes:
            raise self._too_large()

    def _limited(self, receive: Receive) -> Receive:
        """Return a `receive` that counts the body's bytes and bounds the time until it is complete."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._body_timeout_s
        received, complete = 0, False

        async def limited() -> Message:
            nonlocal received, complete
            if complete:  # the next message is the client's disconnecting, which may come as late as the verdict
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the request was not complete after {self._body_timeout_s:g} s") from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > self._max_body_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"the request is longer than {self._max_body_bytes} bytes")


async def _reply(send: Send, refused: HTTPException, receive: Receive) -> None:
    """Refuse a request that the application has not seen, or whose body never came.

    The rest of the body is read for a while: a connection that is closed while the client still sends loses the reply.
    """
    body = json.dumps({"detail": refused.detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *((name.lower().encode(), value.encode()) for name, value in (refused.headers or {}).items()),
    ]
    await send({"type": "http.response.start", "status": refused.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b""})


class QueueFullError(Exception):
    """The queue is full; `retry_after_s` estimates when it no longer is."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Admission:
    """The bounded queue: counts the kernels of all clients. For one event loop, hence without a lock."""

    def __init__(self, judge: Judge, limit: int) -> None:
        self._judge = judge
        self._limit = limit
        self.taken = 0

    @contextlib.contextmanager
    def places(self, count: int) -> Generator[None]:
        """Hold places for `count` kernels while the block runs. Raises QueueFullError if there are fewer."""
        if self.taken + count > self._limit:
            free = self._limit - self.taken
            raise QueueFullError(
                f"the queue holds {self.taken} kernels and has room for {free} more, not {count}",
                self._retry_after_s(count),
            )
        self.taken += count
        try:
            yield
        finally:
            self.taken -= count

    def _retry_after_s(self, count: int) -> int:
        """Estimate when `count` places are free, from how long verdicts took so far."""
        durations = self._judge.statuses.durations
        judged = sum(durations.counts)
        each_s = durations.total_s / judged if judged else _UNKNOWN_VERDICT_S
        seconds = count * each_s / self._judge.config.workers
        return min(max(math.ceil(seconds), _SHORTEST_RETRY_S), _LONGEST_RETRY_S)


def add_refusals(app: FastAPI) -> None:
    """Turn these exceptions of any route into replies: 422, 429 and 503."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(QueueFullError, _on_full_queue)
    app.add_exception_handler(InfrastructureError, _on_stopping)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """Name the fields that are wrong, without sending the client's own input back."""
    assert isinstance(error, RequestValidationError)
    found = [
        Misfit(
            loc=[_printable(part) for part in item["loc"] if part not in NAMES],
            msg=_printable(item["msg"]),
            type=item["type"],
        )
        for item in itertools.islice(error.errors(), _MOST_MISFITS)
    ]
    return _json(422, InvalidReply(detail=found))


def _printable(part: Any) -> Any:
    """Replace lone surrogates, which UTF-8 cannot encode: names and messages may hold what a client sent."""
    return part.encode("utf-8", "backslashreplace").decode()[:1000] if isinstance(part, str) else part


async def _on_full_queue(_: Request, error: Exception) -> Response:
    assert isinstance(error, QueueFullError)
    return _json(429, ErrorReply(detail=str(error)), {"Retry-After": str(error.retry_after_s)})


async def _on_stopping(_: Request, error: Exception) -> Response:
    return _json(503, ErrorReply(detail=str(error)))


def _json(status: int, reply: ErrorReply | InvalidReply, headers: dict[str, str] | None = None) -> Response:
    return Response(reply.model_dump_json(), status, headers, media_type="application/json")
