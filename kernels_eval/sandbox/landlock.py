"""Landlock filter for candidates. They may read Python's own files, and write only files that the caller names.

Landlock is Linux's sandbox for unprivileged processes (5.13 and later). A path that is not named here cannot be
opened: files of a run or of the user, the judge's scratch folder, `/proc` of other processes. Newer kernels also cut
off signals to other processes and abstract sockets. Not covered: the names, sizes and times of files (`stat`).
"""

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same numbers on every architecture."""
_VERSION_QUERY = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _IOCTL_DEVICE = 1 << 13, 1 << 15
_FILE_RIGHTS = (_EXECUTE, _WRITE_FILE, _READ_FILE, _IOCTL_DEVICE)
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""File rights that each version of the interface can refuse; the last one also applies to later versions."""
_TCP_RIGHTS, _SCOPES = 0b11, 0b11
_REFER_SINCE, _TCP_SINCE, _SCOPES_SINCE = 2, 4, 6
_READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/sys/devices/system/cpu", "/proc/self")
_WRITABLE = ("/dev/null",)
_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the version of the kernel's interface; 0 if it has none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_QUERY)))


def restrict(folder: str | None = None, more_readable: Sequence[str] = (), devices: Sequence[str] = ()) -> bool:
    """Restrict this process and its children, for good; returns False if the kernel cannot. Needs no_new_privs.

    `folder`: the one folder that they may change; `devices`: files that they may read, write and control.
    """
    known = version()
    if not known:
        return False
    rights = _RIGHTS[min(known, max(_RIGHTS))]
    network = _TCP_RIGHTS if known >= _TCP_SINCE else 0
    scopes = _SCOPES if known >= _SCOPES_SINCE else 0
    size = 24 if known >= _SCOPES_SINCE else 16 if known >= _TCP_SINCE else 8
    attributes = struct.pack("QQQ", rights, network, scopes)[:size]
    ruleset = int(_libc.syscall(_CREATE_RULESET, attributes, size, 0))
    if ruleset < 0:
        return False
    try:
        for path in (*readable(), *more_readable):
            _allow(ruleset, path, rights & (_READ_FILE | _READ_DIR | _EXECUTE))
        for path in (*_WRITABLE, *devices):
            _allow(ruleset, path, rights & (_READ_FILE | _WRITE_FILE | _IOCTL_DEVICE))
        if folder is not None:
            _allow(ruleset, folder, rights)
        return int(_libc.syscall(_RESTRICT_SELF, ruleset, 0)) == 0
    finally:
        os.close(ruleset)


def hide(files: Sequence[str]) -> bool:
    """Keep this process and its children from opening these files, for good; returns False if the kernel cannot.

    Nor can they open what is put into one of the folders above them later. Needs no_new_privs.
    """
    if not files or version() < _REFER_SINCE:  # before, a file could not be moved to another folder either
        return False
    rights = _READ_FILE | _WRITE_FILE | _REFER
    ruleset = int(_libc.syscall(_CREATE_RULESET, struct.pack("Q", rights), 8, 0))
    if ruleset < 0:
        return False
    hidden = {Path(file) for file in files}
    try:
        for path in _all_but(hidden, Path("/")):
            _allow(ruleset, str(path), rights)
        return int(_libc.syscall(_RESTRICT_SELF, ruleset, 0)) == 0
    finally:
        os.close(ruleset)


def _all_but(hidden: AbstractSet[Path], folder: Path) -> Iterator[Path]:
    """Yield what lies in a folder, without the hidden files: folders whole where nothing in them is hidden.

    No links: what they lead to is yielded where it lies.
    """
    above = {parent for file in hidden for parent in file.parents}
    for path in folder.iterdir():
        if path in above:
            yield from _all_but(hidden, path)
        elif path not in hidden and not path.is_symlink():
            yield path


@cache
def readable() -> tuple[str, ...]:
    """Return the paths that a candidate may read: interpreter, packages, the judge's own package, shared libraries.

    Found once, where children are forked from: looking for them in a child would write to, and so copy, many pages.
    """
    own = str(Path(__file__).resolve().parents[1])
    paths = sysconfig.get_paths()
    python = [paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], f"{sys.base_prefix}/lib"]
    packages = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages", "lib-dynload"))]
    return tuple(dict.fromkeys([*_READABLE, own, *python, *packages]))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 (on every verdict's path)
            rights &= sum(_FILE_RIGHTS)
        _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
