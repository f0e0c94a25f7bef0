"""Messages between processes: frames over a stream socket, notes with descriptors, schemas of a candidate's answers.

A frame is `>IQ` (header bytes, payload bytes), the header as JSON, then the payload. Both lengths are checked against
the reader's limits before anything is allocated: a hostile sender can neither exhaust memory nor make the reader take
a part of one frame for the next, and the first malformed frame ends the session. Nothing that a candidate sends is
ever unpickled: answers are JSON, validated by the models below, and raw bytes.
"""

import json
import select
import socket
import struct
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from kernels_eval.cost.launch import DTYPE_NAMES, Launch, Name, Size
from kernels_eval.frozen import FrozenModel

_LENGTHS = struct.Struct(">IQ")
MAX_HEADER_BYTES = 4 << 20
_CHUNK = 1 << 20


class ChannelClosedError(Exception):
    """The other side has closed the channel."""


class OversizedFrameError(Exception):
    """A message is longer than its reader takes."""


class MalformedFrameError(Exception):
    """The received bytes are not a frame of this protocol."""


def send_frame(channel: socket.socket, header: dict[str, Any], payload: Sequence[bytes | memoryview] = ()) -> None:
    """Send one frame. Raises ChannelClosedError if the other side has closed, OversizedFrameError before it sends."""
    encoded = json.dumps(header, separators=(",", ":")).encode()
    if len(encoded) > MAX_HEADER_BYTES:
        raise OversizedFrameError(f"{len(encoded) / 2**20:.1f} MiB, at most {MAX_HEADER_BYTES >> 20}")
    size = sum(memoryview(part).nbytes for part in payload)
    try:
        channel.sendall(_LENGTHS.pack(len(encoded), size) + encoded)
        for part in payload:
            channel.sendall(part)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosedError from error


def receive_frame(channel: socket.socket, max_payload: int = 1 << 40) -> tuple[dict[str, Any], bytearray]:
    """Receive one frame. Raises TimeoutError after the channel's timeout, which bounds each wait for more bytes."""
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
    """Send one small message with open descriptors over a SOCK_SEQPACKET socket. Between trusted processes only."""
    try:
        socket.send_fds(channel, [json.dumps(note).encode()], list(descriptors))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosedError from error


def receive_note(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one note. Raises ChannelClosedError if the other side has closed."""
    try:
        data, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 8)
    except ConnectionResetError as error:
        raise ChannelClosedError from error
    if not data:
        raise ChannelClosedError
    return json.loads(data), descriptors


def note_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that keep message boundaries and carry descriptors."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def has_news(channel: socket.socket, wait_s: float = 0.0) -> bool:
    """Return whether a message has arrived or the other side has closed. Unlike select(), for any descriptor."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(1000 * wait_s))


_Forms = Annotated[
    dict[Name, tuple[Annotated[str, Field(max_length=20)], Annotated[tuple[Size, ...], Field(max_length=16)]]],
    Field(max_length=10_000),
]


class StateAnswer(FrozenModel):
    """The candidate is loaded; type and shape of its parameters and buffers by name, and of its plain tensors."""

    kind: Literal["ready"]
    state: _Forms
    plain: _Forms = Field(default={})
    registered: _Forms = Field(default={})
    """Of those in `state` that stand for what was drawn for them: as they are registered, of equal form at times."""
    computed: Annotated[tuple[Name, ...], Field(max_length=5)] = ()
    """Names of those that the constructor computed of others. Without a GPU a message alone depends on it."""
    configurations: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Configurations among which autotuned kernels choose, on a GPU. A message alone depends on it."""


class FailedAnswer(FrozenModel):
    """The candidate failed. Sent by a candidate's process, which gains nothing by sending it."""

    kind: Literal["failed"]
    status: Literal["compile_error", "runtime_error", "incorrect", "rejected"]
    category: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]
    message: Annotated[str, Field(max_length=2000)]


class OutputForm(FrozenModel):
    """One output: a tensor whose bytes follow, or something else."""

    kind: Literal["tensor", "other"]
    dtype: Annotated[str, Field(max_length=20, pattern="|".join(f"^{name}$" for name in DTYPE_NAMES))] = "float32"
    shape: Annotated[tuple[Size, ...], Field(max_length=16)] = ()
    type: Annotated[str, Field(max_length=100)] = "Tensor"
    expanded: bool = False


class OutputFacts(FrozenModel):
    """One output of the interpreter process, beside its content."""

    origins: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=6, max_length=6)]
    """Number of elements by their last writer (kernels_eval.interpreter.memory_accesses.Origin)."""


class ExecutedAnswer(FrozenModel):
    """Answer of the interpreter process: what was launched. The outputs' bytes follow."""

    kind: Literal["executed"]
    launches: Annotated[tuple[Launch, ...], Field(max_length=100_000)] = ()
    outputs: Annotated[tuple[OutputFacts, ...], Field(max_length=256)] = ()
    value: bool | int | float | Annotated[tuple[bool | int | float, ...], Field(max_length=1 << 16)] | None = None
    """The value that host code reads, or a list of them, if it asked for one."""
    wrote_weights: bool = False
    """A kernel has written into a weight or a buffer that the judge set."""
    undefined_line: Annotated[int, Field(ge=0, le=1 << 30)] | None = None
    """Line of the first load that left lanes undefined, 0 if it is not known; None: no load did."""
    rounded_products: bool = False
    """A product of float32 was in TF32 whose kernel names no precision."""
    cpu_s: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """CPU time of this part of the program."""


InterpreterAnswer = ExecutedAnswer | FailedAnswer
INTERPRETER_ANSWER: TypeAdapter[InterpreterAnswer] = TypeAdapter(
    Annotated[InterpreterAnswer, Field(discriminator="kind")]
)
