"""Order of the work of several streams, as far as results depend on it."""

from collections.abc import Callable

import pytest

from kernels_eval.tracing.streams import DEFAULT, Streams

Side = Callable[[Streams, int], None]


def unordered(before: Side, after: Side) -> str | None:
    """Return what is not in order in the second of two calls in which another stream works."""
    streams = Streams()
    side = streams.make()
    for _ in range(2):
        streams.begin_call()
        streams.work()
        before(streams, side)
        streams.current = side
        streams.work()
        streams.current = DEFAULT
        after(streams, side)
        streams.end_call()
    return streams.unordered


def side_waits(streams: Streams, side: int) -> None:
    streams.wait(side, streams.times(DEFAULT))


def default_waits(streams: Streams, side: int) -> None:
    streams.wait(DEFAULT, streams.times(side))


def host_waits(streams: Streams, side: int) -> None:
    streams.wait_on_host(streams.times(side))


def everything_waits(streams: Streams, side: int) -> None:
    streams.wait_for_all()


def nothing_waits(streams: Streams, side: int) -> None:
    return


@pytest.mark.parametrize("before", [side_waits, everything_waits])
@pytest.mark.parametrize("after", [default_waits, host_waits, everything_waits])
def test_streams_that_wait_for_one_another_are_in_order(before: Side, after: Side) -> None:
    assert unordered(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [(nothing_waits, default_waits, "inputs that it did not wait for"),
     (side_waits, nothing_waits, "before the default stream waits"),
     (default_waits, side_waits, "inputs that it did not wait for")],
)  # fmt: skip
def test_a_stream_that_does_not_wait_is_named(before: Side, after: Side, message: str) -> None:
    assert message in (unordered(before, after) or "")


def test_to_have_waited_in_the_call_before_is_not_enough() -> None:
    streams = Streams()
    side = streams.make()
    streams.begin_call()
    side_waits(streams, side)
    streams.begin_call()
    streams.current = side
    streams.work()
    assert "did not wait" in (streams.unordered or "")


def test_one_stream_is_always_in_order() -> None:
    streams = Streams()
    streams.make()
    streams.begin_call()
    streams.work()
    streams.end_call()
    assert streams.unordered is None
