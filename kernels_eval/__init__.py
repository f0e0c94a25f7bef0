"""kernels_eval: judges GPU kernels. Stand-alone: knows nothing of Prefect, Ray, or the rest of kernelmill.

    with Judge(JudgeConfig()) as judge:
        verdict = judge.evaluate(problem, kernel_source)

Importing this package is light: neither torch nor triton is ever imported into the caller's process.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels_eval.config import JudgeConfig
    from kernels_eval.judge import Judge
    from kernels_eval.problem import Problem
    from kernels_eval.verdict import Status, Verdict

_HOMES = {
    "Judge": "kernels_eval.judge",
    "JudgeConfig": "kernels_eval.config",
    "Problem": "kernels_eval.problem",
    "Status": "kernels_eval.verdict",
    "Verdict": "kernels_eval.verdict",
}
__all__ = ["Judge", "JudgeConfig", "Problem", "Status", "Verdict"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
