"""The judge's side of a session: each way in which a child can fail to answer gives one verdict."""

import json
import signal
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.child import CandidateFailedError, Child, out_of_turn
from kernels_eval.sandbox.fork_server import Ending
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import INTERPRETER_ANSWER, ExecutedAnswer, receive_frame, send_frame
from kernels_eval.verdict import Resources, Status

LIMITS = Limits(wall_s=7.5, memory_mb=512, cpu_s=2.5)


class OneChild:
    """A fork server whose only child is the other end of a socket, and which reports a chosen ending."""

    def __init__(self, ending: Ending) -> None:
        self.how = ending
        self.stopped = self.released = 0
        self.asked: list[int] = []
        self.ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(10)

    def start(self, memory: int | None, limits: Limits) -> socket.socket:
        self.ours.settimeout(10)
        return self.ours

    def stop(self) -> Ending:
        self.stopped += 1
        return self.how

    def release(self) -> int:
        self.released += 1
        return 7

    def ending(self, job: int) -> Ending:
        self.asked.append(job)
        return self.how


@pytest.fixture
def server() -> Iterator[OneChild]:
    made = OneChild(Ending("exit", 0))
    yield made
    made.ours.close()
    made.theirs.close()


def child_of(server: OneChild) -> Child:
    return Child(server, LIMITS, None, INTERPRETER_ANSWER)  # pyright: ignore[reportArgumentType]


def test_messages_go_both_ways_and_the_child_is_released_once(server: OneChild) -> None:
    with child_of(server) as child:
        child.send({"kind": "execute"}, [b"ab", b"c"])
        assert receive_frame(server.theirs) == ({"kind": "execute"}, bytearray(b"abc"))
        send_frame(server.theirs, {"kind": "executed", "value": 3}, [b"xyz"])
        answer, raw, payload = child.receive(10)
        assert (answer, raw, payload) == (
            ExecutedAnswer(kind="executed", value=3),
            {"kind": "executed", "value": 3},
            b"xyz",
        )
    assert (server.stopped, server.released) == (0, 1)


@pytest.mark.parametrize(
    ("ending", "status", "category", "words"),
    [
        (Ending("timeout", signal.SIGXCPU), Status.TIMEOUT, "timeout", "2.5 s of CPU time"),
        (Ending("timeout", signal.SIGKILL), Status.TIMEOUT, "timeout", "ran longer than 7.5 s"),
        (Ending("signal", signal.SIGSEGV), Status.RUNTIME_ERROR, "crashed", "ended by SIGSEGV"),
        (Ending("signal", 200), Status.RUNTIME_ERROR, "crashed", "ended by 200"),
        (Ending("exit", 3), Status.RUNTIME_ERROR, "no_answer", "without an answer (exit code 3)"),
        (Ending("stopped"), Status.RUNTIME_ERROR, "no_answer", "without an answer"),
    ],
)
@pytest.mark.parametrize("sending", [False, True])
def test_a_child_that_ends_is_explained_by_its_ending(
    server: OneChild, ending: Ending, status: Status, category: str, words: str, sending: bool
) -> None:
    server.how = ending
    server.theirs.close()
    with child_of(server) as child:
        if sending:
            child.send({"kind": "execute"}, [bytes(1 << 20)])
        with pytest.raises(CandidateFailedError) as caught:
            child.receive(10)
    assert (caught.value.status, caught.value.category) == (status, category)
    assert words in caught.value.message
    assert (server.stopped, server.released) == (1, 0)


def test_an_answer_that_takes_too_long_is_a_timeout_whatever_the_ending(server: OneChild) -> None:
    server.how = Ending("signal", signal.SIGKILL)
    with child_of(server) as child:
        child.limit_wait(0.05)
        with pytest.raises(CandidateFailedError, match=r"ran longer than 0\.05 s") as caught:
            child.receive(10)
    assert caught.value.status is Status.TIMEOUT


FAILED = {"kind": "failed", "status": "rejected", "category": "library_call", "message": "a library call"}


def test_a_reported_failure_is_the_verdict(server: OneChild) -> None:
    send_frame(server.theirs, FAILED)
    with child_of(server) as child, pytest.raises(CandidateFailedError, match="library call") as caught:
        child.receive(10)
    assert (caught.value.status, caught.value.category) == (Status.REJECTED, "library_call")


@pytest.mark.parametrize("ended", [False, True])
def test_what_a_child_answered_counts_in_its_order_whenever_it_ended(server: OneChild, ended: bool) -> None:
    """A request may meet a child that runs or one that has ended: the verdict is the same."""
    send_frame(server.theirs, {"kind": "executed", "value": 3})
    send_frame(server.theirs, FAILED)
    if ended:
        server.theirs.close()
    with child_of(server) as child:
        child.send({"kind": "execute"}, [bytearray()])
        assert child.receive(10)[0].value == 3
        with pytest.raises(CandidateFailedError, match="library call"):
            child.receive(10)


def test_how_a_child_ended_is_asked_once(server: OneChild) -> None:
    """The fork server tells it once: a second question would wait for a minute."""
    server.theirs.close()
    with child_of(server) as child:
        for _ in range(2):
            with pytest.raises(CandidateFailedError, match="without an answer"):
                child.receive(10)
    assert (server.stopped, server.released) == (1, 0)


def test_a_child_that_the_machine_kept_waiting_is_no_timeout() -> None:
    server = OneChild(Ending("starved"))
    server.theirs.close()
    with child_of(server) as child, pytest.raises(InfrastructureError, match="too busy"):
        child.receive(10)
    server.ours.close()


MALFORMED: list[bytes] = [
    b"not a frame of this protocol",
    struct.pack(">IQ", 2, 11) + b"{}" + bytes(11),  # a larger payload than was agreed
    struct.pack(">IQ", 2, 0) + b"[]",
    *(
        struct.pack(">IQ", len(text), 0) + text
        for text in (
            json.dumps(header).encode()
            for header in ({}, {"kind": "ready"}, FAILED | {"status": "correct"}, {"kind": "executed", "more": 1})
        )
    ),
]


@pytest.mark.parametrize("sent", MALFORMED)
def test_anything_else_is_a_malformed_answer(server: OneChild, sent: bytes) -> None:
    server.theirs.sendall(sent)
    with child_of(server) as child, pytest.raises(CandidateFailedError) as caught:
        child.receive(10)
    assert (caught.value.status, caught.value.category) == (Status.REJECTED, "malformed_answer")


@pytest.mark.parametrize(
    ("header", "where"),
    [
        ({"kind": "executed", "value": 1, "cpu_s": 1e7}, "executed.cpu_s"),
        (FAILED | {"message": "m" * 3000}, "failed.message"),
        ({"kind": "executed", "outputs": [{"origins": [0] * 6}] * 300}, "executed.outputs"),
    ],
)
def test_what_is_only_too_long_is_no_cheat(server: OneChild, header: dict[str, Any], where: str) -> None:
    send_frame(server.theirs, header)
    with child_of(server) as child, pytest.raises(CandidateFailedError) as caught:
        child.receive(10)
    assert (caught.value.status, caught.value.category) == (Status.RUNTIME_ERROR, "beyond_limits")
    assert where in caught.value.message
    assert len(caught.value.message) < 400


@given(st.sampled_from(list(Status)), st.booleans())
def test_the_verdict_on_a_failure_never_says_correct(status: Status, compiled: bool) -> None:
    used = (Resources(kernel="k", architecture="cuda:90"),)
    if status is Status.CORRECT:
        return
    verdict = CandidateFailedError(status, "some_reason", "because").verdict(compiled, used)
    assert not verdict.correct
    assert (verdict.status, verdict.error_category, verdict.error_message) == (status, "some_reason", "because")
    assert verdict.compiled == (compiled and status is not Status.COMPILE_ERROR)
    assert verdict.rejection_reason == ("some_reason" if status is Status.REJECTED else None)
    assert verdict.resources == used


def test_a_break_of_the_protocol_is_a_rejection() -> None:
    assert out_of_turn("x").status is Status.REJECTED


def test_a_released_child_is_waited_for_later_and_once(server: OneChild) -> None:
    child = child_of(server)
    with pytest.raises(InfrastructureError):
        child.wait_until_ended()
    child.release()
    assert (server.released, server.asked) == (1, [])
    child.wait_until_ended()
    child.wait_until_ended()
    assert server.asked == [7]
