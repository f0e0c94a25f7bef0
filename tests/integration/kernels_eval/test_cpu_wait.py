"""On a core that others hold, an honest kernel gets the time that it was promised, and a hanging one no more than that."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from kernel_sources import LAUNCH, ROW_KERNEL, ROW_PROBLEM, with_forward

from kernels_eval import Judge, JudgeConfig, Status
from kernels_eval.sandbox.limits import cpu_wait_s

TIMEOUT_S = 2.0
BUSY = with_forward(
    # Some twenty calls: 0.4 s of the 1 s that host code has, which a crowd of six makes 3 s.
    LAUNCH + "        import time\n        end = time.process_time() + 0.02\n        while time.process_time() < end:\n"
    "            pass\n        return out\n"
)
STEP = with_forward(
    # Once, 0.2 s of the 0.3 s that a step of host code has.
    "        if not hasattr(self, 'table'):\n            import time\n            end = time.process_time() + 0.2\n"
    "            while time.process_time() < end:\n                pass\n            self.table = 1\n"
    + LAUNCH
    + "        return out\n"
)
ASLEEP = with_forward("        import time\n        time.sleep(600)\n")


@pytest.fixture
def crowded_core() -> Iterator[None]:
    """This process, and all that it starts, share one core with others that never rest."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    # Each in a session of its own, as candidates are: Linux shares a core out between sessions first (autogroups), so that a
    # crowd in one session would take half of it, however many they are.
    crowd = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(6)]
    yield
    for one in crowd:
        one.kill()
        one.wait()
    os.sched_setaffinity(0, everywhere)


@pytest.mark.slow
def test_time_that_others_took_does_not_count(crowded_core: None) -> None:
    with Judge(JudgeConfig(workers=1, compile="never", trials=2, timeout_s=TIMEOUT_S)) as judge:
        judge.evaluate(ROW_PROBLEM, ROW_KERNEL)
        began = time.monotonic()
        busy = judge.evaluate(ROW_PROBLEM, BUSY)
        took = time.monotonic() - began
        step = judge.evaluate(ROW_PROBLEM, STEP)
        began = time.monotonic()
        asleep = judge.evaluate(ROW_PROBLEM, ASLEEP)
    assert took > TIMEOUT_S, "the core was not crowded"
    assert busy.status is Status.CORRECT, busy
    assert step.status is Status.CORRECT, step
    assert asleep.status is Status.TIMEOUT
    assert time.monotonic() - began < 5 * TIMEOUT_S


def test_what_the_system_tells() -> None:
    assert cpu_wait_s(os.getpid()) >= 0
    assert cpu_wait_s(2**22 + 1) == 0
