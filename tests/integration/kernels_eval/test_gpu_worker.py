"""A GPU worker (of a simulated device) says when it loads a problem, and outlives one that cannot be loaded."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import kernel_sources as sources
import pytest
from kernel_sources import ROW_KERNEL

from kernels_eval import JudgeConfig
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
PROBLEM = sources.ROW_PROBLEM.replace("4096, 300", "64, 300")
CONFIG = JudgeConfig(device="cuda", timeout_s=2, workers=1).model_dump(mode="json")


@pytest.fixture
def worker() -> Generator[socket.socket]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "tests/doubles/simulated_device.py", str(theirs.fileno())]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with theirs:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
    with ours:
        assert receive_frame(ours)[0]["kind"] == "hello"
        yield ours
    process.wait(timeout=60)


def replies(worker: socket.socket, problem: str) -> list[dict[str, Any]]:
    """Return what a worker says to one request, up to its answer."""
    send_frame(worker, {"kind": "evaluate", "problem": problem, "kernel": ROW_KERNEL, "config": CONFIG})
    found: list[dict[str, Any]] = []
    while not found or found[-1]["kind"] in ("loading", "loaded"):
        found.append(receive_frame(worker)[0])
    return found


def test_a_problem_that_loops_is_refused_and_the_next_one_is_judged(worker: socket.socket) -> None:
    loading, refused = replies(worker, PROBLEM + "\nwhile True:\n    pass\n")
    assert (loading["kind"], refused["kind"]) == ("loading", "reference_failed")
    assert "takes longer than" in refused["message"]
    assert [reply["kind"] for reply in replies(worker, PROBLEM)] == ["loading", "loaded", "graded"]
    assert [reply["kind"] for reply in replies(worker, PROBLEM)] == ["graded"]


def test_a_problem_that_ends_the_process_does_so_while_it_is_loaded(worker: socket.socket) -> None:
    send_frame(worker, {"kind": "evaluate", "problem": "import os\nos._exit(3)\n", "kernel": "", "config": CONFIG})
    assert receive_frame(worker)[0]["kind"] == "loading"
    with pytest.raises(ChannelClosedError):
        receive_frame(worker)
