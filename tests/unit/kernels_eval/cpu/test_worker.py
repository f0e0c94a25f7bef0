"""A worker's answers to a grader that fails: what the machine did, what the judge's code did, and what ends it."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kernels_eval.cpu.worker import serve_requests
from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame


class DeviceError(Exception):
    """A device's own error, which a worker names."""


def replies_of(grade: Callable[[dict[str, Any]], dict[str, Any]], requests: int = 2) -> list[dict[str, Any]]:
    """Return the replies of a worker until it ends, or to so many requests."""
    ours, theirs = socket.socketpair()
    found: list[dict[str, Any]] = []

    def serve() -> None:
        with theirs:
            try:
                serve_requests(theirs, {}, grade, (DeviceError,))
            except Exception as error:  # noqa: BLE001 (what ends a worker's process)
                ended.append(error)

    ended: list[Exception] = []
    thread = threading.Thread(target=serve)
    thread.start()
    with ours:
        try:
            assert receive_frame(ours)[0]["kind"] == "hello"
            for _ in range(requests):
                send_frame(ours, {"kind": "evaluate"})
                found.append(receive_frame(ours)[0])
        except (ChannelClosedError, OSError):
            found += [{"kind": "ended", "by": each} for each in ended] or [{"kind": "ended"}]
    thread.join(10)
    return found


def failing(error: Exception) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def grade(_: dict[str, Any]) -> dict[str, Any]:
        raise error

    return grade


def test_a_verdict_is_sent_and_the_next_request_is_awaited() -> None:
    assert replies_of(lambda _: {"verdict": "right"}) == [{"kind": "graded", "verdict": "right"}] * 2


def test_an_exception_that_nobody_expected_is_told_before_the_worker_ends() -> None:
    first, second = replies_of(failing(ValueError("a size below zero\nand more")))
    assert first == {"kind": "bug", "message": "ValueError: a size below zero"}
    assert second["kind"] == "ended"


def test_a_fault_of_the_machine_is_told_as_one() -> None:
    assert replies_of(failing(InfrastructureError("no interpreter")))[0] == {
        "kind": "fault",
        "message": "no interpreter",
    }


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(28, "No space left on device"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        TimeoutError("the driver's lock"),
        DeviceError("an illegal memory access"),
    ],
)
def test_what_the_machine_lacks_is_no_bug(error: Exception) -> None:
    (ended,) = replies_of(failing(error))
    assert ended["kind"] == "ended"


@pytest.mark.parametrize("words", ["no kernel CUDA_out_of_memory", "DefaultCPUAllocator: can't allocate memory"])
def test_a_candidates_words_do_not_make_a_bug_the_machines(words: str) -> None:
    assert replies_of(failing(KeyError(words)))[0]["kind"] == "bug"
