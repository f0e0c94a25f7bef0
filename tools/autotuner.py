"""Autotuner as a rival of policies: kernels of the corpus's styles with other tunings, as many as may be judged.

It knows what a problem computes, and searches as far as it may: first the style that is expected to be the fastest,
with its fixed launch parameters; then styles and tunings at random, without those styles that are slow on purpose. It
has no kernels for a problem that is not of the generated suite.
"""

import random
from collections.abc import Mapping, Sequence

from flows.settings.configuration import RunConfig
from kernels_eval import Problem
from tasks.problems.row import ProblemRow
from tasks.problems.synthetic.composition import Composition, parse_composition
from tasks.problems.synthetic.languages import Language, Tuned, Wanted, language_of
from tasks.problems.synthetic.suite import columns_of

_PATIENCE = 50
"""Draws in a row that give no new kernel, after which there are taken to be no more."""


def kernels_to_measure(
    rows: Sequence[ProblemRow], counts: Mapping[str, int], config: RunConfig
) -> list[tuple[Problem, str]]:
    """Return the kernels that are drawn for a run's problems, at most as many as `counts` has for each by its id."""
    if config.problems.source != "generated":
        return []
    language = language_of(config.judge.backend)
    return [
        (row.problem, kernel)
        for row in rows
        for kernel in drawn_kernels(row, language, counts[row.problem.problem_id], config.seed)
    ]


def drawn_kernels(row: ProblemRow, language: Language, count: int, seed: int = 0) -> list[str]:
    """Return at most `count` distinct kernels for a problem, the first ones of a longer search with the same seed."""
    if not row.composition or row.composition != row.problem.name:  # the problem is not a generated one
        return []
    composition, columns = parse_composition(row.composition), columns_of(row.problem)
    generator = random.Random(f"autotuner {seed} {row.problem.problem_id}")

    def write(style: str, tuning: Tuned) -> str:
        return language.write(Wanted(composition, style, (), columns, tuning, generator))

    styles, misses = _quick_styles(composition, language), 0
    found = {write(language.fastest_style(composition), "fixed"): None}
    while len(found) < count and misses < _PATIENCE:
        known = len(found)
        found[write(generator.choice(styles), "varied")] = None
        misses = 0 if len(found) > known else misses + 1
    return list(found)[:count]


def _quick_styles(composition: Composition, language: Language) -> list[str]:
    slow = set(language.slow_styles(composition))
    quick = [style for style in language.styles(composition) if style not in slow]
    return quick or list(language.styles(composition))
