"""Inspector: what a kernel does with the device, and what keeps it from its best; or why it failed. For feedback.

A kernel is judged as always. The launches of a correct one become figures and issues; they are counted without a GPU,
where no process of the candidate can say otherwise. On a GPU the verdict is that of the GPU.
"""

from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from kernels_eval.inspection.failures import Failure, explain
from kernels_eval.inspection.figures import CallFigures, figures_of
from kernels_eval.judge import Judge
from kernels_eval.pool.job_queue import Job
from kernels_eval.pool.worker_client import Judged, ProblemEndedWorkerError
from kernels_eval.problem import Problem, without_mark
from kernels_eval.verdict import Issue, Verdict, fault


class Inspection(FrozenModel):
    """Verdict on one kernel, with its figures and issues."""

    verdict: Verdict
    figures: CallFigures | None = None
    """Estimates of one call; None unless the kernel is correct in the interpreter."""
    issues: tuple[Issue, ...] = ()
    failure: Failure | None = None
    """Reason why it is not correct; None if it is. On a GPU also why a correct one could not be counted without it."""


def inspect_kernel(judge: Judge, problem: Problem, kernel_source: str) -> Inspection:
    """Judge a kernel, and look at what it does. Raises InfrastructureError if the machine failed twice."""
    kernel_source = without_mark(kernel_source)
    if judge.config.device == "cuda":
        verdict = judge.evaluate(problem, kernel_source)
        if not verdict.correct:
            return Inspection(verdict=verdict, failure=explain(verdict))
        with Judge(judge.config.model_copy(update={"device": "cpu", "workers": 1})) as counting:
            judged = _judged(counting, problem, kernel_source)
    else:
        judged = _judged(judge, problem, kernel_source)
        verdict = judged.verdict
    if not judged.verdict.correct:
        return Inspection(verdict=verdict, failure=explain(judged.verdict))
    hardware = HARDWARE[judge.config.roofline_hardware]
    figures = figures_of(judged.launches, judged.usages, judged.work, hardware)
    return Inspection(verdict=verdict, figures=figures, issues=judged.verdict.issues)


def _judged(judge: Judge, problem: Problem, kernel_source: str) -> Judged:
    config = judge.check(problem, settings={"compile": "correct", "compile_share": 1.0}, source=kernel_source)
    job = Job("inspect", problem, kernel_source, config)
    client = judge.new_client()
    try:
        return client.judge(job)
    except InfrastructureError:
        client.reset()
        try:
            return client.judge(job)
        except ProblemEndedWorkerError as error:
            return Judged(fault(ErrorCategory.REFERENCE_FAILED, str(error)))
    finally:
        client.close()
