"""Huge pages: move a zygote's memory into pages of 2 MB, which makes forking it ten times cheaper."""

import ctypes
from pathlib import Path

_HUGE_PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25
"""Linux 6.1 and later; works whatever /sys/kernel/mm/transparent_hugepage says."""


def collapse_memory() -> int:
    """Move this process's private anonymous memory into huge pages; returns how many, 0 if the system cannot do it.

    A process that has imported torch and triton has 235 MB of memory of its own in 60,000 pages. Each fork copies an
    entry for every page and each exit removes it, together more CPU time than a small kernel's whole verdict. In pages
    of 2 MB there are a hundred entries, a tenth of that cost. A child that writes still gets small pages.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return 0
    collapsed = 0
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        is_anonymous = len(fields) == 5 or fields[5].strip() == "[heap]"
        if fields[1] != "rw-p" or not is_anonymous:
            continue
        start, end = (int(part, 16) for part in fields[0].split("-"))
        first = -(-start // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        for address in range(first, end - _HUGE_PAGE_BYTES + 1, _HUGE_PAGE_BYTES):
            collapsed += libc.madvise(address, _HUGE_PAGE_BYTES, _MADV_COLLAPSE) == 0
    return collapsed
