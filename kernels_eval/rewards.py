"""Rewards: functions of a verdict, by name. A fault of the judge is never a reward: it raises.

A reward's name may continue with weighted terms of the answer itself, e.g. `kernelbench - 0.2*length + 0.05*format`:
weights are decimal numbers, each term is worth 0 to 1. All inputs of a reward are stored with the turn: any reward can
be computed again later. To add a reward or a term, write the function and add a line to REWARDS or TERMS.
"""

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.verdict import IssueKind, Status, TimingSource, Verdict

RewardFunction = Callable[[Verdict], float]


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer, the input of terms."""

    text: str
    """The whole response, with its reasoning."""
    tokens: int
    """Number of sampled tokens."""


TermFunction = Callable[[Answer], float]
_TARGET_SPEEDUP = 2.0
LONG_ANSWER_TOKENS = 4096
"""Tokens from which on `length` is 1."""


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


def four_part(verdict: Verdict) -> float:
    """0.4·min(speedup / 2, 2) + 0.3 correct + 0.2·efficiency + 0.1 compiled: the reward of agents. Range 0 … 1.4.

    Efficiency, of a correct kernel, is that of its memory traffic (bytes needed over bytes moved) times the occupancy
    that its registers allow; each counts where the judge made an issue of it, and is 1 where it did not.
    """
    if not verdict.correct:
        return 0.1 if verdict.compiled and verdict.rejection_reason is None else 0.0
    return 0.4 * min((verdict.speedup or 0.0) / _TARGET_SPEEDUP, 2.0) + 0.3 + 0.2 * _efficiency(verdict) + 0.1


def _efficiency(verdict: Verdict) -> float:
    moved = max((issue.value for issue in verdict.issues if issue.kind is IssueKind.REDUNDANT_TRAFFIC), default=1.0)
    occupancies = (issue.value for issue in verdict.issues if issue.kind is IssueKind.LOW_OCCUPANCY)
    return min(1.0 / max(moved, 1.0), 1.0) * min(occupancies, default=1.0)


def length(answer: Answer) -> float:
    """Tokens of the answer, reasoning included, as a share of 4,096; at most 1."""
    return min(answer.tokens / LONG_ANSWER_TOKENS, 1.0)


def formatting(answer: Answer) -> float:
    """1 if the answer without its reasoning is one fenced Python block and nothing else."""
    text = answer.text.rpartition("</think>")[2].strip()
    block = re.fullmatch(r"(`{3,})python\n(.*)\n\1", text, re.DOTALL)
    if block is None:
        return 0.0
    fence = re.escape(block[1])
    return 0.0 if re.search(rf"^\s*{fence}", block[2], re.MULTILINE) else 1.0


REWARDS: dict[str, RewardFunction] = {
    "kernelbench": kernelbench,
    "kevin": kevin,
    "four_part": four_part,
    "speedup_capped": speedup_capped,
}
TERMS: dict[str, TermFunction] = {"length": length, "format": formatting}

_TERM = re.compile(r"\s*([+-])\s*(\d+(?:\.\d+)?)\s*\*\s*([a-z_]+)\s*")
_WORST = Verdict(status=Status.COMPILE_ERROR)
_BEST = Verdict(
    status=Status.CORRECT, compiled=True, correct=True, speedup=1e9, timing_source=TimingSource.GPU, candidate_ms=1e-9
)


def reward_of(name: str, verdict: Verdict, answer: Answer | None = None) -> float:
    """Return the named reward of a verdict; without an answer its terms are worth nothing.

    Raises InputError if there is no such reward, InfrastructureError if the verdict is a fault of the machine.
    """
    function, terms = _parsed(name)
    if verdict.is_fault:
        raise InfrastructureError(f"a fault of the judge has no reward: {verdict.error_message}")
    reward = function(verdict)
    return reward if answer is None else reward + math.fsum(weight * term(answer) for weight, term in terms)


def reward_bounds(name: str) -> tuple[float, float]:
    """Return the lowest and highest value of the named reward. Raises InputError if there is no such reward."""
    function, terms = _parsed(name)
    weights = [weight for weight, _ in terms]
    return (
        function(_WORST) + sum(weight for weight in weights if weight < 0),
        function(_BEST) + sum(weight for weight in weights if weight > 0),
    )


@functools.lru_cache(maxsize=64)
def _parsed(name: str) -> tuple[RewardFunction, tuple[tuple[float, TermFunction], ...]]:
    base = re.match(r"\s*([a-z_]+)\s*", name)
    if base is None or base[1] not in REWARDS:
        raise InputError(f"reward: expected one of {', '.join(sorted(REWARDS))}, found {name!r}")
    terms: list[tuple[float, TermFunction]] = []
    place = base.end()
    while place < len(name):
        term = _TERM.match(name, place)
        if term is None or term[3] not in TERMS:
            raise InputError(
                f"reward: after {name[:place]!r} expected terms such as `- 0.2*length`, of {', '.join(sorted(TERMS))}; "
                f"found {name[place:]!r}"
            )
        terms.append((float(term[1] + term[2]), TERMS[term[3]]))
        place = term.end()
    return REWARDS[base[1]], tuple(terms)
