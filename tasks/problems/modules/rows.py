"""Drawn module problems as rows of a problem set; training problems have a kernel (`reference_kernel`)."""

from collections.abc import Iterator
from itertools import islice

from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import fingerprint_digest
from tasks.problems.modules.corpus import check_operators, stream_answered, stream_problems
from tasks.problems.row import ProblemRow, Split
from tasks.problems.split import hashed_split


def draw_training_rows(config: ProblemsConfig) -> list[ProblemRow]:
    """Return `config.train` problems, without `config.unseen`, all of them to train on."""
    answered = stream_answered(config.seed, frozenset(config.unseen), config.levels, long_chains=config.long_chains)
    return [
        ProblemRow(problem=problem, split=Split.TRAIN, composition=problem.digest, reference_kernel=kernel)
        for problem, kernel in islice(answered, config.train)
    ]


def draw_rows(config: ProblemsConfig) -> list[ProblemRow]:
    """Return `config.train` and `config.heldout` problems; all of one fingerprint are on one side.

    Operators that training does not have (`config.unseen`) occur in the held-out ones.
    """
    unseen = frozenset(config.unseen)
    check_operators(unseen, "problems.unseen")
    train = stream_answered(config.seed, unseen, config.levels, long_chains=config.long_chains)
    heldout = stream_problems(config.seed + 1, frozenset(), config.levels, "heldout", config.long_chains)
    return [
        *_of_side(train, Split.TRAIN, config.train, config),
        *_of_side(((problem, None) for problem in heldout), Split.HELDOUT, config.heldout, config),
    ]


def _of_side(
    answered: Iterator[tuple[Problem, str | None]], side: Split, count: int, config: ProblemsConfig
) -> Iterator[ProblemRow]:
    found = 0
    while found < count:
        problem, kernel = next(answered)
        composition = fingerprint_digest(problem.source)
        if hashed_split(composition, config) is side:
            found += 1
            yield ProblemRow(problem=problem, split=side, composition=composition, reference_kernel=kernel)
