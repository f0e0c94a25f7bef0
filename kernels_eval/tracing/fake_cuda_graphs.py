"""CUDA graphs on the virtual GPU: what host code asks for while it captures is kept, and asked for at each replay.

As on a GPU, nothing runs while a graph is captured, and a replay works on the tensors of the capture. Inputs are other tensors
in every call: a graph that was captured over an input itself cannot be replayed in another call, where a GPU would read freed memory.
"""

import contextlib
from typing import Any

import torch

from kernels_eval.trace.schema import FIRST_WEIGHT
from kernels_eval.tracing.tracer import Tracer


def install(tracer: Tracer) -> None:
    """Put graphs in place in this process."""
    cuda: Any = torch.cuda

    class Graph(_Graph):
        """A graph of this process's tracer."""

        tracer_of_all = tracer

    cuda.CUDAGraph = Graph
    cuda.graph = _Capture
    cuda.graph_pool_handle = lambda *_, **__: (0, 0)
    cuda.is_current_stream_capturing = lambda: tracer.captured is not None


class _Graph:
    """Stands for torch.cuda.CUDAGraph."""

    tracer_of_all: Tracer

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take whatever is given."""
        self._commands: list[dict[str, Any]] = []
        self._made: list[int] = []
        self._call = 0
        self._reads_input = False

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Keep what is asked for from here on."""
        tracer = self.tracer_of_all
        if tracer.captured is not None:
            raise RuntimeError("a graph is being captured already")
        tracer.captured = []
        self._call = tracer.calls

    def capture_end(self) -> None:
        """Keep no more."""
        tracer = self.tracer_of_all
        if tracer.captured is None:
            raise RuntimeError("no graph is being captured")
        self._commands, tracer.captured = tracer.captured, None
        known: set[int] = set()
        for command in self._commands:
            taken = _storages([command.get("arguments"), command.get("named")])
            self._reads_input |= any(number < FIRST_WEIGHT for number in taken)
            self._made += _storages(command.get("results")) - taken - known
            known |= taken | set(self._made)

    def replay(self) -> None:
        """Ask for everything once more."""
        tracer = self.tracer_of_all
        if self._reads_input and self._call != tracer.calls:
            raise RuntimeError("this graph was captured over an input of an earlier call, which is gone")
        tracer.command({"kind": "free", "storages": list(self._made)})
        for command in self._commands:
            tracer.command(command)

    def reset(self) -> None:
        """Forget everything."""
        self._commands, self._made = [], []

    def pool(self) -> tuple[int, int]:
        """Return a name for its memory."""
        return (0, 0)


class _Capture(contextlib.AbstractContextManager["_Capture"]):
    """Stands for torch.cuda.graph."""

    def __init__(self, cuda_graph: _Graph, *_: Any, **__: Any) -> None:
        """Capture into a graph; pool, stream and mode mean nothing here."""
        self._graph = cuda_graph

    def __enter__(self) -> "_Capture":
        """Begin."""
        self._graph.capture_begin()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._graph.capture_end()


def _storages(value: Any) -> set[int]:
    """Find the storages of all views in a part of a command."""
    if isinstance(value, dict):
        own = {value["storage"]} if value.get("kind") == "view" else set[int]()
        return own.union(*map(_storages, value.values()))
    return set[int]().union(*map(_storages, value)) if isinstance(value, list | tuple) else set()
