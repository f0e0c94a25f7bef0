"""A problem that loops, waits or allocates without end while it is loaded fails itself; the worker goes on as before."""

import resource
import signal
import time
from collections.abc import Callable

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.cpu.grader import Grader
from kernels_eval.reference.loading import limited_loading
from kernels_eval.reference.problem_code import ProblemCode

CONFIG = JudgeConfig(device="cpu", timeout_s=0.02, memory_mb=256)
LOOPS = "while True: pass"
CATCHES = "while True:\n    try:\n        n = 0\n        while True: n += 1\n    except Exception: pass"
WAITS = "import time\ntime.sleep(1e6)"


def state() -> tuple[object, ...]:
    limits = [resource.getrlimit(which) for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS)]
    return (signal.getsignal(signal.SIGALRM), *limits)


@pytest.mark.parametrize("source", [LOOPS, CATCHES, WAITS])
def test_a_problem_that_does_not_end_takes_too_long(source: str) -> None:
    before = state()
    with (
        pytest.raises(ReferenceFailedError, match="the problem takes longer than"),
        limited_loading(CONFIG),
    ):
        ProblemCode(source)
    assert state() == before


def test_a_problem_that_allocates_more_than_its_share_fails() -> None:
    before, most = state(), JudgeConfig(device="cpu", memory_mb=256)
    allocates = "values = [bytearray(1 << 30) for _ in range(64)]"
    with pytest.raises(ReferenceFailedError, match="more memory"), limited_loading(most):
        ProblemCode(allocates)
    assert state() == before


def test_a_size_without_end_is_named() -> None:
    endless = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x\n"
    endless += "def get_inputs(): return [torch.empty(10**13)]\ndef get_init_inputs(): return []\n"
    grader = Grader(None, None)  # pyright: ignore[reportArgumentType]  # no candidate runs
    with pytest.raises(ReferenceFailedError, match="cannot be loaded on this machine: shape, item 1: found 1000000"):
        grader.load(endless, JudgeConfig(device="cpu"))


@pytest.mark.parametrize("load", [lambda: None, lambda: time.sleep(0.01)])
def test_a_problem_that_loads_changes_nothing(load: Callable[[], None]) -> None:
    before = state()
    with limited_loading(JudgeConfig(device="cpu")):
        load()
    assert state() == before
