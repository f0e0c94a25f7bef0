"""Limits of a candidate's process: memory, CPU time, files, descriptors, network; and its time spent waiting for a
core.

`confine_fork_server` runs once in the fork server, whose children inherit it; `confine_child` runs in each child
before it runs a candidate, and installs the filters of files (`landlock`) and system calls (`seccomp`). The fork
server reports the parts of the sandbox that work on this machine, and every verdict names them. Not protected, if
Landlock is missing or a process has to start programs (a compiler's assembler): reading files that the judge's user
may read. A candidate's process on a GPU has other limits: kernels_eval.gpu.candidate.limits.
"""

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import time
from dataclasses import dataclass

from kernels_eval.sandbox import landlock, seccomp, unprivileged

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_DESCRIPTORS = 256
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """Limits of one child."""

    wall_s: float
    memory_mb: int
    """Address space beyond that of the process that it was forked from."""
    file_mb: int = 64
    """Size of any file that it writes."""
    cpu_s: float | None = None
    """CPU time, from the fork on; None: as much as fits into the wall time."""
    step_cpu_s: float = 0.0
    """CPU time of one step of what it does, which it limits itself (SIGPROF); 0: no limit."""
    computes: bool = False
    """It never sleeps, nor do the programs that it starts: beyond their CPU time it has waited for a core."""
    folder: str | None = None
    """The one folder that a child may change that starts programs; None: such a child is not kept from files."""


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends (the parent must be single-threaded)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, to end and reap them here."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine_fork_server(may_fork: bool) -> list[str]:
    """Cut off the network for this process and its children; returns the parts of the children's sandbox, by name."""
    adopt_orphans()
    parts = ["process", "rlimits"]
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        parts.append("no_new_privs")
        if not may_fork and seccomp.is_available(platform.machine()):
            parts.append("seccomp")
            seccomp.prepare(platform.machine())
        if not may_fork and landlock.version():
            parts.append("landlock")
            landlock.readable()  # remembered for the children
    namespaces = _CLONE_NEWNET | _CLONE_NEWIPC
    if _libc.unshare(namespaces) == 0 or _libc.unshare(namespaces | _CLONE_NEWUSER) == 0:
        parts.append("netns")
    return parts


def confine_child(limits: Limits, may_fork: bool) -> None:
    """Limit this process, for good: memory, CPU time, size of files, core dumps, descriptors, paths, system calls."""
    statm = os.open("/proc/self/statm", os.O_RDONLY)  # a file object would write to, and so copy, more pages
    pages = int(os.read(statm, 256).split()[0])
    os.close(statm)
    ceiling = pages * os.sysconf("SC_PAGE_SIZE") + limits.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    most_s = int(limits.wall_s) + 1
    seconds = most_s if limits.cpu_s is None else min(most_s, math.ceil(limits.cpu_s))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, most_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_mb * 2**20, limits.file_mb * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    descriptors = min(_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    if not may_fork:
        # System V's memory and messages stay in their namespace: it ends with this process, and was empty before.
        # Seccomp refuses the calls; this holds where its table is missing.
        _libc.unshare(_CLONE_NEWIPC)
        landlock.restrict()
        seccomp.install(platform.machine())
    elif limits.folder is not None:
        unprivileged.confine(limits.folder)
        die_with_parent()  # the kernel forgets it when a process changes its user


def children_of(process: int) -> list[int]:
    """Return the living children of a process, from /proc."""
    children: list[int] = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                fields = file.read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == process:
            children.append(int(name))
    return children


def end_children(kept: set[int]) -> None:
    """Kill all children of this process but these: orphans that left an ended child's group have become its own."""
    while escaped := [process for process in children_of(os.getpid()) if process not in kept]:
        for process in escaped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in escaped:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def cpu_left_s(process: int, limit_s: float | None) -> float:
    """Return the CPU seconds that a process has left of a limit; without a limit, or a clock to read, without end.

    The system's own limit on CPU time counts whole seconds; it remains, for a process that uses many cores at once.
    """
    clock = ctypes.c_int()
    if limit_s is None or _libc.clock_getcpuclockid(process, ctypes.byref(clock)) != 0:
        return math.inf
    try:
        return limit_s - time.clock_gettime(clock.value)
    except OSError:  # it has ended
        return math.inf


def cpu_wait_s(process: int) -> float:
    """Return the seconds that a process's main thread was ready to run and had no core; 0 if the system does not tell.

    A limit on wall time leaves this time out: on a machine with other work it would end honest kernels that never ran.
    """
    return _scheduled(process, 1)


def cpu_used_s(process: int) -> float:
    """Return the CPU seconds of a process's main thread; 0 if the system does not tell."""
    return _scheduled(process, 0)


def cpu_waits(owner: int) -> dict[int, float]:
    """Return the CPU wait so far of a process, its fork servers and their children, by process."""
    fork_servers = _forked_by(owner)
    family = [owner, *fork_servers, *(child for fork_server in fork_servers for child in _forked_by(fork_server))]
    return {process: cpu_wait_s(process) for process in family}


def cpu_wait_since(before: dict[int, float], owner: int) -> float:
    """Return the CPU wait since `before`. A process that started since counts in full, one that ended not at all."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in cpu_waits(owner).items())


def cpu_of_family_s(process: int) -> float:
    """Return the CPU seconds of a process, of its children and of theirs, living and reaped; 0 if it has ended."""
    try:
        with open(f"/proc/{process}/stat") as file:  # noqa: PTH123 (on every verdict's path)
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    ticks = sum(map(int, fields[11:15]))  # its own user and system time, and those of children that it has reaped
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(cpu_of_family_s, _forked_by(process)))


def has_children(process: int) -> bool:
    """Return whether a process has programs that run, or forks of its own; False if the system does not tell."""
    return bool(_forked_by(process))


def _scheduled(process: int, field: int) -> float:
    """Return one of the times that the scheduler keeps of a main thread, in seconds; 0 if it does not tell."""
    try:
        with open(f"/proc/{process}/schedstat") as file:  # noqa: PTH123 (on every verdict's path)
            return int(file.read().split()[field]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _forked_by(process: int) -> list[int]:
    """Return the children that a process's main thread has forked; none if the system does not list them."""
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:  # noqa: PTH123 (on every verdict's path)
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
