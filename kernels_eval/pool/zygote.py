"""Zygote: a process that has imported torch and triton and forks workers, or compilers' fork servers, on request.

`Zygotes` and `Zygote` run in the caller's process; `main` is the zygote, a program of its own (`python -m
kernels_eval.pool.zygote ROLE DESCRIPTOR`), which inherits no threads, CUDA context or secrets of the caller. It never
reads a problem or a kernel. Triton decides at import whether it interprets, hence one zygote for each role:
`interpret` (workers on a CPU), `device` (workers on a GPU), `compile` (Triton), `build` (nvcc), `ahead` (Triton, for
a GPU, following a candidate's host code).

Protocol (SOCK_SEQPACKET). Caller: `fork` (descriptor: the child's socket) or `kill` (process). Zygote: process id.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from kernels_eval.backends import load_own_backend
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu.device.detection import this_gpu_alone
from kernels_eval.pool.huge_pages import collapse_memory
from kernels_eval.sandbox.limits import adopt_orphans, children_of
from kernels_eval.sandbox.messages import ChannelClosedError, has_news, note_pair, receive_note, send_note

_DEVICE = "device"
_DEVICE_WITHOUT_WARM_UP = "device-without-warm-up"
_WORKER_ROLES = {"cpu": "interpret", "cuda": _DEVICE}
"""Device -> the zygote that its workers come from."""
_PROGRAM = (sys.executable, "-P", "-m", "kernels_eval.pool.zygote")
"""`-P`: nothing is imported from the working directory, into which a candidate may be able to write."""
_REAP_S, _END_S, _START_S = 1.0, 10.0, 180.0
_KEPT_ENVIRONMENT = {"PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TZ", "CUDA_HOME", "CC", "CXX"}
_KEPT_FOR_DEVICES = {
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "KERNELS_EVAL_WARM_PROFILER",
}
_DEFAULTS_FOR_DEVICES = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # a context is made in half the time (docs/gpu-judge-measurements.md)
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


class _ZygoteDiedError(InfrastructureError):
    """The zygote hung up."""


class Zygotes:
    """The zygotes of one judge by role, each started when first needed and again after it died. Safe for threads."""

    def __init__(self, scratch: Path, variables: Mapping[str, str] | None = None) -> None:
        """`variables`: further ones of their environment."""
        self._scratch = scratch
        self._variables = variables or {}
        self._known: dict[str, Zygote] = {}
        self._lock = threading.Lock()
        self._closed = False

    def fork(self, role: str) -> tuple[int, socket.socket]:
        """Fork a fork server from the zygote of a role; returns its process id and the socket to it.

        A zygote that was started before and turns out to be dead is replaced once.
        """
        zygote, is_new = self._zygote(role)
        try:
            return zygote.fork()
        except _ZygoteDiedError:
            if is_new:
                raise
        return self._zygote(role)[0].fork()

    def _zygote(self, role: str) -> "tuple[Zygote, bool]":
        """Return the zygote of a role, and whether it was started now."""
        with self._lock:
            if self._closed:
                raise InfrastructureError("the judge is closed")
            zygote = self._known.get(role)
            if zygote is not None and zygote.is_alive:
                return zygote, False
            zygote = self._known[role] = Zygote(role, self._scratch, self._variables)
            return zygote, True

    def fork_worker(self, device: str) -> tuple[int, socket.socket]:
        """Fork a worker for `cpu` or `cuda`; returns its process id and the socket to it."""
        return self.fork(_WORKER_ROLES[device])

    def kill(self, process: int) -> None:
        """Kill a worker that no longer answers."""
        for role in _WORKER_ROLES.values():
            if role in self._known:
                self._known[role].kill(process)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._closed = True
            for zygote in self._known.values():
                zygote.close()


class Zygote:
    """The caller's side of one zygote: starts the process and has it fork."""

    def __init__(self, role: str, scratch: Path, variables: Mapping[str, str] | None = None) -> None:
        self._role = role
        self._forking = threading.Lock()
        self._notes, theirs = note_pair()
        folder = scratch / "work"
        folder.mkdir(exist_ok=True)
        environment = _environment(role, scratch) | dict(variables or {})
        command = [*_PROGRAM, role, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a problem prints what it likes
            process_group=0,  # Ctrl-C is for the judge: a zygote that imports would answer with a traceback
        )
        theirs.close()
        self._notes.settimeout(_START_S)

    def fork(self) -> tuple[int, socket.socket]:
        """Fork a worker or fork server; returns its process id and the socket to it."""
        ours, theirs = note_pair() if self._role in ("compile", "build", "ahead") else socket.socketpair()
        try:
            with self._forking:  # threads share the zygote: a reply belongs to the request before it
                send_note(self._notes, {"action": "fork"}, [theirs.fileno()])
                note, _ = receive_note(self._notes)
        except ChannelClosedError as error:
            ours.close()
            self._process.kill()
            self._process.wait()  # a process that is ending hangs up before it counts as ended
            raise _ZygoteDiedError("the judge's zygote process died") from error
        except TimeoutError as error:
            ours.close()
            raise InfrastructureError("the judge's zygote process did not answer") from error
        finally:
            theirs.close()
        return int(note["process"]), ours

    def kill(self, process: int) -> None:
        """Kill one of its children."""
        with contextlib.suppress(ChannelClosedError, OSError):  # closed there, or here by another thread
            send_note(self._notes, {"action": "kill", "process": process})

    @property
    def is_alive(self) -> bool:
        """True while its process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process; its children die with it."""
        self._notes.close()
        try:
            self._process.wait(timeout=_END_S + 1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment(role: str, scratch: Path) -> dict[str, str]:
    """Return the environment of a zygote: named variables of the caller's, none of its secrets."""
    kept = _KEPT_ENVIRONMENT | _KEPT_FOR_DEVICES if role == _DEVICE else _KEPT_ENVIRONMENT
    environment = {name: value for name, value in os.environ.items() if name in kept}
    environment |= {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[2]), *_callers_packages()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(scratch / ("triton-device" if role == _DEVICE else "triton")),
        "TRITON_INTERPRET": "1" if role == "interpret" else "0",
        "TRITON_DEFAULT_FP_FUSION": "1",  # the default of today, set because the compiler warns of a coming change
        "TMPDIR": str(scratch),
        "HOME": str(scratch),
    }
    if role == _DEVICE:
        return _DEFAULTS_FOR_DEVICES | environment | this_gpu_alone()
    return environment | {"CUDA_VISIBLE_DEVICES": ""}


def _callers_packages() -> list[str]:
    """Return the entries of the caller's PYTHONPATH, made absolute: its packages may lie there."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(entry).resolve()) for entry in entries if entry]


def main(role: str, descriptor: int) -> NoReturn:
    """Import what the role needs, then serve the caller until it goes away. Runs in the zygote."""
    caller = socket.socket(fileno=descriptor)
    serve = _load(role)
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, every page in each child
    collapse_memory()
    adopt_orphans()
    children: set[int] = set()
    while True:
        ready = has_news(caller, _REAP_S)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                children.discard(ended)
        if not ready:
            continue
        try:
            note, descriptors = receive_note(caller)
        except ChannelClosedError:
            _end_descendants()
            os._exit(0)  # without the interpreter's shutdown, which lists what triton's bindings leak
        if note["action"] == "kill":
            if note["process"] in children:
                os.kill(note["process"], signal.SIGKILL)
            continue
        child = os.fork()
        if child == 0:
            code = 70
            try:
                caller.close()
                os.dup2(1, 2)  # what a problem says there goes where its output goes: nowhere
                serve(socket.socket(fileno=descriptors[0]))
                code = 0
            finally:
                os._exit(code)
        os.close(descriptors[0])
        children.add(child)
        with contextlib.suppress(ChannelClosedError):  # the next round sees it, and ends all
            send_note(caller, {"process": child})


def _end_descendants() -> None:
    """Kill and reap all descendants: those of a child that has ended become children of this process."""
    deadline = time.monotonic() + _END_S
    while (children := children_of(os.getpid())) and time.monotonic() < deadline:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _load(role: str) -> Callable[[socket.socket], None]:
    """Import everything that a child of this role needs; returns what a child does with its socket."""
    import torch

    torch.set_num_threads(1)
    load_own_backend()
    if role == "compile":
        return _load_compiler()
    if role == "ahead":
        return _load_follower()
    if role == "build":
        from kernels_eval.backends import build_main
        from kernels_eval.compile.nvcc import remember_load_inline
        from kernels_eval.compile.slim_builds import prepare_slim_builds
        from kernels_eval.sandbox.fork_server import serve_fork_server

        remember_load_inline()
        prepare_slim_builds()
        return lambda judge: serve_fork_server(judge, build_main, may_fork=True)
    if role in (_DEVICE, _DEVICE_WITHOUT_WARM_UP):
        return _load_device_worker(role)
    from kernels_eval.cpu.worker import serve_worker, warm_up
    from kernels_eval.interpreter.triton_patches import interpreter
    from kernels_eval.reference.inputs import seed_cpu_only

    seed_cpu_only()
    interpreter.install()
    warm_up()
    return serve_worker


def _load_compiler() -> Callable[[socket.socket], None]:
    from kernels_eval.compile.triton import compile_main, warm_up_compiler
    from kernels_eval.sandbox.fork_server import serve_fork_server

    warm_up_compiler()

    def serve_compilers(judge: socket.socket) -> None:
        # Each fork server has a cache folder to itself: a file that a killed compiler left half written harms no other.
        os.environ["TRITON_CACHE_DIR"] += f"-{os.getpid()}"
        serve_fork_server(judge, compile_main, may_fork=True)

    return serve_compilers


def _load_follower() -> Callable[[socket.socket], None]:
    from kernels_eval.backends import build_main
    from kernels_eval.compile.triton import warm_up_compiler
    from kernels_eval.problem import EXAMPLE_PROBLEM
    from kernels_eval.reference.without_values import inputs_without_values
    from kernels_eval.sandbox.fork_server import serve_fork_server

    for name in ("backends.triton", "tracing.fake_cuda", "sandbox.candidate_model"):
        importlib.import_module(f"kernels_eval.{name}")  # here, not in each child
    inputs_without_values(EXAMPLE_PROBLEM)
    warm_up_compiler()
    return lambda judge: serve_fork_server(judge, build_main, may_fork=True)


def _load_device_worker(role: str) -> Callable[[socket.socket], None]:
    from kernels_eval.gpu.candidate.warm_up import close_nvml, is_cuda_untouched, warm_up_zygote
    from kernels_eval.gpu.worker import serve_worker

    if role == _DEVICE:
        warm_up_zygote()
        close_nvml()
        if not is_cuda_untouched():  # CUDA was initialised after all: start again without what may have done it
            os.execv(sys.executable, [*_PROGRAM, _DEVICE_WITHOUT_WARM_UP, sys.argv[2]])
    return serve_worker


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
