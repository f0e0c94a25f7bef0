"""A seccomp filter for candidates: no new processes, no programs, no sockets, no hand on other processes or on files' modes.

Threads stay allowed (torch and numpy use them). A refused call fails with EPERM, so that the candidate's own exception
says what it tried; `clone3` fails with ENOSYS, on which the C library falls back to `clone`, whose flags can be inspected.
Only x86-64 and AArch64 tables are here; elsewhere `install` returns False and the verdict's sandbox does not name it.
"""

import ctypes
import os
import struct
from pathlib import Path

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000

_TABLES: dict[str, tuple[int, int, int, dict[str, int], dict[str, int]]] = {
    # machine: (audit architecture, clone, clone3, refused calls, calls whose first argument has to be 0 or this process)
    "x86_64": (
        0xC000003E,
        56,
        435,
        {
            "fork": 57,
            "vfork": 58,
            "execve": 59,
            "execveat": 322,
            "socket": 41,
            "connect": 42,
            "bind": 49,
            "ptrace": 101,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "pidfd_getfd": 438,
            "pidfd_open": 434,
            "kill": 62,
            "tkill": 200,
            "pidfd_send_signal": 424,
            "rt_sigqueueinfo": 129,
            "unshare": 272,
            "setns": 308,
            "mount": 165,
            "umount2": 166,
            "pivot_root": 155,
            "chroot": 161,
            "bpf": 321,
            "keyctl": 250,
            "perf_event_open": 298,
            "userfaultfd": 323,
            "io_uring_setup": 425,
            "setsid": 112,
            "setpgid": 109,
            "setpriority": 141,
            "sched_setparam": 142,
            "sched_setscheduler": 144,
            "sched_setattr": 314,
            "ioprio_set": 251,
            "migrate_pages": 256,
            "move_pages": 279,
            "process_madvise": 440,
            "process_mrelease": 448,
            "kcmp": 312,
            "open_by_handle_at": 304,
            "fanotify_init": 300,
            "chmod": 90,
            "fchmod": 91,
            "fchmodat": 268,
            "fchmodat2": 452,
            "chown": 92,
            "fchown": 93,
            "lchown": 94,
            "fchownat": 260,
            "setxattr": 188,
            "lsetxattr": 189,
            "fsetxattr": 190,
            "utime": 132,
            "utimes": 235,
            "futimesat": 261,
            "utimensat": 280,
            "mknod": 133,
            "mknodat": 259,
            "init_module": 175,
            "finit_module": 313,
            "delete_module": 176,
            "kexec_load": 246,
            "kexec_file_load": 320,
            "reboot": 169,
            "swapon": 167,
            "swapoff": 168,
            "settimeofday": 164,
            "clock_settime": 227,
            "adjtimex": 159,
            "clock_adjtime": 305,
            "sethostname": 170,
            "iopl": 172,
            "ioperm": 173,
            "acct": 163,
            "syslog": 103,
            "add_key": 248,
            "request_key": 249,
            "personality": 135,
        },
        {"tgkill": 234, "rt_tgsigqueueinfo": 297, "prlimit64": 302, "sched_setaffinity": 203},
    ),
    "aarch64": (
        0xC00000B7,
        220,
        435,
        {
            "execve": 221,
            "execveat": 281,
            "socket": 198,
            "connect": 203,
            "bind": 200,
            "ptrace": 117,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "pidfd_getfd": 438,
            "pidfd_open": 434,
            "kill": 129,
            "tkill": 130,
            "pidfd_send_signal": 424,
            "rt_sigqueueinfo": 138,
            "unshare": 97,
            "setns": 268,
            "mount": 40,
            "umount2": 39,
            "pivot_root": 41,
            "chroot": 51,
            "bpf": 280,
            "keyctl": 219,
            "perf_event_open": 241,
            "userfaultfd": 282,
            "io_uring_setup": 425,
            "setsid": 157,
            "setpgid": 154,
            "setpriority": 140,
            "sched_setparam": 118,
            "sched_setscheduler": 119,
            "sched_setattr": 274,
            "ioprio_set": 30,
            "migrate_pages": 238,
            "move_pages": 239,
            "process_madvise": 440,
            "process_mrelease": 448,
            "kcmp": 272,
            "open_by_handle_at": 265,
            "fanotify_init": 262,
            "fchmod": 52,
            "fchmodat": 53,
            "fchmodat2": 452,
            "fchown": 55,
            "fchownat": 54,
            "setxattr": 5,
            "lsetxattr": 6,
            "fsetxattr": 7,
            "utimensat": 88,
            "mknodat": 33,
            "init_module": 105,
            "finit_module": 273,
            "delete_module": 106,
            "kexec_load": 104,
            "reboot": 142,
            "settimeofday": 170,
            "clock_settime": 112,
            "adjtimex": 171,
            "clock_adjtime": 266,
            "sethostname": 161,
            "syslog": 116,
            "add_key": 217,
            "request_key": 218,
            "personality": 92,
        },
        {"tgkill": 131, "rt_tgsigqueueinfo": 240, "prlimit64": 261, "sched_setaffinity": 122},
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _program(machine: str, process: int) -> bytes:
    architecture, clone, clone3, refused, own = _TABLES[machine]
    lines = [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, architecture, if_true=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER_OFFSET),
    ]
    if machine == "x86_64":  # the x32 table would be a second connection to the same calls
        lines += [_instruction(_JUMP_GREATER_EQUAL, _X32_BIT, if_false=1), _instruction(_RETURN, _KILL)]
    lines += [_instruction(_JUMP_EQUAL, clone3, if_false=1), _instruction(_RETURN, _ERRNO | _ENOSYS)]
    for number in refused.values():
        lines += [_instruction(_JUMP_EQUAL, number, if_false=1), _instruction(_RETURN, _ERRNO | _EPERM)]
    for number in own.values():
        lines += [
            _instruction(_JUMP_EQUAL, number, if_false=5),
            _instruction(_LOAD, _FIRST_ARGUMENT_OFFSET),
            _instruction(_JUMP_EQUAL, 0, if_true=2),
            _instruction(_JUMP_EQUAL, process, if_true=1),
            _instruction(_RETURN, _ERRNO | _EPERM),
            _instruction(_RETURN, _ALLOW),
        ]
    lines += [
        _instruction(_JUMP_EQUAL, clone, if_false=3),
        _instruction(_LOAD, _FIRST_ARGUMENT_OFFSET),
        _instruction(_JUMP_SET, _CLONE_THREAD, if_true=1),
        _instruction(_RETURN, _ERRNO | _EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(lines)


def is_available(machine: str) -> bool:
    """True where there is a table for this machine and its kernel has filters."""
    return machine in _TABLES and Path("/proc/sys/kernel/seccomp").exists()


def install(machine: str) -> bool:
    """Install the filter in this process, for good; False where there is none for the machine (no_new_privs must be set)."""
    if machine not in _TABLES:
        return False
    code = _program(machine, os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    pr_set_seccomp, mode_filter = 22, 2
    return ctypes.CDLL(None, use_errno=True).prctl(pr_set_seccomp, mode_filter, ctypes.byref(program), 0, 0) == 0
