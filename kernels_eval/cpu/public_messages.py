"""CPU worker: messages on failed kernels, and which of several faults is named, without anything drawn secretly.

The message on a wrong kernel names an element and its values, which depend on the inputs. Where a policy reads it, the
next prompt would depend on secret draws, and the same rollout would never be drawn again. Such a message comes from a
second run of the kernel on inputs and weights that follow from the problem and the kernel. So does the cause where a
kernel with several faults is stopped at the first: which one that is depends on the order of its programs. Whether a
kernel is right is decided by the first run: it gains nothing by recognising the second.
"""

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.grader import Grader
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.verdict import Status, Verdict

OTHER_INPUTS = "failed on some inputs, but not on those that messages are made from"
_AFTER_A_RUN = (Status.INCORRECT, Status.RUNTIME_ERROR, Status.REJECTED)
"""Statuses whose messages may depend on values."""
_WRONG = (Status.INCORRECT, Status.RUNTIME_ERROR)
_FIRST_FAULTS = frozenset({"out_of_bounds", "data_race"})
"""Categories that end a launch: a kernel with both faults gets the one that its programs come to first."""


class PublicMessages:
    """Runs failed kernels once more for their messages and causes."""

    def __init__(self, tracing_server: ForkServer, interpreter_server: ForkServer) -> None:
        self._grader = Grader(tracing_server, interpreter_server, is_public=True)

    def without_draws(self, verdict: Verdict, problem: str, kernel: str, config: JudgeConfig) -> Verdict:
        """Return the verdict with message and cause of the second run.

        The message if the settings ask for it; the cause if the kernel was stopped at its first fault. If the second
        run does not fail so that it counts the same, the verdict stays as it is, without its message if that was asked.
        """
        asked = config.public_messages or verdict.error_category in _FIRST_FAULTS
        if verdict.status not in _AFTER_A_RUN or not asked:
            return verdict
        again = self._grader.grade(problem, kernel, config).verdict
        names = ("status", "error_category", "error_message")
        same = (again.status, again.error_category) == (verdict.status, verdict.error_category)
        if same or (verdict.status in _WRONG and again.status in _WRONG):
            return verdict.model_copy(update={name: getattr(again, name) for name in names})
        return verdict.model_copy(update={"error_message": OTHER_INPUTS}) if config.public_messages else verdict
