"""One-shot compilers, the caller's side: a confined process answers one request and ends; outcomes are cached.

`Compiler` sends the kernels that the interpreter ran to `kernels_eval.compile.triton.compile_main`; `Builder` sends a
candidate whose language is built before it runs to `kernels_eval.backends.build_main`. Each process is forked from a
fork server without the interpreter. It answers `compiled` or `built` with what the compiler reports, or `failed`.
"""

import hashlib
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cachetools import LRUCache
from pydantic import Field, TypeAdapter, ValidationError

from kernels_eval.cost.launch import Launch
from kernels_eval.cost.occupancy import Usage
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from kernels_eval.sandbox.folders import remove_folder
from kernels_eval.sandbox.fork_server import Ending, ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import (
    ChannelClosedError,
    FailedAnswer,
    MalformedFrameError,
    receive_frame,
    send_frame,
)
from kernels_eval.trace.schema import KernelSource
from kernels_eval.verdict import Resources

COMPILE_TIMEOUT = ErrorCategory.COMPILE_TIMEOUT
"""Category of a compilation that took longer than its limit."""
_CRASHED = ErrorCategory.COMPILER_CRASHED
_REGISTER_BYTES = 4
_MAX_CACHED = 10_000
"""Of about 1.5 KB each."""


class _CompiledAnswer(FrozenModel):
    kind: Literal["compiled"]
    resources: Annotated[tuple[Resources, ...], Field(max_length=1000)]


class _BuiltAnswer(FrozenModel):
    kind: Literal["built"]
    resources: Annotated[tuple[Resources, ...], Field(max_length=1000)]
    libraries: Annotated[dict[str, dict[str, str]], Field(max_length=100)] = Field(default_factory=dict)
    note: Annotated[str, Field(max_length=2000)] | None = None


_Answer = _CompiledAnswer | _BuiltAnswer | FailedAnswer
_ANSWER: TypeAdapter[_Answer] = TypeAdapter(Annotated[_Answer, Field(discriminator="kind")])


@dataclass(frozen=True)
class Compiled:
    """Outcome of one request."""

    resources: tuple[Resources, ...] = ()
    libraries: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Built extensions by digest: name and path."""
    category: str | None = None
    """None: it compiled. Else `triton_compile`, `nvcc_compile`, `compile_timeout`, `compiler_crashed` …"""
    message: str | None = None
    """The compiler's message; if it compiled, why the host code was not followed to its end (None: it was)."""


class CompileCache:
    """Outcomes by content, the least recently used dropped first. Safe for threads."""

    def __init__(self) -> None:
        self._known: LRUCache[str, Compiled] = LRUCache(_MAX_CACHED)
        self._lock = threading.Lock()

    def get(self, key: str) -> Compiled | None:
        """Return a known outcome."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, compiled: Compiled) -> None:
        """Keep an outcome that depends on the content alone: a time-out depends on the machine's load too."""
        if compiled.category != COMPILE_TIMEOUT:
            with self._lock:
                self._known[key] = compiled


class _OneShot:
    """Asks one process at a time; several threads each own one. The cache is shared."""

    runs_candidate: bool
    """The process executes the candidate's module: it can kill itself, so that its end says nothing of the machine."""

    def __init__(self, new_fork_server: Callable[[], ForkServer], cache: CompileCache) -> None:
        self._new_fork_server = new_fork_server
        self._fork_server: ForkServer | None = None
        self._cache = cache

    def close(self) -> None:
        """Close the fork server, if one was started."""
        if self._fork_server is not None:
            self._fork_server.close()

    def _outcome(self, key: str, request: dict[str, Any], limits: Limits) -> Compiled:
        """Return the outcome of a request. Raises InfrastructureError if the process failed to start twice."""
        known = self._cache.get(key)
        if known is not None:
            return known
        try:
            compiled = self._ask(request, limits)
        except InfrastructureError:
            self._fork_server = None
            compiled = self._ask(request, limits)
        if compiled.category == _CRASHED and not self.runs_candidate:
            # A kernel that crashes the compiler does so twice; the machine seldom does.
            compiled = self._ask(request, limits)
        self._cache.put(key, compiled)
        return compiled

    def _ask(self, request: dict[str, Any], limits: Limits) -> Compiled:
        if self._fork_server is None:
            self._fork_server = self._new_fork_server()
        with self._fork_server.start(None, limits) as channel:
            try:
                send_frame(channel, request)
                header, _ = receive_frame(channel, max_payload=0)
                answer = _ANSWER.validate_python(header)
            except (ChannelClosedError, TimeoutError, MalformedFrameError, ValidationError):
                answer = None
        ending = self._fork_server.stop()
        if isinstance(answer, _CompiledAnswer):
            return Compiled(answer.resources)
        if isinstance(answer, _BuiltAnswer):
            return Compiled(answer.resources, answer.libraries, message=answer.note)
        if answer is not None:
            return Compiled(category=answer.category, message=answer.message)
        return self._without_answer(ending, limits)

    def _without_answer(self, ending: Ending, limits: Limits) -> Compiled:
        ending.refuse_unprepared()
        if ending.cause == "signal" and ending.code == signal.SIGKILL and not self.runs_candidate:
            raise InfrastructureError("the compiler was killed")  # no compiler kills itself
        if ending.cause == "starved":
            raise InfrastructureError("the machine is too busy: a compiler waited for a core longer than it may run")
        if ending.cause == "timeout":
            return Compiled(category=COMPILE_TIMEOUT, message=f"compiling took longer than {limits.wall_s:g} s")
        return Compiled(category=_CRASHED, message=f"the compiler ended by {ending.cause} {ending.code}")


class Compiler(_OneShot):
    """Compiles Triton kernels for named targets.

    What is compiled is what the interpreter ran: the sources of the kernels, never the candidate's module. Cache key:
    these sources, the launch's types, constants and options, and the targets. A kernel that comes back under another
    ModelNew is not compiled again.
    """

    runs_candidate = False

    def compile(
        self, kernels: list[KernelSource], launches: list[Launch], targets: tuple[str, ...], limits: Limits
    ) -> Compiled:
        """Compile what was launched. Raises InfrastructureError if the process did not start or was killed, twice."""
        distinct = _distinct(launches)
        request = {
            "kernels": [kernel.model_dump(mode="json") for kernel in kernels],
            "launches": [launch.model_dump(mode="json") for launch in distinct],
            "targets": targets,
        }
        return self._outcome(_compile_key(kernels, distinct, targets), request, limits)


def _distinct(launches: Sequence[Launch]) -> list[Launch]:
    """Return launches that differ for the compiler, without the traffic that was counted for them."""
    return list({launch.model_dump_json(): launch for launch in map(_uncounted, launches)}.values())


def usages_of(
    launches: Sequence[Launch], resources: Sequence[Resources], targets: Sequence[str], architecture: str
) -> list[Usage | None]:
    """Return what each launch uses on an architecture, or on the first target where it was not compiled for that.

    `resources`: what `Compiler.compile` returned for these launches and targets. None: a launch that was not compiled.
    """
    if architecture not in targets and not targets:
        return [None] * len(launches)
    place = targets.index(architecture) if architecture in targets else 0
    compiled = [launch for launch in _distinct(launches) if launch.kernel_number >= 0]
    used = {
        launch.model_dump_json(): _usage(use)
        for launch, use in zip(compiled, resources[place :: len(targets)], strict=False)
    }
    return [used.get(_uncounted(launch).model_dump_json()) for launch in launches]


def _usage(used: Resources) -> Usage:
    spilled = (used.spills or 0) * (1 if used.architecture.startswith("cuda") else _REGISTER_BYTES)
    return Usage(used.registers, used.shared_bytes, spilled)


def _uncounted(launch: Launch) -> Launch:
    names = ("kernel", "kernel_number", "signature", "constants", "divisible", "options")
    return Launch(programs=0, **{name: getattr(launch, name) for name in names})


def _compile_key(kernels: list[KernelSource], launches: list[Launch], targets: tuple[str, ...]) -> str:
    """Return the content's digest. A kernel's place in its file does not count."""
    sources = [kernel.model_copy(update={"line": 1}).model_dump_json() for kernel in kernels]
    parts = [*sources, *(launch.model_dump_json() for launch in launches), json.dumps(targets)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


class Builder(_OneShot):
    """Builds candidates of back ends that are built before they run, each content once and in its own folder."""

    runs_candidate = True

    def __init__(self, new_fork_server: Callable[[], ForkServer], cache: CompileCache, folder: Path) -> None:
        super().__init__(new_fork_server, cache)
        self._folder = folder

    def build(
        self,
        backend: str,
        source: str,
        arguments: list[Any],
        targets: tuple[str, ...],
        runs: bool,
        limits: Limits,
        problem: str | None = None,
    ) -> Compiled:
        """Build one candidate with `kernels_eval.backends.Backend.build`. Raises InfrastructureError likewise.

        `problem`: its source, if the candidate's host code is to be followed on such inputs.
        """
        request = {
            "backend": backend,
            "source": source,
            "arguments": arguments,
            "targets": list(targets),
            "runs": runs,
        }
        if problem is not None:
            request["problem"] = problem
        key = hashlib.sha256(json.dumps(request, sort_keys=True, default=repr).encode()).hexdigest()[:32]
        return self._outcome(key, request, limits)

    def warm(
        self, backend: str, source: str, arguments: list[Any], target: str, limits: Limits, problem: str
    ) -> str | None:
        """Have a candidate's kernels compiled ahead; returns the folder with them, which is the caller's to remove.

        What took longer than the limits has compiled a part: of many configurations those that came first. None:
        nothing says that something was compiled. Raises InfrastructureError if the process did not start.
        """
        folder = self._new_folder()
        request = {"backend": backend, "source": source, "arguments": arguments, "targets": [target], "runs": True}
        asked = super()._ask({**request, "problem": problem, "folder": folder}, replace(limits, folder=folder))
        if asked.category in (None, COMPILE_TIMEOUT):
            return folder
        remove_folder(folder)
        return None

    def _ask(self, request: dict[str, Any], limits: Limits) -> Compiled:
        """Ask a process with a new folder, which belongs to the user that the process becomes."""
        folder = self._new_folder()
        return super()._ask({**request, "folder": folder}, replace(limits, folder=folder))

    def _new_folder(self) -> str:
        self._folder.mkdir(0o711, parents=True, exist_ok=True)  # no candidate lists what others have
        folder = tempfile.mkdtemp(prefix="build-", dir=self._folder)
        Path(folder).chmod(0o755)  # candidates load what was built as users of their own
        return folder
