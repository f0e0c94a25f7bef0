"""The bundled suite: hundreds of problems from a seed, split by composition.

No composition of a held-out problem occurs in a training problem, nor in the generated SFT corpus: the policy has seen
each operator of a held-out problem, never the sequence. Held-out problems depend on `seed` and `heldout` alone, so
that asking for more training problems does not change what is measured.
"""

import random
from collections.abc import Iterator

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.generated.composition import Composition, draw_composition
from tasks.problems.generated.kernels import Style, kernel_source
from tasks.problems.generated.source import Shape, problem_source
from tasks.problems.generated.well_posed import is_meaningful
from tasks.problems.row import ProblemRow, Split

ROWS = (4096, 8192, 16384)
COLUMNS = (64, 96, 128, 160, 200, 256)
MATMUL_COLUMNS = (32, 48, 64)
INNER = (32, 64, 96)
LEVEL_SHARES = {1: 0.15, 2: 0.5, 3: 0.35}
_DRAWS_PER_PROBLEM = 200


def generate_problems(config: ProblemsConfig) -> list[ProblemRow]:
    """Return the held-out problems and then the training problems; InputError where the suite holds too few."""
    heldout = heldout_compositions(config)
    generator = random.Random(f"shapes-heldout-{config.seed}")
    rows = [_row(composition, draw_shape(composition, generator), Split.HELDOUT) for composition in heldout]
    train = draw_training_compositions(config, config.train, seed=config.seed)
    generator = random.Random(f"shapes-train-{config.seed}")
    rows += [_row(composition, draw_shape(composition, generator), Split.TRAIN) for composition in train]
    return rows


def heldout_compositions(config: ProblemsConfig) -> list[Composition]:
    """Return the compositions that nothing may be trained on, in a fixed order."""
    generator = random.Random(f"heldout-{config.seed}")
    return list(_distinct(config, config.heldout, generator, excluded=set()))


def draw_training_compositions(config: ProblemsConfig, count: int, seed: int) -> list[Composition]:
    """Return `count` distinct compositions, none of them held out.

    Single operators are few: where a level has no more of them, the other levels fill up.
    """
    excluded = {composition.key for composition in heldout_compositions(config)}
    return list(_distinct(config, count, random.Random(f"train-{seed}"), excluded))


def draw_shape(composition: Composition, generator: random.Random) -> Shape:
    """Draw sizes that suit the composition."""
    rows = generator.choice(ROWS)
    if composition.head is not None:
        return Shape(rows=rows, columns=generator.choice(MATMUL_COLUMNS), inner=generator.choice(INNER))
    return Shape(rows=rows, columns=generator.choice(COLUMNS))


def problem_of(composition: Composition, shape: Shape) -> Problem:
    """Return the problem; its id tells composition and sizes."""
    sizes = "x".join(str(size) for size in (shape.rows, shape.inner, shape.columns) if size)
    return Problem(
        problem_id=f"generated/{composition.key}/{sizes}",
        source=problem_source(composition, shape),
        level=composition.level,
        family=composition.family,
        name=composition.key,
    )


def _row(composition: Composition, shape: Shape, split: Split) -> ProblemRow:
    return ProblemRow(
        problem=problem_of(composition, shape),
        split=split,
        composition=composition.key,
        reference_kernel=kernel_source(composition, Style.FUSED),
    )


def _distinct(
    config: ProblemsConfig, count: int, generator: random.Random, excluded: set[str]
) -> Iterator[Composition]:
    """Yield `count` distinct meaningful compositions, levels in their shares."""
    unknown = set(config.levels) - LEVEL_SHARES.keys()
    if unknown:
        raise InputError(f"problems.levels: the generated suite has levels 1, 2 and 3, found {min(unknown)}")
    weights = [LEVEL_SHARES[level] for level in config.levels]
    seen = set(excluded)
    found = 0
    for _ in range(count * _DRAWS_PER_PROBLEM):
        if found == count:
            return
        level = generator.choices(config.levels, weights)[0]
        composition = draw_composition(level, generator)
        if composition.key in seen or not is_meaningful(composition.key):
            continue
        seen.add(composition.key)
        found += 1
        yield composition
    if found < count:
        raise InputError(
            f"problems: the generated suite has fewer than {count} distinct compositions at levels {list(config.levels)}; ask for fewer"
        )
