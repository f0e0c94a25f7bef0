"""Memory keeps its content when it is moved into huge pages, and the pages are really there where the system can."""

import json
import mmap
import os
import re
from pathlib import Path

import pytest

from kernels_eval.pool import huge_pages

MB = 2**20


def _huge_mb() -> float:
    found = re.search(r"AnonHugePages:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    return int(found[1]) / 1024 if found else 0.0


def test_content_stays_and_the_number_is_that_of_the_pages() -> None:
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:  # its memory alone is moved
        try:
            memory = mmap.mmap(-1, 12 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory[:] = bytes(range(256)) * (12 * MB // 256)
            moved = huge_pages.collapse_memory()
            kept = memory[:] == bytes(range(256)) * (12 * MB // 256)
            os.write(writer, json.dumps([moved, kept, _huge_mb()]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        moved, kept, huge_mb = json.loads(answers.read())
    os.waitpid(process, 0)
    assert kept
    assert moved == 0 or moved >= 5, "of six whole pages at least five lie aligned"
    assert huge_mb >= 2 * moved * 0.9


def test_a_system_that_does_not_list_its_memory_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert huge_pages.collapse_memory() == 0
