"""Worker process: limits on the time and memory that a problem's own code takes while it is loaded.

A problem is trusted, yet it may loop, wait or allocate without end. Then the problem is at fault, and not the machine.
Not protected: code that catches `BaseException`, or computes in C for ever, ends the worker; the judge's process says
so then (`pool.worker_client`).
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from pydantic import ValidationError

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.errors import first_line
from kernels_eval.expectations import refusal
from kernels_eval.sandbox.calibration import slowness
from kernels_eval.sandbox.limits import cpu_wait_s

_TIMES_TIMEOUT = 3
"""Time of loading a problem, in units of `timeout_s`: so long a kernel waits for its reference at most."""
_GRACE_S = 5
"""CPU time after which code that ignores the exception ends the process."""
_LOOK_S = 1.0
"""Time between two looks at a problem that still loads."""
_TIMES_MEMORY = 8
"""Address space, in units of `memory_mb`: a reference is there in several precisions and with several weights."""
_SHARE_OF_FREE = 0.75
"""Share of the machine's free memory that it may be at most."""


class _TooLongError(BaseException):
    """Raised in a problem's code by a signal; no Exception, which a problem may well catch."""


def load_within_limits(load: Callable[[], object], config: JudgeConfig) -> None:
    """Call `load`, which loads a problem. Raises ReferenceFailedError if it fails, or takes too long or too much."""
    try:
        with limited_loading(config):
            load()
    except (MemoryError, RuntimeError, ValidationError) as error:  # e.g. no memory for a copy, a size without end
        cause = refusal(error) if isinstance(error, ValidationError) else first_line(error)[:300]
        raise ReferenceFailedError(f"the problem cannot be loaded on this machine: {cause}") from error


@contextmanager
def limited_loading(config: JudgeConfig) -> Generator[None]:
    """Limit what the block, which loads a problem, may take. Raises ReferenceFailedError if it takes more time.

    Waits for a busy core do not count. Allocating more memory raises MemoryError, or PyTorch's own error, in the
    problem's code.
    """
    most_s = _TIMES_TIMEOUT * config.timeout_s * slowness()
    process, began = os.getpid(), time.monotonic()
    waited_s = cpu_wait_s(process)

    def look(_number: int, _frame: object) -> None:
        if time.monotonic() - began - (cpu_wait_s(process) - waited_s) >= most_s:
            raise _TooLongError

    limits = {which: resource.getrlimit(which) for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS)}
    handler = signal.signal(signal.SIGALRM, look)
    _limit(resource.RLIMIT_CPU, int(time.process_time() + most_s) + _GRACE_S)
    _limit(resource.RLIMIT_AS, _address_space_now() + _most_bytes(config.memory_mb))
    signal.setitimer(signal.ITIMER_REAL, most_s, _LOOK_S)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _TooLongError:
        raise ReferenceFailedError(
            f"the problem takes longer than {most_s:g} s to load, {_TIMES_TIMEOUT} times timeout_s: its module, "
            "get_init_inputs, Model or get_inputs loops, waits or computes too much"
        ) from None
    finally:
        signal.signal(signal.SIGALRM, handler)
        for which, values in limits.items():
            resource.setrlimit(which, values)


def _limit(what: int, most: int) -> None:
    """Lower a limit of this process, if it is not that low; the hard limit stays, so that it can be raised again."""
    soft, hard = resource.getrlimit(what)
    if soft == resource.RLIM_INFINITY or most < soft:
        resource.setrlimit(what, (most, hard))


def _most_bytes(memory_mb: int) -> int:
    return min(_TIMES_MEMORY * memory_mb * 2**20, int(_SHARE_OF_FREE * _free_bytes()))


def _free_bytes() -> int:
    """Return the bytes that the machine can give without swapping."""
    with open("/proc/meminfo") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 2**62


def _address_space_now() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[0]) * resource.getpagesize()
