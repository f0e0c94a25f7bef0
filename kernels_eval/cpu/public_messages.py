"""CPU worker: messages on failed kernels, and which of several faults is named, without anything drawn secretly.

The message on a wrong kernel names an element and its values, which depend on the inputs. Where a policy reads it, the
next prompt would depend on secret draws, and the same rollout would never be drawn again. Such a message comes from a
second run of the kernel on inputs and weights that follow from the problem and the kernel. So does the cause of a
failure wherever draws may have had a part in it: the first of several faults ends a run, and which one that is depends
on the order of programs and on the inputs. Whether a kernel is right is decided by the first run: it gains nothing by
recognising the second.
"""

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.cpu.graded import Graded
from kernels_eval.cpu.grader import Grader
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.verdict import Status, Verdict

OTHER_INPUTS = "failed on some inputs, but not on those that messages are made from"
_FAILED = (Status.INCORRECT, Status.RUNTIME_ERROR, Status.REJECTED, Status.COMPILE_ERROR)
"""Statuses whose cause may depend on values and on the order of programs."""
_CAUSE = ("status", "compiled", "rejection_reason", "error_category", "error_message")
"""Fields that say what is wrong with a kernel."""


class PublicMessages:
    """Runs failed kernels once more for their messages and causes."""

    def __init__(self, tracing_server: ForkServer, interpreter_server: ForkServer, grader: Grader) -> None:
        """`grader`: the one whose verdicts get messages."""
        self._grader = Grader(tracing_server, interpreter_server, secret=grader)

    def without_draws(self, graded: Graded, problem: str, kernel: str, config: JudgeConfig) -> Verdict:
        """Return the verdict, of a kernel that failed by secret draws with the message and cause of a second run.

        If the second run does not fail so that it counts the same, the verdict stays as it is, without its message if
        the settings ask for public ones. What the first run refused stays refused: else a kernel that recognises the
        second run would hide that it cheats.
        """
        verdict = graded.verdict
        asked = config.public_messages or not graded.is_certain
        if verdict.status not in _FAILED or not graded.is_drawn or not asked:
            return verdict
        again = self._again(problem, kernel, config)
        if again is None or not _counts_the_same(verdict, again):
            return verdict.model_copy(update={"error_message": OTHER_INPUTS}) if config.public_messages else verdict
        return verdict.model_copy(update={name: getattr(again, name) for name in _CAUSE})

    def _again(self, problem: str, kernel: str, config: JudgeConfig) -> Verdict | None:
        try:
            return self._grader.grade(problem, kernel, config).verdict
        except ReferenceFailedError:  # on these inputs; it did not on the secret ones
            return None


def _counts_the_same(verdict: Verdict, again: Verdict) -> bool:
    is_refused = verdict.status is Status.REJECTED
    return again.status in _FAILED and (again.status is Status.REJECTED or not is_refused)
