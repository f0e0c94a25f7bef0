"""Rewards: functions of a verdict, by name. A fault of the judge is never a reward: it raises.

A reward's name may continue with weighted terms of the answer itself, e.g. `kernelbench - 0.2*length + 0.05*format`:
weights are decimal numbers, each term is worth 0 to 1. All inputs of a reward are stored with the turn: any reward can
be computed again later. A reward or a term of your own is named by its path, `my_rewards:fast - 0.2*my_terms:short`
(docs/doors.md); one of ours is a function here and a line in REWARDS or TERMS.
"""

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kernels_eval.doors import DOTTED, Door
from kernels_eval.errors import InfrastructureError, InputError, first_line
from kernels_eval.frozen import NamesCode
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


def correct(verdict: Verdict) -> float:
    """1 for a correct kernel, however fast; nothing otherwise."""
    return 1.0 if verdict.correct else 0.0


def roofline(verdict: Verdict) -> float:
    """0.3 correct + `sol_score`, which is 0.5 at the baseline's time and 1 at the roofline's. Range 0 … 1.3.

    A verdict without that score (an estimate, or a baseline at the roofline) has half of its speedup instead, at most
    0.5.
    """
    if not verdict.correct:
        return 0.0
    score = verdict.sol_score
    return 0.3 + (0.5 * min(verdict.speedup or 0.0, 1.0) if score is None else score)


def four_part(verdict: Verdict) -> float:
    """0.4·min(speedup / 2, 2) + 0.3 correct + 0.2·efficiency + 0.1 compiled: the reward of agents. Range 0 … 1.4.

    Efficiency is that of a correct kernel's memory traffic times that of its registers (`Verdict.efficiency`).
    """
    if not verdict.correct:
        return 0.1 if verdict.compiled and verdict.rejection_reason is None else 0.0
    return 0.4 * min((verdict.speedup or 0.0) / _TARGET_SPEEDUP, 2.0) + 0.3 + 0.2 * _efficiency(verdict) + 0.1


def _efficiency(verdict: Verdict) -> float:
    """Return the product of both; a verdict from before they were stored has them where they are an issue alone."""
    if verdict.efficiency is not None:
        return verdict.efficiency.memory * verdict.efficiency.registers
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
    "correct": correct,
    "roofline": roofline,
}
TERMS: dict[str, TermFunction] = {"length": length, "format": formatting}

REWARD_DOOR = Door(
    "reward",
    {name: f"{__name__}:{function.__name__}" for name, function in REWARDS.items()},
    "a function (verdict) -> number",
)
TERM_DOOR = Door(
    "term",
    {name: f"{__name__}:{function.__name__}" for name, function in TERMS.items()},
    "a function (answer) -> number from 0 to 1",
)
_NAME = rf"({DOTTED.pattern}|[a-z_]\w*)"
_BASE = re.compile(rf"\s*{_NAME}\s*")
_TERM = re.compile(rf"\s*([+-])\s*(\d+(?:\.\d+)?)\s*\*\s*{_NAME}\s*")
_WORST = Verdict(status=Status.COMPILE_ERROR)
_BEST = Verdict(
    status=Status.CORRECT,
    compiled=True,
    correct=True,
    speedup=1e9,
    timing_source=TimingSource.GPU,
    candidate_ms=1e-9,
    sol_score=1.0,
)


class _Names(NamedTuple):
    """The names in a reward's text."""

    base: str
    terms: tuple[tuple[float, str], ...]
    """Weight and name of each term."""


class _RewardText(NamesCode):
    """Marks a setting that names a reward, with its terms."""

    def source_of(self, value: str) -> str:
        """Return the digests of the sources behind the reward and its terms."""
        names = _parsed(value)
        sources = [REWARD_DOOR.source_of(names.base), *(TERM_DOOR.source_of(term) for _, term in names.terms)]
        return " ".join(sources)

    def verify(self, value: str) -> None:
        """Import the reward and its terms. Raises InputError."""
        names = _parsed(value)
        REWARD_DOOR.verify(names.base)
        for _, term in names.terms:
            TERM_DOOR.verify(term)

    def is_ours(self, value: str) -> bool:
        """True if the reward and its terms are ours."""
        names = _parsed(value)
        return REWARD_DOOR.is_ours(names.base) and all(TERM_DOOR.is_ours(term) for _, term in names.terms)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a field take a reward's text. Nothing is imported for it."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str) -> str:
        try:
            _parsed(value)
        except InputError as error:
            raise ValueError(str(error).partition("expected ")[2]) from error
        return value


RewardText = Annotated[str, _RewardText()]
"""A setting or an argument that names a reward, with its terms."""


def reward_of(name: str, verdict: Verdict, answer: Answer | None = None) -> float:
    """Return the named reward of a verdict; without an answer its terms are worth nothing.

    Raises InputError if there is no such reward or it gives no number, InfrastructureError if the verdict is a fault of
    the machine.
    """
    function, terms = _loaded(name)
    if verdict.is_fault:
        raise InfrastructureError(f"a fault of the judge has no reward: {verdict.error_message}")
    reward = function(verdict)
    return reward if answer is None else reward + math.fsum(weight * term(answer) for weight, term in terms)


def reward_bounds(name: str) -> tuple[float, float]:
    """Return the lowest and highest value of the named reward. Raises InputError if there is no such reward.

    A reward of your own may state its range as an attribute, `fast.bounds = (0, 2)`; else nothing is known of it.
    """
    names = _parsed(name)
    function, _ = _loaded(name)
    weights = [weight for weight, _ in names.terms]
    if REWARD_DOOR.is_ours(names.base):
        lowest, highest = function(_WORST), function(_BEST)
    else:
        lowest, highest = getattr(REWARD_DOOR.load(names.base), "bounds", (-math.inf, math.inf))
    return (
        lowest + sum(weight for weight in weights if weight < 0),
        highest + sum(weight for weight in weights if weight > 0),
    )


@functools.lru_cache(maxsize=64)
def _loaded(name: str) -> tuple[RewardFunction, tuple[tuple[float, TermFunction], ...]]:
    names = _parsed(name)
    terms = tuple((weight, _numeric(TERM_DOOR, term)) for weight, term in names.terms)
    return _numeric(REWARD_DOOR, names.base), terms


def _numeric(door: Door, name: str) -> Callable[[Any], float]:
    """Return the function of a name; of somebody else's every value is checked."""
    function = door.load(name)
    if door.is_ours(name):
        return function

    def checked(given: Any) -> float:
        try:
            value = float(function(given))
        except Exception as error:
            raise InputError(f"{door.name}: {name} raised {type(error).__name__}: {first_line(error)}") from error
        if not math.isfinite(value):
            raise InputError(f"{door.name}: {name} returned {value}, expected a finite number")
        return value

    return checked


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> _Names:
    base = _BASE.match(text)
    if base is None or not REWARD_DOOR.knows(base[1]):
        raise InputError(f"reward: expected {REWARD_DOOR.expectation}; found {text!r}")
    terms: list[tuple[float, str]] = []
    place = base.end()
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None or not TERM_DOOR.knows(term[3]):
            raise InputError(
                f"reward: after {text[:place]!r} expected terms such as `- 0.2*length`, {TERM_DOOR.expectation}; "
                f"found {text[place:]!r}"
            )
        terms.append((float(term[1] + term[2]), term[3]))
        place = term.end()
    return _Names(base[1], tuple(terms))
