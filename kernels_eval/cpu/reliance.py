"""CPU worker: looks for what a correct kernel relies on that Triton's text leaves undefined.

A kernel that loads with a mask and without `other` is run once more, with a pattern in the lanes that the mask leaves
out. If its result changes, the verdict has a warning (docs/decisions/0014).
"""

from typing import Any

from kernels_eval.correctness.outputs import Expected
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.trials import Errors, finish, start
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.verdict import Status

_WRONG = (Status.INCORRECT, Status.RUNTIME_ERROR)
_OF_THE_MACHINE = (ErrorCategory.OUT_OF_MEMORY, ErrorCategory.CRASHED, ErrorCategory.NO_ANSWER)

_ROUNDED = '; tl.dot rounds float32 to TF32 on these targets, unless the kernel says input_precision="ieee" or "tf32x3"'


def relied_upon(session: Session, inputs: list[Any], expected: Expected, strict: bool) -> tuple[str, ...]:
    """Return warnings on a kernel that passed with zeros in undefined lanes. The session's last call: it may end there.

    `inputs`, `expected`: a trial that the kernel passed.
    """
    line = session.undefined_line
    if line is None or session.is_poisoned:
        return ()
    session.is_poisoned = True
    session.ask(inputs, has_values=True)
    try:
        finish(session, start(session, inputs).trace, expected, strict, Errors())
    except CandidateFailedError as failed:
        if failed.status in _WRONG and failed.category not in _OF_THE_MACHINE:
            return (_warning(line),)
    return ()


def with_cause(session: Session, failed: CandidateFailedError) -> CandidateFailedError:
    """Return a failure whose message names what may have caused it.

    That is a product in TF32, or the load that left lanes undefined.
    """
    if session.has_rounded_products and failed.category == ErrorCategory.WRONG_VALUES:
        return CandidateFailedError(failed.status, failed.category, failed.message + _ROUNDED, failed.is_certain)
    if not session.is_poisoned or not session.undefined_line or failed.category != ErrorCategory.WRONG_VALUES:
        return failed
    message = f"{failed.message}; the load in line {session.undefined_line} leaves lanes undefined: it has no `other`"
    return CandidateFailedError(failed.status, failed.category, message, failed.is_certain)


def _warning(line: int) -> str:
    where = f" (line {line})" if line else ""
    return (
        "the result depends on lanes that a load masks off without `other`, or a block pointer's without "
        f"`padding_option`{where}: undefined by Triton's text; zero on NVIDIA"
    )
