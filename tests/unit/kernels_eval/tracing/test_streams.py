"""Order of the work of several streams, as far as results depend on it."""

from collections.abc import Callable

import pytest

from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT
from kernels_eval.tracing.streams import DEFAULT, Streams

Side = Callable[[Streams, int], None]


def unordered(before: Side, after: Side) -> str | None:
    """Return what is not in order in the second of two calls in which another stream works."""
    streams = Streams()
    side = streams.make()
    for _ in range(2):
        streams.begin_call()
        streams.work({0}, set())
        before(streams, side)
        streams.current = side
        streams.work({0}, set())
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
    streams.work({0}, set())
    assert "did not wait" in (streams.unordered or "")


def test_one_stream_is_always_in_order() -> None:
    streams = Streams()
    streams.make()
    streams.begin_call()
    streams.work({0}, set())
    streams.end_call()
    assert streams.unordered is None


@pytest.mark.parametrize(
    ("taken", "before", "is_ordered"),
    [
        (set[int](), set[int](), True),
        ({FIRST_WEIGHT}, set[int](), True),
        ({FIRST_OWN}, set[int](), True),
        ({FIRST_OWN}, {0}, False),
        ({0}, set[int](), False),
    ],
    ids=["nothing", "a weight", "what an earlier call made", "what the inputs gave", "an input"],
)
def test_only_what_depends_on_the_inputs_waits_for_them(taken: set[int], before: set[int], is_ordered: bool) -> None:
    streams = Streams()
    side = streams.make()
    streams.begin_call()
    if before:
        streams.work(before, {FIRST_OWN})
    streams.current = side
    streams.work(taken, {FIRST_OWN + 1})
    streams.work({FIRST_OWN + 1}, {FIRST_OWN + 2})
    assert (streams.unordered is None) is is_ordered


def test_what_another_stream_has_made_of_nothing_waits() -> None:
    streams = Streams()
    sides = [streams.make(), streams.make()]
    streams.begin_call()
    streams.current = sides[0]
    streams.work(set(), {FIRST_OWN})
    streams.current = sides[1]
    streams.work({FIRST_OWN}, set())
    assert streams.unordered is not None


def ask(streams: Streams, side: int, times: int) -> list[bool]:
    return [streams.is_done(streams.times(side)) for _ in range(times)]


def asks_once(streams: Streams, side: int) -> None:
    assert ask(streams, side, 1) == [False]


def asks_until_it_is_done(streams: Streams, side: int) -> None:
    assert ask(streams, side, 3) == [False, True, True]


def test_asking_until_work_is_done_is_waiting_for_it() -> None:
    assert unordered(side_waits, asks_until_it_is_done) is None
    assert unordered(side_waits, asks_once) is not None


def test_what_the_host_has_waited_for_is_done() -> None:
    streams = Streams()
    side = streams.make()
    streams.begin_call()
    host_waits(streams, side)
    assert ask(streams, side, 1) == [True]
