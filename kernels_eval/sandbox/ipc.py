"""Framed messages over a socket: a JSON header and raw bytes. Nothing that a candidate sends is ever unpickled.

A frame is `>IQ` (header bytes, payload bytes), the header as JSON, then the payload. Both lengths are checked against the
reader's limits before anything is allocated, so that a hostile sender can neither exhaust memory nor desynchronise us
into trusting a later frame: the first malformed frame ends the session.
"""

import json
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTHS = struct.Struct(">IQ")
MAX_HEADER_BYTES = 4 << 20
_CHUNK = 1 << 20


class ChannelClosedError(Exception):
    """The other side is gone."""


class MalformedFrameError(Exception):
    """What arrived is not a frame that we would have sent."""


def send_frame(channel: socket.socket, header: dict[str, Any], payload: Sequence[bytes | memoryview] = ()) -> None:
    """Send one frame; ChannelClosedError where nobody listens any more."""
    encoded = json.dumps(header, separators=(",", ":")).encode()
    size = sum(memoryview(part).nbytes for part in payload)
    try:
        channel.sendall(_LENGTHS.pack(len(encoded), size) + encoded)
        for part in payload:
            channel.sendall(part)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosedError from error


def receive_frame(channel: socket.socket, max_payload: int = 1 << 40) -> tuple[dict[str, Any], bytearray]:
    """Receive one frame; TimeoutError after the channel's own timeout, which bounds each wait for more bytes."""
    header_size, payload_size = _LENGTHS.unpack(_receive_exactly(channel, _LENGTHS.size))
    if header_size > MAX_HEADER_BYTES or payload_size > max_payload:
        raise MalformedFrameError(f"frame of {header_size} + {payload_size} bytes")
    try:
        header = json.loads(_receive_exactly(channel, header_size))
    except (ValueError, RecursionError) as error:
        raise MalformedFrameError("header is not JSON") from error
    if not isinstance(header, dict):
        raise MalformedFrameError("header is not an object")
    return header, _receive_exactly(channel, payload_size)


def _receive_exactly(channel: socket.socket, size: int) -> bytearray:
    buffer = bytearray()
    while len(buffer) < size:
        try:
            part = channel.recv(min(size - len(buffer), _CHUNK))
        except ConnectionResetError as error:
            raise ChannelClosedError from error
        if not part:
            raise ChannelClosedError
        buffer += part
    return buffer


def send_note(channel: socket.socket, note: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one small message with open descriptors over a SOCK_SEQPACKET socket (between our own processes only)."""
    try:
        socket.send_fds(channel, [json.dumps(note).encode()], list(descriptors))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosedError from error


def receive_note(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive what send_note sent; ChannelClosedError at the end."""
    try:
        data, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 8)
    except ConnectionResetError as error:
        raise ChannelClosedError from error
    if not data:
        raise ChannelClosedError
    return json.loads(data), descriptors


def note_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep message boundaries and carry descriptors."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def has_news(channel: socket.socket, wait_s: float = 0.0) -> bool:
    """True where there is something to be read, or the other side is gone. For descriptors of any number, unlike select()."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(1000 * wait_s))
