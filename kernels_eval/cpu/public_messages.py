"""CPU worker: messages on failed kernels without anything that was drawn secretly.

The message on a wrong kernel names an element and its values, which depend on the inputs. Where a policy reads it, the
next prompt would depend on secret draws, and the same rollout would never be drawn again. Such a message comes from a
second run of the kernel on inputs and weights that follow from the problem and the kernel. The verdict is that of the
first run: a kernel gains nothing by recognising the second.
"""

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.grader import Grader
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.verdict import Status, Verdict

OTHER_INPUTS = "failed on some inputs, but not on those that messages are made from"
_AFTER_A_RUN = (Status.INCORRECT, Status.RUNTIME_ERROR, Status.REJECTED)
"""Statuses whose messages may depend on values."""


class PublicMessages:
    """Runs failed kernels once more for their messages."""

    def __init__(self, tracing_server: ForkServer, interpreter_server: ForkServer) -> None:
        self._grader = Grader(tracing_server, interpreter_server, is_public=True)

    def without_draws(self, verdict: Verdict, problem: str, kernel: str, config: JudgeConfig) -> Verdict:
        """Return the verdict with the message of the second run, if the settings ask for one and a run failed."""
        if not config.public_messages or verdict.status not in _AFTER_A_RUN:
            return verdict
        again = self._grader.grade(problem, kernel, config).verdict
        same = (again.status, again.error_category) == (verdict.status, verdict.error_category)
        return verdict.model_copy(update={"error_message": again.error_message if same else OTHER_INPUTS})
