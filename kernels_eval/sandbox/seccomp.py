"""Seccomp filter for candidates: refuses calls for processes, programs, sockets, signals to others, modes of files,
memory and messages that outlive a process, and mounts.

Threads stay allowed (torch and numpy use them). A refused call fails with EPERM: the candidate's own exception names
it. `clone3` fails with ENOSYS, on which the C library falls back to `clone`, whose flags can be inspected. There are
tables for x86-64 and AArch64; elsewhere `install` returns False and the verdict's sandbox does not name seccomp.
"""

import ctypes
import os
import struct
from functools import cache
from pathlib import Path

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_X32_BIT = 0x40000000
_ANY_PROCESS = 0xFFFFFFFF
"""Stands in the program for the number of the process, which is filled in last."""

_MACHINES = {"x86_64": (0xC000003E, 56, 435), "aarch64": (0xC00000B7, 220, 435)}
"""Audit architecture, `clone` and `clone3`."""
_REFUSED: dict[str, tuple[int, int | None]] = {
    # call: (number on x86-64, on AArch64; None: AArch64 has no such call)
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "kill": (62, 129),
    "tkill": (200, 130),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, None),
    "reboot": (169, 142),
    "swapon": (167, None),
    "swapoff": (168, None),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "iopl": (172, None),
    "ioperm": (173, None),
    "acct": (163, None),
    "syslog": (103, 116),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "personality": (135, 92),
    # What outlives the process that made it, or is memory that no limit of the process counts.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "setdomainname": (171, 162),
    # The newer calls for mounts.
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "open_tree_attr": (467, 467),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
}
_OWN_PROCESS_ONLY = {
    "tgkill": (234, 131),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
}
"""Calls that are allowed if their first argument is 0 or this process."""


_FOR_PROGRAMS = frozenset(
    {
        "fork", "vfork", "execve", "execveat", "socket", "connect", "bind", "kill", "tkill", "setpgid", "setpriority",
        "chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat",
        "tgkill", "rt_tgsigqueueinfo", "memfd_create",
    }
)  # fmt: skip
"""Calls that compilers and CUDA's library make; allowed to children that may start programs."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


_libc = ctypes.CDLL(None, use_errno=True)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


@cache
def _program(machine: str, may_start_programs: bool) -> tuple[bytes, ...]:
    """Return the parts of the program between which the instruction stands that compares with the own process.

    They are the same for every child, and made once where children are forked from (`prepare`).
    """
    allowed = _FOR_PROGRAMS if may_start_programs else frozenset[str]()
    architecture, clone, clone3 = _MACHINES[machine]
    column = list(_MACHINES).index(machine)
    lines = [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, architecture, if_true=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER_OFFSET),
    ]
    if machine == "x86_64":  # the x32 table would be a second way to the same calls
        lines += [_instruction(_JUMP_GREATER_EQUAL, _X32_BIT, if_false=1), _instruction(_RETURN, _KILL)]
    lines += [_instruction(_JUMP_EQUAL, clone3, if_false=1), _instruction(_RETURN, _ERRNO | _ENOSYS)]
    for number in [numbers[column] for name, numbers in _REFUSED.items() if name not in allowed]:
        if number is not None:
            lines += [_instruction(_JUMP_EQUAL, number, if_false=1), _instruction(_RETURN, _ERRNO | _EPERM)]
    for number in (numbers[column] for name, numbers in _OWN_PROCESS_ONLY.items() if name not in allowed):
        lines += [
            _instruction(_JUMP_EQUAL, number, if_false=5),
            _instruction(_LOAD, _FIRST_ARGUMENT_OFFSET),
            _instruction(_JUMP_EQUAL, 0, if_true=2),
            _own_process(_ANY_PROCESS),
            _instruction(_RETURN, _ERRNO | _EPERM),
            _instruction(_RETURN, _ALLOW),
        ]
    lines += [
        _instruction(_JUMP_EQUAL, clone, if_false=3),
        _instruction(_LOAD, _FIRST_ARGUMENT_OFFSET),
        _instruction(_JUMP_SET, _CLONE_NAMESPACES, if_false=1)
        if may_start_programs
        else _instruction(_JUMP_SET, _CLONE_THREAD, if_true=1),
        _instruction(_RETURN, _ERRNO | _EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return tuple(b"".join(lines).split(_own_process(_ANY_PROCESS)))


def _own_process(process: int) -> bytes:
    return _instruction(_JUMP_EQUAL, process, if_true=1)


def is_available(machine: str) -> bool:
    """True if there is a table for this machine and its kernel has filters."""
    return machine in _MACHINES and Path("/proc/sys/kernel/seccomp").exists()


def prepare(machine: str) -> None:
    """Make the program now, for the children that this process forks."""
    if machine in _MACHINES:
        _program(machine, False)  # passed as `install` passes it: the cache tells the two forms apart


def install(machine: str, may_start_programs: bool = False) -> bool:
    """Install the filter in this process, for good; returns False if the machine has none. Needs no_new_privs.

    `may_start_programs` leaves out what compilers and CUDA need: processes, programs, sockets, signals, file modes.
    """
    if machine not in _MACHINES:
        return False
    code = _own_process(os.getpid()).join(_program(machine, may_start_programs))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    pr_set_seccomp, mode_filter = 22, 2
    return _libc.prctl(pr_set_seccomp, mode_filter, ctypes.byref(program), 0, 0) == 0
