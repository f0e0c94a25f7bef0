"""The gate by itself: bodies are counted as they arrive, places in the queue are given back, whatever happens."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.server.gate import Admission, Gate, QueueFullError


def status_of(parts: list[int], limit: int, headers: dict[bytes, bytes] | None = None) -> tuple[int, int]:
    """Send a body in parts of these lengths; returns the status, and the bytes that the application got."""
    seen = 0
    sent: list[Any] = []
    messages = iter(
        {"type": "http.request", "body": b"x" * size, "more_body": place < len(parts) - 1}
        for place, size in enumerate(parts)
    )

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal seen
        more = True
        while more:
            message = await receive()
            seen += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    replies: Counter[int] = Counter()
    gate = Gate(app, token=None, max_body_bytes=limit, body_timeout_s=5.0, replies=replies)
    asyncio.run(gate({"type": "http", "path": "/v1", "headers": list((headers or {}).items())}, receive, send))
    (status,) = (message["status"] for message in sent if message["type"] == "http.response.start")
    assert replies == {status: 1}
    return status, seen


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 120))
def test_no_more_of_a_body_reaches_the_application_than_allowed(parts: list[int], limit: int) -> None:
    status, seen = status_of(parts, limit)
    assert status == (200 if sum(parts) <= limit else 413)
    assert seen <= limit


def test_an_announced_length_is_refused_before_the_body_is_read() -> None:
    assert status_of([10], 100, {b"content-length": b"101"}) == (413, 0)
    assert status_of([10], 100, {b"content-length": b"many"}) == (200, 10)


def admission(limit: int, durations: tuple[float, ...] = (), workers: int = 2) -> Admission:
    known = SimpleNamespace(counts=[len(durations)], total_s=sum(durations))
    return Admission(
        SimpleNamespace(statuses=SimpleNamespace(durations=known), config=SimpleNamespace(workers=workers)),  # pyright: ignore[reportArgumentType]
        limit,
    )


@given(st.lists(st.integers(1, 6), max_size=8))
def test_places_are_given_back_also_after_a_failure(counts: list[int]) -> None:
    queue = admission(5)
    for number, count in enumerate(counts):
        try:
            with queue.places(count):
                assert queue.taken == count
                if number % 2:
                    raise KeyError(number)
        except QueueFullError:
            assert count > 5
        except KeyError:
            pass
        assert queue.taken == 0


@pytest.mark.parametrize(
    ("durations", "count", "seconds"), [((), 3, 1), ((4.0, 6.0), 3, 8), ((100.0,), 3, 60), ((0.001,), 1, 1)]
)
def test_a_full_queue_says_when_to_come_again(durations: tuple[float, ...], count: int, seconds: int) -> None:
    """From what verdicts took so far, on two workers; between a second and a minute."""
    queue = admission(count, durations)
    with (
        queue.places(1),
        pytest.raises(QueueFullError, match="holds 1 kernels and has room for") as full,
        queue.places(count),
    ):
        pass
    assert full.value.retry_after_s == seconds
