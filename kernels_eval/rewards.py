"""Rewards: functions of a verdict alone, by name. A fault of the judge is never a reward: it raises.

Adding one: write the function, add a registry line.
"""

from collections.abc import Callable

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.verdict import Verdict

RewardFunction = Callable[[Verdict], float]


def kernelbench(verdict: Verdict) -> float:
    """0.1 compiled; 0.3 correct (replaces the 0.1) + min(max(speedup − 1, 0), 2). Range 0 … 2.3."""
    if verdict.correct:
        return 0.3 + min(max((verdict.speedup or 0.0) - 1.0, 0.0), 2.0)
    return 0.1 if verdict.compiled and verdict.rejection_reason is None else 0.0


def kevin(verdict: Verdict) -> float:
    """Kevin's (multi-turn RL for CUDA kernels): 0.3 correct + speedup, nothing otherwise."""
    return 0.3 + (verdict.speedup or 0.0) if verdict.correct else 0.0


def speedup_capped(verdict: Verdict) -> float:
    """The speedup of a correct kernel, at most 3; nothing otherwise."""
    return min(verdict.speedup or 0.0, 3.0) if verdict.correct else 0.0


REWARDS: dict[str, RewardFunction] = {
    "kernelbench": kernelbench,
    "kevin": kevin,
    "speedup_capped": speedup_capped,
}


def reward_of(name: str, verdict: Verdict) -> float:
    """Return the named reward of a verdict. InputError: no such reward. InfrastructureError: there was no verdict on the kernel."""
    if name not in REWARDS:
        raise InputError(f"reward: expected one of {', '.join(sorted(REWARDS))}, found {name!r}")
    if verdict.is_fault:
        raise InfrastructureError(f"a fault of the judge has no reward: {verdict.error_message}")
    return REWARDS[name](verdict)
