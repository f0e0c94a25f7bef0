"""The warm process: imports torch and triton once, then forks workers (or compiler fork servers) on request.

Started as a program of its own (`python -m kernels_eval.pool.zygote interpret|compile|build|device DESCRIPTOR`), so that it inherits no
threads, no CUDA context and no secrets of the caller's. Triton decides at import whether it interprets, so there is one
zygote for each way. It never reads a problem or a kernel.

Protocol (SOCK_SEQPACKET): judge `fork` with one descriptor, zygote `forked` (process); judge `kill` (process).
"""

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.hugepages import collapse_memory
from kernels_eval.pool.scratch import PREFIX
from kernels_eval.sandbox.ipc import ChannelClosedError, has_news, note_pair, receive_note, send_note
from kernels_eval.sandbox.limits import adopt_orphans, children_of

DEVICE_WAY = "device"
_DEVICE_UNREHEARSED = "device-unrehearsed"
_REAP_S = 1.0
_END_S = 10.0
_START_S = 180.0


class Zygote:
    """The judge's side: starts the zygote's process and has it fork."""

    def __init__(self, way: str, scratch: Path) -> None:
        self._notes, theirs = note_pair()
        environment = {name: value for name, value in os.environ.items() if name in _KEPT_ENVIRONMENT}
        environment |= {
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), _own_path()])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRITON_CACHE_DIR": str(scratch / "triton"),
            "TRITON_INTERPRET": "1" if way == "interpret" else "0",
            "TRITON_DEFAULT_FP_FUSION": "1",  # today's default, said aloud: the compiler warns of a coming change
            "TMPDIR": str(scratch),
            "HOME": str(scratch),
        }
        if way == DEVICE_WAY:
            environment |= {name: value for name, value in os.environ.items() if name in _KEPT_FOR_DEVICES}
            environment |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TRITON_CACHE_DIR": str(scratch / "triton-device")}
        else:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._way = way
        command = [sys.executable, "-m", "kernels_eval.pool.zygote", way, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, cwd=scratch, stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._notes.settimeout(_START_S)

    def fork(self) -> tuple[int, socket.socket]:
        """Fork a worker or fork server; returns its process id and the socket to it."""
        ours, theirs = note_pair() if self._way in ("compile", "build") else socket.socketpair()
        try:
            send_note(self._notes, {"action": "fork"}, [theirs.fileno()])
            note, _ = receive_note(self._notes)
        except (ChannelClosedError, TimeoutError) as error:
            ours.close()
            raise InfrastructureError("the warm judge process died or did not start") from error
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


def _own_path() -> str:
    """The caller's PYTHONPATH, made absolute: its packages may lie there."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(str(Path(entry).resolve()) for entry in entries if entry)


_KEPT_ENVIRONMENT = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TZ", "CUDA_HOME", "CC", "CXX"}
)
_KEPT_FOR_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "KERNELS_EVAL_WARM_PROFILER"})


def main(way: str, descriptor: int) -> NoReturn:
    """Import, then serve the judge until it goes away."""
    judge = socket.socket(fileno=descriptor)
    serve = _load(way)
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, every page in each child
    collapse_memory()
    adopt_orphans()
    children: set[int] = set()
    while True:
        ready = has_news(judge, _REAP_S)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                children.discard(ended)
        if not ready:
            continue
        try:
            note, descriptors = receive_note(judge)
        except ChannelClosedError:
            _end_family()
            _remove_scratch()
            os._exit(0)  # without the interpreter's farewell, which lists what triton's bindings leak
        if note["action"] == "kill":
            if note["process"] in children:
                os.kill(note["process"], signal.SIGKILL)
            continue
        child = os.fork()
        if child == 0:
            code = 70
            try:
                judge.close()
                serve(descriptors[0])
                code = 0
            finally:
                os._exit(code)
        os.close(descriptors[0])
        children.add(child)
        with contextlib.suppress(ChannelClosedError):  # told in the next round, which ends all
            send_note(judge, {"process": child})


def _end_family() -> None:
    """Kill and reap all that descends from here: what a child leaves behind becomes ours, and is next."""
    deadline = time.monotonic() + _END_S
    while (children := children_of(os.getpid())) and time.monotonic() < deadline:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _remove_scratch() -> None:
    """The judge has gone, perhaps killed: its scratch folder (ours to live in) goes too."""
    scratch = Path(os.environ["TMPDIR"])
    if scratch.name.startswith(PREFIX):
        shutil.rmtree(scratch, ignore_errors=True)


def _load(way: str) -> Any:
    """Import everything that a child needs, and return what a child does with its socket."""
    import torch

    torch.set_num_threads(1)
    if way == "compile":
        from kernels_eval.compile.triton import compile_main, warm_up_compiler
        from kernels_eval.sandbox.fork_server import serve_fork_server

        warm_up_compiler()

        def serve_compilers(descriptor: int) -> None:
            # A folder of its own for each: what one compiler leaves behind, or half of it, is no other's affair.
            os.environ["TRITON_CACHE_DIR"] += f"-{os.getpid()}"
            serve_fork_server(_notes(descriptor), compile_main, may_fork=True)

        return serve_compilers
    if way == "build":
        from kernels_eval.compile.nvcc import remember_load_inline
        from kernels_eval.pool.builder import build_main
        from kernels_eval.sandbox.fork_server import serve_fork_server

        remember_load_inline()
        return lambda descriptor: serve_fork_server(_notes(descriptor), build_main, may_fork=True)
    if way in (DEVICE_WAY, _DEVICE_UNREHEARSED):
        from kernels_eval.gpu.warm_up import close_nvml, is_cuda_untouched, warm_up_zygote
        from kernels_eval.gpu.worker import serve_worker as serve_gpu_worker

        if way == DEVICE_WAY:
            warm_up_zygote()
            close_nvml()
            if not is_cuda_untouched():  # CUDA was initialised after all: start over without what may have done it
                os.execv(
                    sys.executable, [sys.executable, "-m", "kernels_eval.pool.zygote", _DEVICE_UNREHEARSED, sys.argv[2]]
                )
        return lambda descriptor: serve_gpu_worker(socket.socket(fileno=descriptor))
    from kernels_eval.cpu.worker import serve_worker, warm_up
    from kernels_eval.interpreter.triton_patches import interpreter
    from kernels_eval.reference import seeding

    seeding.install()
    interpreter.install()
    warm_up()
    return lambda descriptor: serve_worker(socket.socket(fileno=descriptor))


def _notes(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
