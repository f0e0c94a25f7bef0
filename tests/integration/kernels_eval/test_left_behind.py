"""Nothing that one candidate leaves can be found by the next one of the same worker, whatever calls it may make."""

import gc
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from confined_process import failure_of, fork_server
from left_behind import CANDIDATE

from kernels_eval.redteam.case import read_case
from kernels_eval.sandbox.fork_server import ForkServer

HACKS = Path(__file__).parents[2] / "redteam" / "hacks"
CALLS = sorted(
    path
    for folder in ("left_behind", "other_processes")
    for path in (HACKS / folder).glob("*.py")
    if "import ctypes" in path.read_text(encoding="utf-8")
)
"""Cases that call the operating system by ctypes, which the judge refuses before they run."""


@pytest.fixture(scope="module")
def server() -> Generator[ForkServer]:
    with fork_server() as made:
        if not {"seccomp", "landlock"} <= set(made.sandbox):
            pytest.skip("this machine lacks a part of the sandbox")
        yield made


def said(server: ForkServer) -> str:
    found = re.search(r"found \[.*?\], left \[.*?\]", failure_of(server, CANDIDATE))
    assert found is not None
    return found[0]


def memory_in_use_mb() -> float:
    """Return the machine's memory that is shared between processes (System V, tmpfs, memory files), in MiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["Shmem"].split()[0]) / 1024


def test_the_next_candidate_finds_nothing(server: ForkServer) -> None:
    assert {said(server) for _ in range(3)} == {"found [], left []"}


def test_there_are_cases_that_call_the_system() -> None:
    assert len(CALLS) >= 6


@pytest.mark.parametrize("path", CALLS, ids=[path.stem for path in CALLS])
def test_calls_of_the_system_are_refused_below_the_check_of_the_file(server: ForkServer, path: Path) -> None:
    failure = failure_of(server, read_case(path, "hack").kernel)
    assert failure.startswith(("PermissionError: [Errno 1]", "RuntimeError: refused")), failure


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_candidates_leave_nothing_and_no_memory(server: ForkServer) -> None:
    said(server)
    before = memory_in_use_mb()
    assert {said(server) for _ in range(1000)} == {"found [], left []"}
    gc.collect()
    assert memory_in_use_mb() < before + 64
