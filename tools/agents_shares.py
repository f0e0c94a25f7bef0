"""Shares of the oracle table of agents, of the kernels that a role was given: those that something else beats.

Times are compared on one clock alone: of one source and hardware.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, geometric_mean

from agents_asked import Asked
from judged_times import Clock, clock_of, time_of


@dataclass(frozen=True)
class Timed:
    """The time of a right kernel for a problem."""

    problem_id: str
    clock: Clock
    ms: float
    answers: str | None = None
    """Source of the kernel that it is an answer to, if any."""


@dataclass(frozen=True)
class Given:
    """A kernel that the role was given, with its answers; a wrong one takes for ever."""

    problem_id: str
    kernel: str
    clock: Clock
    ms: float
    """Infinite if the kernel is wrong."""
    answers: tuple[float, ...]
    """Times in ms; of answers to a wrong kernel 0 for a right one."""


@dataclass(frozen=True)
class Part:
    """Answers to some of the given kernels."""

    given: int
    best_of_n: float
    one_answer: float
    n: float


@dataclass(frozen=True)
class Anew(Part):
    """Answers to kernels that are known to be beaten, each asked for so many times."""

    left_out: int
    """Kernels that were not right when judged anew, or whose prompts leave no room for an answer."""
    best_times: float
    """Geometric mean of how many times as fast the best answer is; 1 where none is faster."""
    autotuner_times: float | None
    """The same of the autotuner's kernel; None if it has none for these problems."""


@dataclass(frozen=True)
class Row:
    """A line of the table; shares are of the right kernels that were given, None if there are none."""

    given: int
    in_corpus: int
    """Given kernels for whose problem the corpus has a right kernel that was timed in the same way."""
    corpus: float | None
    autotuner: float | None
    run: float | None
    best_of_n: float | None
    one_answer: float | None
    n: float | None
    left_out: int
    """Right kernels of the corpus and the run on these problems that were timed in another way than the given ones."""
    beaten: Part | None
    fastest: Part | None
    wrong: Part | None
    anew: Anew | None = None


def oracle(
    given: Sequence[Given],
    corpus: Sequence[Timed],
    run: Sequence[Timed],
    gain: float,
    autotuned: Sequence[Timed] | None = None,
) -> Row | None:
    """Return the line of these kernels; None if there are none."""
    right, wrong = ([one for one in given if (one.ms < math.inf) is is_right] for is_right in (True, False))
    if not given:
        return None
    known = _by_place(corpus), _by_place(run), _by_place(autotuned or ())

    def share(is_counted: Callable[[Given], float]) -> float | None:
        return fmean(map(is_counted, right)) if right else None

    def is_beaten(one: Given) -> bool:
        return any(one.ms >= gain * _least(one, kernels, elsewhere=True) for kernels in known)

    answers = _part(right, gain)
    places, problems = {(one.problem_id, one.clock) for one in right}, {one.problem_id for one in right}
    other = [each for each in (*corpus, *run) if (each.problem_id, each.clock) not in places]
    return Row(
        given=len(right),
        in_corpus=sum(_least(one, known[0]) < math.inf for one in right),
        corpus=share(lambda one: one.ms >= gain * _least(one, known[0])),
        autotuner=None if autotuned is None else share(lambda one: one.ms >= gain * _least(one, known[2])),
        run=share(lambda one: one.ms >= gain * _least(one, known[1])),
        best_of_n=answers and answers.best_of_n,
        one_answer=answers and answers.one_answer,
        n=answers and answers.n,
        left_out=sum(each.problem_id in problems for each in other),
        beaten=_part([one for one in right if is_beaten(one)], gain),
        fastest=_part([one for one in right if not is_beaten(one)], gain),
        wrong=_part(wrong, gain),
    )


def _least(one: Given, kernels: dict[tuple[str, Clock], list[Timed]], *, elsewhere: bool = False) -> float:
    """Return the least time for the problem of a kernel, on its clock; `elsewhere`: without answers to this kernel."""
    found = kernels.get((one.problem_id, one.clock), [])
    return min((each.ms for each in found if not elsewhere or each.answers != one.kernel), default=math.inf)


def _by_place(kernels: Iterable[Timed]) -> dict[tuple[str, Clock], list[Timed]]:
    found = defaultdict[tuple[str, Clock], list[Timed]](list)
    for each in kernels:
        found[each.problem_id, each.clock].append(each)
    return found


def _part(given: Sequence[Given], gain: float) -> Part | None:
    """Return how often answers beat these kernels by the gain, or a wrong kernel by being right."""
    if not given:
        return None
    beats = [[ms < math.inf and one.ms >= gain * ms for ms in one.answers] for one in given]
    return Part(len(given), fmean(map(any, beats)), fmean(map(fmean, beats)), fmean(map(len, beats)))


def beaten_kernels(given: Sequence[Given], rivals: Sequence[Timed], gain: float, most: int) -> list[Given]:
    """Return right kernels that a rival beats by the gain; of more than `most` some that are drawn."""
    places = _by_place(rivals)
    beaten = [one for one in given if one.ms < math.inf and one.ms >= gain * _least(one, places)]
    return beaten if len(beaten) <= most else random.Random(0).sample(beaten, most)


def anew(asked: Sequence[Asked], kernels: int, autotuned: Sequence[Timed], gain: float) -> Anew | None:
    """Return the part of kernels that were asked about anew; None if there are none. `kernels`: that were chosen."""
    given = [
        Given(one.problem_id, one.kernel, clock_of(one.verdict), time_of(one.verdict), one.answers) for one in asked
    ]
    given = [one for one in given if one.answers]
    part, places = _part(given, gain), _by_place(autotuned)
    if part is None:
        return None
    rivals = [_least(one, places) for one in given]
    times = [max(one.ms / ms, 1.0) for one, ms in zip(given, rivals, strict=True) if ms < math.inf]
    return Anew(
        **asdict(part),
        left_out=kernels - len(given),
        best_times=geometric_mean(max(one.ms / min(one.answers), 1.0) for one in given),
        autotuner_times=geometric_mean(times) if times else None,
    )
