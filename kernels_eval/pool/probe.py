"""Probe: a kernel that is known to be right. Where it does not get `correct`, the machine is at fault."""

from collections.abc import Mapping
from typing import Any

from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM, Problem

PROBE_PROBLEM = Problem(problem_id="probe", source=EXAMPLE_PROBLEM)
PROBE_KERNEL = EXAMPLE_KERNEL
PROBE_SETTINGS: Mapping[str, Any] = {"backend": "triton", "policy": "strict", "compile": "never"}
"""Fields of JudgeConfig that it is judged with, whatever other kernels are."""
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0


def next_wait_s(wait_s: float) -> float:
    """Return the seconds to wait after a failed probe, before which `wait_s` were waited; 0 before the first."""
    return min(max(2 * wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
