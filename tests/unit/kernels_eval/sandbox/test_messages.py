"""Frames: what is sent arrives; what is not a frame is refused before it costs anything."""

import fcntl
import resource
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.sandbox.messages import ChannelClosedError, MalformedFrameError, has_news, receive_frame, send_frame

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
