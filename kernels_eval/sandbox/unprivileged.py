"""Confinement of a child that has to start programs (a compiler, CUDA's tools): a user that owns one folder.

Runs in the child, before anything of a candidate. Three layers, as far as the machine has them: Landlock (files), a
user for this process alone (signals, memory and files of other processes; needs root), seccomp (tracing, namespaces).
"""

import contextlib
import os
import platform
import resource
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernels_eval.sandbox import landlock, seccomp

_FIRST_USER = 0x6B000000
"""Users from here on have no entry in any password file; one for each process number."""
_NOBODY = 65534
"""For user namespaces that map few users."""
_MAX_PROCESSES = 512
"""Of one such user: threads of a CUDA process and what a build starts."""
_READABLE = (
    "/etc", "/bin", "/sbin", "/opt", "/dev/zero", "/dev/urandom",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/devices", "/proc/modules",
    "/proc/version", "/proc/driver", "/proc/sys",
    "/sys/devices", "/sys/class", "/sys/bus", "/sys/module", "/sys/fs/cgroup",
)  # fmt: skip
"""Files that compilers and CUDA's library read besides what every candidate may (kernels_eval.sandbox.landlock)."""


INTERPRETER = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
"""Folders that a candidate imports from and compiles against."""


def abilities(parent: str) -> list[str]:
    """Return the layers that `confine` enforces for a folder in `parent`, as the verdict's `sandbox` names them."""
    found = ["landlock"] if landlock.version() else []
    found += ["unprivileged"] if _user_for(parent) is not None else []
    return [*found, "seccomp"] if seccomp.is_available(platform.machine()) else found


def may_read(file: str) -> bool:
    """True if a process that starts compilers may read a file, and so start it, links followed."""
    real = Path(file).resolve()
    return any(real.is_relative_to(Path(place).resolve()) for place in (*landlock.readable(), *_readable_too()))


def _readable_too() -> tuple[str, ...]:
    return (*_READABLE, sysconfig.get_paths()["include"])


def confine(folder: str, more_readable: Sequence[str] = (), devices: Sequence[str] = ()) -> None:
    """Confine this process, for good, to writing in `folder`, which becomes its working and its home directory.

    no_new_privs must be set. OSError if root cannot give its rights up.
    """
    os.environ |= {"HOME": folder, "TMPDIR": folder}
    tempfile.tempdir = folder  # it has been asked for by now, and is remembered
    os.chdir(folder)
    user = _user_for(os.path.dirname(folder))  # noqa: PTH120
    if user is not None:
        os.chown(folder, user, user)
    landlock.restrict(folder, (*_readable_too(), *more_readable), devices)
    if user is not None:
        _become(user)
    seccomp.install(platform.machine(), may_start_programs=True)


def _user_for(parent: str) -> int | None:
    """Return the number of a user that no other process runs as, for a folder in `parent`; None to stay who we are.

    None if this is not root, if the user namespace has no such user, or if another user could not reach the folder or
    the interpreter (both below `/root`, say).
    """
    needed = (Path(place).resolve() for place in (parent, *INTERPRETER))
    folders = {folder for place in needed for folder in (place, *place.parents)}
    if os.geteuid() != 0 or not all(folder.stat().st_mode & stat.S_IXOTH for folder in folders):
        return None
    users = (_FIRST_USER + os.getpid(), _NOBODY)
    return next((user for user in users if all(_is_mapped(user, table) for table in ("uid_map", "gid_map"))), None)


def _is_mapped(number: int, table: str) -> bool:
    """Return True if this process's user namespace knows a user's or a group's number."""
    lines = Path("/proc/self", table).read_text(encoding="utf-8").splitlines()
    ranges = ((int(first), int(count)) for first, _, count in (line.split() for line in lines))
    return any(first <= number < first + count for first, count in ranges)


def _become(user: int) -> None:
    with contextlib.suppress(PermissionError):  # refused in some user namespaces, where there are none to lose
        os.setgroups([])
    os.setresgid(user, user, user)
    resource.setrlimit(resource.RLIMIT_NPROC, (_MAX_PROCESSES, _MAX_PROCESSES))
    os.setresuid(user, user, user)
