"""Builds candidates of back ends that are built before they run, in a confined process each, once for each content.

The process side (`build_main`) and the judge's side (`Builder`). Session: the judge sends a request (see
`kernels_eval.backends.Backend.build`), the process answers `built` (what the back end returned) or `failed`, and ends.
"""

import ast
import hashlib
import json
import os
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from kernels_eval.backends import backend_named
from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.ipc import ChannelClosedError, MalformedFrameError, receive_frame, send_frame
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import FailedAnswer
from kernels_eval.verdict import Resources, Status, Verdict

_MAX_CACHED = 10_000
_MAX_PAYLOAD = 1 << 16


class _BuiltAnswer(FrozenModel):
    kind: Literal["built"]
    resources: Annotated[tuple[Resources, ...], Field(max_length=1000)]
    libraries: Annotated[dict[str, dict[str, str]], Field(max_length=100)] = Field(default_factory=dict)


_ANSWER: TypeAdapter[_BuiltAnswer | FailedAnswer] = TypeAdapter(
    Annotated[_BuiltAnswer | FailedAnswer, Field(discriminator="kind")]
)


@dataclass(frozen=True)
class Built:
    """What building one candidate gave."""

    outcome: dict[str, Any] = field(default_factory=dict[str, Any])
    """For the candidate's process: `resources` and `libraries`."""
    category: str | None = None
    """None: it was built."""
    message: str | None = None


def build_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Answer one request. In the confined process."""
    from kernels_eval.sandbox.candidate_source import CandidateError

    channel.settimeout(None)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    try:
        request, _ = receive_frame(channel)
        outcome = backend_named(request["backend"]).build(request)
        send_frame(channel, {"kind": "built", **outcome})
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except ChannelClosedError:
        return


class BuildCache:
    """Outcomes by content, and the folder that libraries lie in. Safe for threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: OrderedDict[str, Built] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Built | None:
        """Return what is known."""
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, built: Built) -> None:
        """Keep what depends on the content alone (a time-out depends on the machine's load too)."""
        if built.category == "compile_timeout":
            return
        with self._lock:
            self._known[key] = built
            if len(self._known) > _MAX_CACHED:
                self._known.popitem(last=False)


class Builder:
    """One building process at a time; several threads each own one. The cache is shared."""

    def __init__(self, new_fork_server: Callable[[], ForkServer], cache: BuildCache) -> None:
        self._new_fork_server = new_fork_server
        self._fork_server: ForkServer | None = None
        self._cache = cache

    def build(
        self, backend: str, source: str, problem_source: str, targets: tuple[str, ...], runs: bool, limits: Limits
    ) -> Built:
        """Build one candidate. InfrastructureError where the building process could not be had, twice."""
        request = {
            "backend": backend,
            "source": source,
            "arguments": literal_arguments(problem_source),
            "targets": list(targets),
            "runs": runs,
        }
        key = hashlib.sha256(json.dumps(request, sort_keys=True, default=repr).encode()).hexdigest()[:32]
        known = self._cache.get(key)
        if known is not None:
            return known
        folder = self._cache.folder / key
        folder.mkdir(parents=True, exist_ok=True)
        request["folder"] = str(folder)
        try:
            built = self._build(request, limits)
        except InfrastructureError:
            self._fork_server = None
            built = self._build(request, limits)
        self._cache.put(key, built)
        return built

    def close(self) -> None:
        """Let the process go."""
        if self._fork_server is not None:
            self._fork_server.close()

    def _build(self, request: dict[str, Any], limits: Limits) -> Built:
        if self._fork_server is None:
            self._fork_server = self._new_fork_server()
        memory = os.memfd_create("unused")
        try:
            channel = self._fork_server.start(memory, limits)
        finally:
            os.close(memory)
        with channel:
            try:
                send_frame(channel, request)
                header, _ = receive_frame(channel, _MAX_PAYLOAD)
                answer = _ANSWER.validate_python(header)
            except (ChannelClosedError, TimeoutError, MalformedFrameError, ValidationError):
                answer = None
        ending = self._fork_server.stop()
        if isinstance(answer, _BuiltAnswer):
            return Built(answer.model_dump(mode="json", exclude={"kind"}))
        if answer is not None:
            return Built(category=answer.category, message=answer.message)
        if ending.cause == "timeout":
            return Built(category="compile_timeout", message=f"compiling took longer than {limits.wall_s:g} s")
        return Built(category="compiler_crashed", message=f"the compiler ended by {ending.cause} {ending.code}")


def literal_arguments(problem_source: str) -> list[Any]:
    """Return what `get_init_inputs` returns where that is a list of constants, read without running anything; else []."""
    tree = ast.parse(problem_source)
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            _note_constants(node, constants)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            last = node.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.List):
                try:
                    return [_constant(item, constants) for item in last.value.elts]
                except (ValueError, KeyError):
                    return []
    return []


def _note_constants(node: ast.Assign, constants: dict[str, Any]) -> None:
    try:
        value = ast.literal_eval(node.value)
    except ValueError:
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            constants[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
            names = [name.id for name in target.elts if isinstance(name, ast.Name)]
            constants.update(zip(names, value, strict=False))


def _constant(node: ast.expr, constants: dict[str, Any]) -> Any:
    return constants[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def verdict_of(built: Built, runs: bool) -> Verdict | None:
    """Return the verdict that building alone decides, or None: the candidate is to be run.

    Without a GPU a candidate that was built gets `runtime_error` with the category `not_run_without_gpu`, `compiled` True and
    `correct` False: nothing is known of its results, and the message says so.
    """
    if built.category is not None:
        return Verdict(
            status=Status.COMPILE_ERROR,
            error_category=built.category,
            error_message=built.message,
            hardware="nvcc",
        )
    if runs:
        return None
    resources = tuple(Resources(**used) for used in built.outcome.get("resources", []))
    targets = ", ".join(sorted({used.architecture for used in resources})) or "no target"
    return Verdict(
        status=Status.RUNTIME_ERROR,
        compiled=True,
        error_category="not_run_without_gpu",
        error_message=f"compiled for {targets}; not run: this machine has no GPU",
        resources=resources,
        hardware="nvcc",
    )
