"""What keeps a candidate on a GPU in. Differs from the CPU's where CUDA needs it.

Address space is not limited (CUDA reserves far more than it uses): written memory is. Programs may be started, since Triton calls
an assembler and a C compiler when a kernel is first launched, so system calls are not filtered. The IPC namespace stays shared:
device memory passes between processes by handle. The network is cut off.
"""

import ctypes
import os
import resource

from kernels_eval.sandbox.limits import Limits

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNET = 0x40000000
_SPARE_MB = 4096
"""For the compiler, in the candidate's process."""
_FILE_MB = 512
_DESCRIPTORS = 1024


def confine_device_fork_server(may_fork: bool) -> list[str]:
    """Cut the network off for this process and all that it forks; returns what will be in force in its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    achieved = ["process", "rlimits"]
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        achieved.append("no_new_privs")
    # A new user namespace would take the device files' owner away: only where this process may unshare without one.
    if libc.unshare(_CLONE_NEWNET) == 0:
        achieved.append("netns")
    return achieved


def confine_device_child(limits: Limits, may_fork: bool) -> None:
    """Limit this process, for good: written memory, CPU seconds, size of files, descriptors, core dumps."""
    ceiling = _data_bytes() + (limits.memory_mb + _SPARE_MB) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + 2 * limits.wall_s) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_MB * 2**20, _FILE_MB * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))


def _data_bytes() -> int:
    """Memory that this process may write now."""
    with open("/proc/self/statm") as file:  # noqa: PTH123 (on every verdict's path)
        pages = int(file.read().split()[5])
    return pages * os.sysconf("SC_PAGE_SIZE")
