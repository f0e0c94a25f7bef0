"""Has kernels compiled for the configured targets, once each: a pool of confined processes and a cache.

What is compiled is what the interpreter ran: the sources of the kernels (KernelSource), never the candidate's module. Cache key: these
sources, the launch's types, constants and options, and the targets. So the same kernel under another ModelNew is not compiled
again.
"""

import hashlib
import json
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from kernels_eval.cost.launch import Launch
from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.ipc import ChannelClosedError, MalformedFrameError, receive_frame, send_frame
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import FailedAnswer
from kernels_eval.trace.schema import KernelSource
from kernels_eval.verdict import Resources

_CRASHED = "compiler_crashed"
_MAX_CACHED = 10_000
"""Of about 1.5 KB each."""


class _CompiledAnswer(FrozenModel):
    kind: Literal["compiled"]
    resources: Annotated[tuple[Resources, ...], Field(max_length=1000)]


_ANSWER: TypeAdapter[_CompiledAnswer | FailedAnswer] = TypeAdapter(
    Annotated[_CompiledAnswer | FailedAnswer, Field(discriminator="kind")]
)


@dataclass(frozen=True)
class Compiled:
    """What the compiler said of all launches of one candidate."""

    resources: tuple[Resources, ...] = ()
    category: str | None = None
    """None: it compiled. `triton_compile`, `compile_timeout`, `compiler_crashed` …: it did not."""
    message: str | None = None


class Compiler:
    """One compiling process at a time; several threads each own one. The cache is shared."""

    def __init__(self, new_fork_server: Callable[[], ForkServer], cache: "CompileCache") -> None:
        self._new_fork_server = new_fork_server
        self._fork_server: ForkServer | None = None
        self._cache = cache

    def compile(
        self, kernels: list[KernelSource], launches: list[Launch], targets: tuple[str, ...], limits: Limits
    ) -> Compiled:
        """Compile what was launched. InfrastructureError where the compiling process could not be had, twice."""
        wanted = _distinct(launches)
        key = _key(kernels, wanted, targets)
        known = self._cache.get(key)
        if known is not None:
            return known
        try:
            compiled = self._compile(kernels, wanted, targets, limits)
        except InfrastructureError:
            self._fork_server = None
            compiled = self._compile(kernels, wanted, targets, limits)
        if compiled.category == _CRASHED:  # a kernel that crashes the compiler does so twice; the machine seldom does
            compiled = self._compile(kernels, wanted, targets, limits)
        self._cache.put(key, compiled)
        return compiled

    def close(self) -> None:
        """Let the process go."""
        if self._fork_server is not None:
            self._fork_server.close()

    def _compile(
        self, kernels: list[KernelSource], launches: list[Launch], targets: tuple[str, ...], limits: Limits
    ) -> Compiled:
        if self._fork_server is None:
            self._fork_server = self._new_fork_server()
        memory = os.memfd_create("unused")
        try:
            channel = self._fork_server.start(memory, limits)
        finally:
            os.close(memory)
        with channel:
            try:
                request = {
                    "kernels": [kernel.model_dump(mode="json") for kernel in kernels],
                    "launches": [launch.model_dump(mode="json") for launch in launches],
                    "targets": targets,
                }
                send_frame(channel, request)
                header, _ = receive_frame(channel, 0)
                answer = _ANSWER.validate_python(header)
            except (ChannelClosedError, TimeoutError, MalformedFrameError, ValidationError):
                answer = None
        ending = self._fork_server.stop()
        if isinstance(answer, _CompiledAnswer):
            return Compiled(answer.resources)
        if answer is not None:
            return Compiled((), answer.category, answer.message)
        if (
            ending.cause == "signal" and ending.code == signal.SIGKILL
        ):  # no compiler ends so by itself: the machine did it
            raise InfrastructureError("the compiler was killed")
        if ending.cause == "timeout":
            return Compiled((), "compile_timeout", f"compiling took longer than {limits.wall_s:g} s")
        return Compiled((), _CRASHED, f"the compiler ended by {ending.cause} {ending.code}")


class CompileCache:
    """Compiler answers by content. Safe for threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Compiled | None:
        """Return what is known."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, compiled: Compiled) -> None:
        """Keep an answer that depends on the source alone (a time-out depends on the machine's load too)."""
        if compiled.category == "compile_timeout":
            return
        with self._lock:
            self._known[key] = compiled
            if len(self._known) > _MAX_CACHED:
                self._known.popitem(last=False)


def _distinct(launches: list[Launch]) -> list[Launch]:
    """Launches that differ for the compiler; what they moved does not count."""
    found: dict[str, Launch] = {}
    for launch in launches:
        bare = launch.model_copy(
            update={
                "programs": 0,
                "dram_bytes": 0,
                "l2_bytes": 0,
                "flops": 0,
                "line": 0,
                "vector_flops": 0,
                "given_bytes": 0,
                "is_copy": False,
            }
        )
        found.setdefault(bare.model_dump_json(), bare)
    return list(found.values())


def _key(kernels: list[KernelSource], launches: list[Launch], targets: tuple[str, ...]) -> str:
    """Where a kernel stands in its file does not count."""
    sources = [kernel.model_copy(update={"line": 1}).model_dump_json() for kernel in kernels]
    parts = [*sources, *(launch.model_dump_json() for launch in launches), json.dumps(targets)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
