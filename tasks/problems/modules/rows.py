"""Drawn module problems as rows of a problem set; those to train on have a kernel, but for `problems.unanswered`."""

from collections.abc import Iterator
from itertools import islice

from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import fingerprint_digest
from tasks.problems.modules.corpus import check_operators, stream_answered, stream_problems
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.unanswered import stream_unanswered
from tasks.problems.row import ProblemRow, Split
from tasks.problems.split import hashed_split


def draw_training_rows(config: ProblemsConfig) -> list[ProblemRow]:
    """Return `config.train` problems, without `config.unseen`, all of them to train on."""
    return [
        ProblemRow(problem=problem, split=Split.TRAIN, composition=problem.digest, reference_kernel=kernel)
        for problem, kernel in islice(_to_train_on(config), config.train)
    ]


def _to_train_on(config: ProblemsConfig) -> Iterator[tuple[Problem, str | None]]:
    """Yield training problems, each with its kernel; `config.unanswered` of them have none."""
    unseen, rng = frozenset(config.unseen), Draw(f"unanswered-share-{config.seed}")
    answered = stream_answered(config.seed, unseen, config.levels, long_chains=config.long_chains)
    others = (each for each in stream_unanswered(config.seed, unseen) if each.level in config.levels)
    while True:
        yield (next(others), None) if config.unanswered and rng.chance(config.unanswered) else next(answered)


def draw_rows(config: ProblemsConfig) -> list[ProblemRow]:
    """Return `config.train` and `config.heldout` problems; all of one fingerprint are on one side.

    Operators that training does not have (`config.unseen`) occur in the held-out ones.
    """
    unseen = frozenset(config.unseen)
    check_operators(unseen, "problems.unseen")
    heldout = stream_problems(config.seed + 1, frozenset(), config.levels, "heldout", config.long_chains)
    return [
        *_of_side(_to_train_on(config), Split.TRAIN, config.train, config),
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
