"""Limits hold in a forked process that tries to exceed them; processes and their waits are read as the system has them."""

import ctypes
import errno
import json
import math
import os
import platform
import resource
import signal
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.sandbox import landlock, limits, seccomp
from kernels_eval.sandbox.limits import Limits

PR_SET_NO_NEW_PRIVS = 38
LIBC = ctypes.CDLL(None, use_errno=True)
MB = 2**20
LOOSE = Limits(wall_s=20.0, memory_mb=4096)


def confined(bounds: Limits, work: Callable[[], Any], may_fork: bool = True) -> Any:
    """Return what `work` returns in a confined fork, its exception as text, or the signal that ended it."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            limits.confine_child(bounds, may_fork)
            try:
                answer: Any = work()
            except (OSError, MemoryError) as error:
                answer = errno.errorcode[error.errno] if isinstance(error, OSError) and error.errno else "MemoryError"
            os.write(writer, json.dumps(answer).encode())
        except BaseException:  # noqa: BLE001 (told to the test, which fails on it)
            os.write(writer, json.dumps(traceback.format_exc()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        content = answers.read()
    _, status = os.waitpid(process, 0)
    return json.loads(content) if content else signal.Signals(os.WTERMSIG(status)).name


@contextmanager
def stopped_family() -> Generator[tuple[int, int]]:
    """Yield a child and a grandchild, which run no instruction while the block runs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        grandchild = os.fork()
        if grandchild:
            os.write(writer, str(grandchild).encode())
        while True:
            signal.pause()
    grandchild = int(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    os.killpg(child, signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    time.sleep(0.05)  # the grandchild stops as soon as it runs
    try:
        yield child, grandchild
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _allocates(megabytes: int) -> Callable[[], int]:
    return lambda: len(bytearray(megabytes * MB)) // MB


@pytest.mark.parametrize(("megabytes", "answer"), [(128, 128), (700, "MemoryError")])
def test_memory_beyond_what_it_was_forked_with(megabytes: int, answer: Any) -> None:
    assert confined(replace(LOOSE, memory_mb=512), _allocates(megabytes)) == answer


def test_files_descriptors_and_core_dumps(tmp_path: Path) -> None:
    def write(megabytes: int) -> Callable[[], int]:
        return lambda: (tmp_path / "file").write_bytes(bytes(megabytes * MB)) // MB

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    assert confined(replace(LOOSE, file_mb=3), write(3)) == 3
    assert confined(replace(LOOSE, file_mb=3), write(4)) == "EFBIG"
    assert confined(LOOSE, lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]) == "EMFILE"
    assert confined(LOOSE, lambda: resource.getrlimit(resource.RLIMIT_CORE)) == [0, 0]


def _spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "soft", "hard"), [(3.0, None, 4, 5), (3.9, 1.2, 2, 5), (3.0, 60.0, 4, 5), (0.5, 0.1, 1, 2)]
)
def test_cpu_time(wall_s: float, cpu_s: float | None, soft: int, hard: int) -> None:
    bounds = replace(LOOSE, wall_s=wall_s, cpu_s=cpu_s)
    assert confined(bounds, lambda: resource.getrlimit(resource.RLIMIT_CPU)) == [soft, hard]
    if soft == 1:
        assert confined(bounds, _spin) == "SIGXCPU"


def test_cpu_time_left() -> None:
    assert limits.cpu_left_s(os.getpid(), None) == math.inf
    before = time.process_time()
    left_s = limits.cpu_left_s(os.getpid(), 1000.0)
    assert 1000.0 - time.process_time() <= left_s <= 1000.0 - before
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert limits.cpu_left_s(child, 1.0) == math.inf


@pytest.mark.skipif(not seccomp.is_available(platform.machine()), reason="needs seccomp")
def test_a_candidate_starts_no_process() -> None:
    assert confined(LOOSE, os.fork, may_fork=False) == "EPERM"


@pytest.mark.skipif(not landlock.version(), reason="needs Landlock")
def test_a_candidate_that_starts_no_programs_reads_no_files_of_others(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("42")
    assert confined(LOOSE, secret.read_text, may_fork=False) == "EACCES"
    assert confined(LOOSE, secret.read_text, may_fork=True) == "42", "no folder was named"


def test_children_and_their_waits() -> None:
    with stopped_family() as (child, grandchild):
        assert child in limits.children_of(os.getpid())
        assert limits.children_of(child) == [grandchild]
        assert limits.children_of(grandchild) == []
        assert set(limits.cpu_waits(child)) == {child, grandchild}
        assert {child, grandchild} <= set(limits.cpu_waits(os.getpid()))
        before = limits.cpu_waits(child)
        assert limits.cpu_wait_since(before, child) == 0.0, "a stopped process waits for no core"
        started_since = {child: before[child]}
        assert limits.cpu_wait_since(started_since, child) == before[grandchild]
        assert limits.cpu_wait_since({}, child) == pytest.approx(sum(before.values()))
    assert limits.children_of(child) == []
    assert limits.cpu_wait_s(child) == 0.0, "a process that is gone"


def test_processes_on_one_core_wait_for_each_other() -> None:
    core = min(os.sched_getaffinity(0))
    spinning: list[int] = []
    try:
        for _ in range(3):
            process = os.fork()
            if process == 0:
                os.sched_setaffinity(0, {core})
                _spin()
            spinning.append(process)
        time.sleep(0.6)
        waited = sum(limits.cpu_wait_s(process) for process in spinning)
    finally:
        for process in spinning:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    assert 0.4 < waited < 60, "at any time two of three wait"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("may_start_programs", [False, True])
def test_the_filter_is_cut_where_the_own_process_is_compared(machine: str, may_start_programs: bool) -> None:
    parts = seccomp._program(machine, may_start_programs)
    compared = [
        name for name in seccomp._OWN_PROCESS_ONLY if not may_start_programs or name not in seccomp._FOR_PROGRAMS
    ]
    assert len(parts) == len(compared) + 1
    assert all(len(part) % 8 == 0 for part in parts)


@pytest.mark.skipif(not seccomp.is_available(platform.machine()), reason="no filter of system calls on this machine")
@pytest.mark.parametrize(
    "call",
    [
        lambda: LIBC.shmget(7, 4096, 0o1666),
        lambda: LIBC.msgget(7, 0o1666),
        lambda: LIBC.semget(7, 1, 0o1666),
        lambda: LIBC.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666, None),
        lambda: LIBC.memfd_create(b"left", 0),
        lambda: LIBC.syscall(430, b"tmpfs", 0),  # fsopen
        lambda: LIBC.syscall(428, -100, b"/", 1),  # open_tree
        lambda: LIBC.syscall(429, -100, b"/", -100, b"/", 0),  # move_mount
        lambda: LIBC.mount(b"none", b"/", None, 0, None),
        lambda: LIBC.umount2(b"/", 0),
        lambda: LIBC.syscall({"x86_64": 155}.get(platform.machine(), 41), b"/", b"/"),  # pivot_root
    ],
)  # fmt: skip
def test_what_outlives_a_process_and_mounts_are_refused(call: Callable[[], int]) -> None:
    def refused() -> Any:
        ctypes.set_errno(0)
        return [call(), errno.errorcode.get(ctypes.get_errno())]

    assert confined(LOOSE, refused, may_fork=False) == [-1, "EPERM"]
