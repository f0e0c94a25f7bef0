"""What keeps a candidate in: resource limits, a process group of its own, system calls and network cut off where possible.

`confine_fork_server` runs once in the process that candidates are forked from (everything in it is inherited); `confine_child`
runs in each candidate. The fork server says what is in force, and every verdict carries it. Not protected against here, where
landlock is missing, or for programs that have to start others (compilers): reading files that the judge's user may read.
"""

import ctypes
import math
import os
import platform
import resource
import signal
from dataclasses import dataclass

from kernels_eval.sandbox import landlock, seccomp

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """What one child may use."""

    wall_s: float
    memory_mb: int
    """Address space beyond what the warm process has already."""
    file_mb: int = 64
    """Size of any file that it writes."""
    cpu_s: float | None = None
    """CPU time; None: as much as fits into the wall time."""


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (the parent must be single-threaded)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own has died, so that they can be ended and reaped here."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def confine_fork_server(may_fork: bool) -> list[str]:
    """Cut the network off for this process and all that it forks; returns what will be in force in its children."""
    adopt_orphans()
    achieved = ["process", "rlimits"]
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        achieved.append("no_new_privs")
        if not may_fork and seccomp.is_available(platform.machine()):
            achieved.append("seccomp")
        if not may_fork and landlock.version():
            achieved.append("landlock")
    namespaces = _CLONE_NEWNET | _CLONE_NEWIPC
    if _libc.unshare(namespaces) == 0 or _libc.unshare(namespaces | _CLONE_NEWUSER) == 0:
        achieved.append("netns")
    return achieved


def confine_child(limits: Limits, may_fork: bool) -> None:
    """Limit this process, for good: address space, CPU seconds, size of files, descriptors, core dumps, system calls."""
    with open("/proc/self/statm") as file:  # noqa: PTH123 (pathlib is slower, and this is on every verdict's path)
        pages = int(file.read().split()[0])
    ceiling = pages * os.sysconf("SC_PAGE_SIZE") + limits.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    most_s = int(limits.wall_s) + 1
    seconds = most_s if limits.cpu_s is None else min(most_s, math.ceil(limits.cpu_s))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, most_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_mb * 2**20, limits.file_mb * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    if not may_fork:
        landlock.restrict()
        seccomp.install(platform.machine())


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
