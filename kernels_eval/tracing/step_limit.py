"""Tracing process: a limit on the CPU time of host code from one operator of a forward call to the next.

No kernel runs here, and an operator takes no time: host code that computes for long in between hangs. The system counts
the process's own CPU time and ends it with SIGPROF, whether it is in Python or not; waiting, for a core too, does not
count. A candidate can switch this off. It then has the CPU time of all its host code (`Limits.cpu_s`), as before it
comes to its first forward call.
"""

import signal


class StepLimit:
    """The limit of this process; none until `seconds` is set."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """CPU time of one step; 0: no limit."""
        self._is_running = False

    def begin(self) -> None:
        """Begin a forward call."""
        self._is_running = True
        self.renew()

    def renew(self) -> None:
        """Begin another step, in a forward call."""
        if self._is_running:
            signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def end(self) -> None:
        """End the forward call."""
        self._is_running = False
        signal.setitimer(signal.ITIMER_PROF, 0)
