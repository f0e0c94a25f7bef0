"""What every request passes first: the token, the limit on its size, the time that it may take to arrive, and the count of replies.

Plain ASGI, outside the framework: a request without the token is refused before its body is read, and no body is ever held that
is larger than allowed, whatever its headers say.
"""

import asyncio
import contextlib
import hmac
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_LINGER_S = 5.0
OPEN_PATHS = frozenset({"/health"})
"""Asked by whoever watches over the server, who need not know the token."""


class Gate:
    """Wraps the application."""

    def __init__(
        self, app: App, *, token: str | None, max_body_bytes: int, body_timeout_s: float, replies: Counter[int]
    ) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._replies = replies

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """TracedTensor one connection event."""
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
            self._check_token(scope["path"], headers)
            self._check_announced_size(headers)
            await self._app(scope, self._limited(receive), counted_send)
        except HTTPException as refused:
            if not started:
                await _reply(counted_send, refused, receive)

    def _check_token(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._token is None or path in OPEN_PATHS:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            raise HTTPException(
                401,
                "expected the header `Authorization: Bearer <token>` with this server's token",
                {"WWW-Authenticate": "Bearer"},
            )

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
            if complete:  # what comes now is the client's hanging up, which may take as long as the verdict does
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

    What the client is still sending is read for a while: closing the connection under it would cost it the reply.
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
