"""Tracing process: streams and events of the virtual GPU, whose order `kernels_eval.tracing.streams` keeps.

They hold numbers that never change with the calls, so that a model may keep them. Their attributes have names that a
candidate's file cannot use (kernels_eval.sandbox.guarded_names).
"""

import contextlib
from typing import Any, ClassVar

import torch

from kernels_eval.tracing.streams import DEFAULT, Streams, Times
from kernels_eval.tracing.tracer import Tracer

MILLISECONDS = 1.0
"""Time of everything that host code measures."""


class Inert(contextlib.AbstractContextManager["Inert"]):
    """Stream, event or device guard without effect: all operations run in order."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept and ignore any arguments."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        """Return a method without effect; `record_event` and the like return another inert object."""
        if name.startswith("__"):
            raise AttributeError(name)
        is_wait = name in ("synchronize", "wait_stream", "wait_event", "wait")
        return (lambda *_, **__: None) if is_wait else Inert


class Event(Inert):
    """Event without a clock: any two lie the same time apart, and no choice that host code makes by times is better."""

    def elapsed_time(self, _: Any) -> float:
        """Return a time in milliseconds."""
        return MILLISECONDS

    def query(self) -> bool:
        """Return True: all work is done at once."""
        return True


class _OrderedEvent(Event):
    """Event, with the work that came before it."""

    kernels_eval_tracer: ClassVar[Tracer]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.kernels_eval_times: Times = {}

    def record(self, stream: Any = None) -> None:
        streams = self.kernels_eval_tracer.streams
        self.kernels_eval_times = streams.times(_number(streams, stream))

    def wait(self, stream: Any = None) -> None:
        streams = self.kernels_eval_tracer.streams
        streams.wait(_number(streams, stream), self.kernels_eval_times)

    def query(self) -> bool:
        return self.kernels_eval_tracer.streams.is_done(self.kernels_eval_times)

    def synchronize(self) -> None:
        self.kernels_eval_tracer.streams.wait_on_host(self.kernels_eval_times)
        self.kernels_eval_tracer.synchronise(is_for_all=False)


class _OrderedStream(Inert):
    """Stream, by its number."""

    kernels_eval_tracer: ClassVar[Tracer]

    def __init__(self, *_: Any, number: int | None = None, **__: Any) -> None:
        self.kernels_eval_number = self.kernels_eval_tracer.streams.make() if number is None else number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OrderedStream) and other.kernels_eval_number == self.kernels_eval_number

    def __hash__(self) -> int:
        return self.kernels_eval_number

    def query(self) -> bool:
        streams = self.kernels_eval_tracer.streams
        return streams.is_done(streams.times(self.kernels_eval_number))

    def wait_stream(self, stream: Any) -> None:
        streams = self.kernels_eval_tracer.streams
        streams.wait(self.kernels_eval_number, streams.times(stream.kernels_eval_number))

    def wait_event(self, event: Any) -> None:
        self.kernels_eval_tracer.streams.wait(self.kernels_eval_number, event.kernels_eval_times)

    def record_event(self, event: Any = None) -> Any:
        recorded = _OrderedEvent() if event is None else event
        recorded.record(self)
        return recorded

    def synchronize(self) -> None:
        streams = self.kernels_eval_tracer.streams
        streams.wait_on_host(streams.times(self.kernels_eval_number))
        self.kernels_eval_tracer.synchronise(is_for_all=False)


class _Current(contextlib.AbstractContextManager[None]):
    """Replacement of torch.cuda.stream."""

    kernels_eval_tracer: ClassVar[Tracer]

    def __init__(self, stream: Any = None) -> None:
        self._number = _number(self.kernels_eval_tracer.streams, stream)
        self._before = DEFAULT

    def __enter__(self) -> None:
        streams = self.kernels_eval_tracer.streams
        self._before, streams.current = streams.current, self._number

    def __exit__(self, *_: object) -> None:
        self.kernels_eval_tracer.streams.current = self._before


def install(cuda: Any, tracer: Tracer) -> None:
    """Replace the streams and events of torch.cuda."""

    def set_stream(stream: Any) -> None:
        tracer.streams.current = stream.kernels_eval_number

    for replacement in (_OrderedEvent, _OrderedStream, _Current):
        replacement.kernels_eval_tracer = tracer
    cuda.Stream = cuda.ExternalStream = _OrderedStream
    cuda.Event, cuda.stream, cuda.set_stream = _OrderedEvent, _Current, set_stream
    cuda.current_stream = lambda *_, **__: _OrderedStream(number=tracer.streams.current)
    accelerator: Any = torch.accelerator
    accelerator.current_stream = cuda.current_stream
    cuda.default_stream = lambda *_, **__: _OrderedStream(number=DEFAULT)


def _number(streams: Streams, stream: Any) -> int:
    return streams.current if stream is None else stream.kernels_eval_number
