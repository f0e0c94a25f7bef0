"""Limits of a candidate's process on a GPU: memory, time, files, network; in the fork server and in its children.

They differ from kernels_eval.sandbox.limits where CUDA needs it. Written memory is limited, not address space,
of which CUDA reserves far more than it uses. Programs may be started, since Triton calls an assembler and a C compiler
when a kernel is first launched: kernels_eval.sandbox.unprivileged limits what they reach. The IPC namespace stays
shared: device memory passes between processes by handle. The network is cut off.
"""

import ctypes
import glob
import os
import resource
import sys
import tempfile
from functools import cache
from pathlib import Path

from kernels_eval.gpu.device.gpu_files import files_of_others
from kernels_eval.sandbox import landlock, unprivileged
from kernels_eval.sandbox.limits import Limits, adopt_orphans, die_with_parent

_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNET = 0x40000000
_COMPILER_MB = 4096
"""Written memory for the compiler, which runs in the candidate's process."""
_FILE_MB = 512
_DESCRIPTORS = 1024


def confine_fork_server(may_fork: bool) -> list[str]:
    """Cut the network and other GPUs off for this process and all that it forks; returns what its children have."""
    adopt_orphans()
    libc = ctypes.CDLL(None, use_errno=True)
    achieved = ["process", "rlimits"]
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        achieved += ["no_new_privs", *unprivileged.abilities(tempfile.gettempdir())]
        landlock.hide(_files_of_other_gpus())
        _devices()  # remembered for the children
    # Not with a new user namespace, which would take the device files' owner away.
    if libc.unshare(_CLONE_NEWNET) == 0:
        achieved.append("netns")
    return achieved


def confine_child(limits: Limits, may_fork: bool) -> None:
    """Limit this process for good: written memory, CPU seconds, files, descriptors, core dumps, paths, system calls."""
    ceiling = _written_bytes() + (limits.memory_mb + _COMPILER_MB) * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + 2 * limits.wall_s) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_MB * 2**20, _FILE_MB * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    assert limits.folder is not None, "a candidate on a GPU compiles, and has a folder for that"
    toolkit = [os.environ["CUDA_HOME"]] if "CUDA_HOME" in os.environ else []
    builds = str(Path(tempfile.gettempdir()) / "builds")
    unprivileged.confine(limits.folder, [sys.prefix, *toolkit, builds], _devices())
    die_with_parent()  # the kernel forgets it when a process changes its user


@cache
def _devices() -> list[str]:
    """Return the device files that a candidate's process may use: the driver's own, and those of its GPU."""
    return sorted(set(glob.glob("/dev/nvidia*")) - set(_files_of_other_gpus()))  # noqa: PTH207


def _files_of_other_gpus() -> list[str]:
    return files_of_others(os.environ.get("CUDA_VISIBLE_DEVICES", ""))


def _written_bytes() -> int:
    """Return the size of this process's data segment, which RLIMIT_DATA limits."""
    with open("/proc/self/statm") as file:  # noqa: PTH123 (on every verdict's path)
        pages = int(file.read().split()[5])
    return pages * os.sysconf("SC_PAGE_SIZE")
