"""Frames arrive as sent, noise is refused before it costs anything; answers of another form are refused."""

import fcntl
import resource
import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernels_eval.sandbox.messages import (
    INTERPRETER_ANSWER,
    ChannelClosedError,
    ExecutedAnswer,
    FailedAnswer,
    MalformedFrameError,
    OutputForm,
    StateAnswer,
    has_news,
    receive_frame,
    send_frame,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.lists(st.binary(max_size=300), max_size=3))
def test_a_frame_arrives_as_it_was_sent(header: dict[str, object], parts: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_frame(ours, header, parts)
        assert receive_frame(theirs) == (header, bytearray(b"".join(parts)))


@given(st.binary(min_size=12, max_size=200))
def test_noise_ends_the_conversation(noise: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(noise)
        with pytest.raises((MalformedFrameError, ChannelClosedError)):
            _receive_all(theirs)


def _receive_all(channel: socket.socket) -> None:
    while True:
        receive_frame(channel, max_payload=1000)


@pytest.mark.parametrize(("header", "payload"), [(5 << 20, 0), (2, 1 << 50)])
def test_sizes_are_refused_before_anything_is_allocated(header: int, payload: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack(">IQ", header, payload) + b"{}")
        with pytest.raises(MalformedFrameError):
            receive_frame(theirs, max_payload=1 << 20)


def test_deep_nesting_is_malformed_not_a_crash() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        deep = b"[" * 50_000 + b"]" * 50_000
        ours.sendall(struct.pack(">IQ", len(deep), 0) + deep)
        with pytest.raises(MalformedFrameError):
            receive_frame(theirs)


def test_news_on_a_descriptor_of_any_number() -> None:
    """A server with many clients has more descriptors than select() takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs, socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD, 2000)) as high:
            assert high.fileno() >= 2000
            assert not has_news(high)
            ours.send(b"x")
            assert has_news(high, 5)
            high.recv(1)
            ours.close()
            assert has_news(high), "its end is news too"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


LAUNCH = {"kernel": "k", "programs": 2, "dram_bytes": 64.0, "l2_bytes": 64.0, "line": 3}
EXECUTED: dict[str, Any] = {
    "kind": "executed",
    "launches": [LAUNCH],
    "outputs": [{"origins": [1, 2, 3, 4, 5, 6]}],
    "value": 2.5,
    "wrote_weights": False,
}
FAILED: dict[str, Any] = {"kind": "failed", "status": "runtime_error", "category": "out_of_bounds", "message": "m"}


def test_answers_of_the_interpreter_process_are_read() -> None:
    executed = INTERPRETER_ANSWER.validate_python(EXECUTED)
    assert isinstance(executed, ExecutedAnswer)
    assert (executed.launches[0].line, executed.outputs[0].origins[5], executed.value) == (3, 6, 2.5)
    assert INTERPRETER_ANSWER.validate_python(FAILED) == FailedAnswer(**FAILED)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "ready"},
        {"kind": None},
        {"correct": True},
        {"launches": [LAUNCH | {"programs": -1}]},
        {"launches": [LAUNCH | {"l2_bytes": float("nan")}]},
        {"launches": [LAUNCH | {"dram_bytes": 1e19}]},
        {"launches": [LAUNCH] * 100_001},
        {"launches": {}},
        {"outputs": [{"origins": [1, 2, 3, 4, 5]}]},
        {"outputs": [{"origins": [1, 2, 3, 4, 5, -6]}]},
        {"outputs": [{"origins": [1, 2, 3, 4, 5, 6]}] * 257},
        {"value": [[1]]},
        {"value": ["many"]},
        {"value": "many"},
    ],
)
def test_an_answer_of_another_form_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        INTERPRETER_ANSWER.validate_python(EXECUTED | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"status": "correct"},
        {"status": "infrastructure_error"},
        {"category": "Wrong Values"},
        {"category": ""},
        {"category": "a" * 41},
        {"category": "line\n"},
        {"message": "m" * 2001},
        {"message": None},
    ],
)
def test_a_candidate_can_only_report_a_failure_of_its_own(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        INTERPRETER_ANSWER.validate_python(FAILED | changed)


@given(VALUES)
def test_any_value_is_refused_or_becomes_an_answer_and_nothing_else_happens(value: Any) -> None:
    for answer in (value, {"kind": "executed", "launches": value}, {"kind": "executed", "outputs": [value]}):
        try:
            found = INTERPRETER_ANSWER.validate_python(answer)
        except ValidationError:
            continue
        assert isinstance(found, ExecutedAnswer)
        assert (found.launches, found.outputs) == ((), ())


@pytest.mark.parametrize("state", [{"w": ("float32", (2, 3))}, {}, {f"w{n}": ("bool", ()) for n in range(10_000)}])
def test_a_state_is_names_types_and_shapes(state: dict[str, Any]) -> None:
    assert StateAnswer.model_validate({"kind": "ready", "state": state}).state == state


@pytest.mark.parametrize(
    "state",
    [
        {"w": ("float32", (-1,))},
        {"w": ("float32", (1 << 41,))},
        {"w": ("float32", (1,) * 17)},
        {"w": ("f" * 21, ())},
        {"w" * 201: ("float32", ())},
        {"w": ("float32",)},
        {"w": ("float32", (), b"\0")},
        {f"w{n}": ("bool", ()) for n in range(10_001)},
    ],
)
def test_a_state_of_another_form_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StateAnswer.model_validate({"kind": "ready", "state": state})


@pytest.mark.parametrize(
    "form",
    [
        {"dtype": "float31"},
        {"dtype": "float32 "},
        {"dtype": "object"},
        {"kind": "pickle"},
        {"shape": [-1]},
        {"shape": [1] * 17},
    ],
)
def test_an_output_is_of_a_known_type_and_a_possible_shape(form: dict[str, Any]) -> None:
    assert OutputForm(kind="tensor", dtype="bfloat16", shape=(2, 0)).shape == (2, 0)
    with pytest.raises(ValidationError):
        OutputForm.model_validate({"kind": "tensor"} | form)
