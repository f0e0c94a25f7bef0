"""The bundled suite: hundreds of well-posed problems from a seed, split by composition.

No composition of a held-out problem is a contiguous part of a training problem's, or all of it, nor of one in the
generated SFT corpus: the policy has seen its operators, never their sequence. Operators that differ only in a constant,
or in the shape of an operand, count as one. Standard held-out problems depend on `seed`, `heldout` and `levels` alone;
the harder tiers (tasks.problems.row.Tier) are drawn after them. A share of the ordered pairs of operators occurs in the
tier `new_pairs` alone.
"""

import hashlib
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Sequence

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import ProblemRow, Split, Tier
from tasks.problems.synthetic.composition import Composition, draw_composition
from tasks.problems.synthetic.sizes import SIZES, SizesName
from tasks.problems.synthetic.sources import Shape, Style, kernel_source, problem_source
from tasks.problems.synthetic.well_posed import is_well_posed

LEVEL_SHARES = {1: 0.15, 2: 0.5, 3: 0.35}
RESERVED_PAIRS = 0.04
"""Share of the ordered pairs of operators that only the tier `new_pairs` has."""
LONGEST_FURTHER = 2
"""Operators that the tier `longer` has beyond the longest training problem, at most."""
_HARDER = (Tier.LONGER, Tier.NEW_PAIRS, Tier.NEW_SHAPES)
_DRAWS_PER_PROBLEM = 200
Draw = Callable[[], Composition]


def generate_problems(config: ProblemsConfig) -> list[ProblemRow]:
    """Return the held-out problems and then the training problems; InputError where the suite holds too few."""
    train = draw_training_compositions(config, config.train, seed=config.seed)
    rows: list[ProblemRow] = []
    for split, tier, compositions in (
        (Split.HELDOUT, Tier.STANDARD, heldout_compositions(config)),
        *((Split.HELDOUT, tier, compositions) for tier, compositions in harder_compositions(config).items()),
        (Split.TRAIN, Tier.STANDARD, train),
    ):
        generator = random.Random(f"shapes-{split if tier is Tier.STANDARD else tier}-{config.seed}")
        rows += [
            _row(composition, draw_shape(composition, generator, tier, config.sizes), split, tier)
            for composition in compositions
        ]
    return rows


def heldout_compositions(config: ProblemsConfig) -> list[Composition]:
    """Return the compositions of the standard held-out problems, in a fixed order."""
    generator = random.Random(f"heldout-{config.seed}")
    draw = _drawn(_levels_held_out(config.levels), generator)
    return list(_distinct(config, config.heldout, draw, lambda drawn: not _has_reserved_pair(drawn, config.seed)))


def harder_compositions(config: ProblemsConfig) -> dict[Tier, list[Composition]]:
    """Return the compositions of each harder tier; none of them is one of the standard held-out problems."""
    taken = {composition.canonical for composition in heldout_compositions(config)}
    found: dict[Tier, list[Composition]] = {}
    for place, tier in enumerate(_HARDER):
        generator = random.Random(f"{tier}-{config.seed}")
        draw = _draw_longer(generator) if tier is Tier.LONGER else _drawn(_levels_held_out(config.levels), generator)
        count = len(range(place, config.harder, len(_HARDER)))

        def is_allowed(drawn: Composition, wanted: bool = tier is Tier.NEW_PAIRS) -> bool:
            return _has_reserved_pair(drawn, config.seed) is wanted

        found[tier] = list(_distinct(config, count, draw, is_allowed, taken))
        taken |= {composition.canonical for composition in found[tier]}
    return found


def draw_training_compositions(
    config: ProblemsConfig, count: int, seed: int, levels: Sequence[int] = ()
) -> list[Composition]:
    """Return `count` distinct compositions, of which no part is held out; of `levels`, by default of `config.levels`.

    Single operators are few: where a level has no more of them, the other levels fill up.
    """
    heldout = itertools.chain(heldout_compositions(config), *harder_compositions(config).values())
    excluded = {composition.canonical for composition in heldout}

    def is_allowed(drawn: Composition) -> bool:
        return not _has_reserved_pair(drawn, config.seed) and excluded.isdisjoint(drawn.parts)

    return list(_distinct(config, count, _drawn(levels or config.levels, random.Random(f"train-{seed}")), is_allowed))


def draw_shape(
    composition: Composition, generator: random.Random, tier: Tier = Tier.STANDARD, sizes: SizesName = "small"
) -> Shape:
    """Draw sizes that suit the composition; `sizes`: the setting `problems.sizes`."""
    choices = SIZES[sizes].new if tier is Tier.NEW_SHAPES else SIZES[sizes].known
    rows = generator.choice(choices.rows if composition.head is None else choices.matmul_rows)
    if composition.head is not None:
        columns = generator.choice(choices.matmul_columns)
        return Shape(rows=rows, columns=columns, inner=generator.choice(choices.inner))
    return Shape(rows=rows, columns=generator.choice(choices.columns))


def problem_of(composition: Composition, shape: Shape) -> Problem:
    """Return the problem; its id tells composition and sizes, in characters that no shell interprets."""
    sizes = "x".join(str(size) for size in (shape.rows, shape.inner, shape.columns) if size)
    return Problem(
        problem_id=f"generated_{composition.key.replace('>', '.')}_{sizes}",
        source=problem_source(composition, shape),
        level=composition.level,
        family=composition.family,
        name=composition.key,
    )


def columns_of(problem: Problem) -> int:
    """Return the columns of a problem's output tile: the last of the sizes that its id ends with."""
    return int(problem.problem_id.rpartition("x")[2])


def _row(composition: Composition, shape: Shape, split: Split, tier: Tier) -> ProblemRow:
    return ProblemRow(
        problem=problem_of(composition, shape),
        split=split,
        composition=composition.key,
        reference_kernel=kernel_source(composition, Style.FUSED),
        tier=tier,
    )


def _levels_held_out(levels: Sequence[int]) -> tuple[int, ...]:
    """Return the levels to hold out: a single operator that is held out could be in no training problem at all."""
    return tuple(level for level in levels if level != 1) or tuple(levels)


def _drawn(levels: Sequence[int], generator: random.Random) -> Draw:
    """Return a function that draws a composition, levels in their shares."""
    unknown = set(levels) - LEVEL_SHARES.keys()
    if unknown:
        raise InputError(f"problems.levels: the generated suite has levels 1, 2 and 3, found {min(unknown)}")
    weights = [LEVEL_SHARES[level] for level in levels]
    return lambda: draw_composition(generator.choices(levels, weights)[0], generator)


def _draw_longer(generator: random.Random) -> Draw:
    return lambda: draw_composition(3, generator, further=generator.randint(1, LONGEST_FURTHER))


def _has_reserved_pair(composition: Composition, seed: int) -> bool:
    return any(_is_reserved(pair, seed) for pair in itertools.pairwise(composition.canonical))


def _is_reserved(pair: tuple[str, str], seed: int) -> bool:
    digest = hashlib.sha256(f"pair-{seed}:{'>'.join(pair)}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48 < RESERVED_PAIRS


def _distinct(
    config: ProblemsConfig,
    count: int,
    draw: Draw,
    is_allowed: Callable[[Composition], bool],
    taken: Collection[tuple[str, ...]] = (),
) -> Iterator[Composition]:
    """Yield `count` well-posed compositions that are allowed, distinct from one another and from those taken."""
    seen = set(taken)
    found = 0
    for _ in range(count * _DRAWS_PER_PROBLEM):
        if found == count:
            return
        composition = draw()
        if composition.canonical in seen or not is_allowed(composition) or not is_well_posed(composition.key):
            continue
        seen.add(composition.canonical)
        found += 1
        yield composition
    if found < count:
        raise InputError(
            f"problems: the generated suite has fewer than {count} distinct compositions "
            f"at levels {list(config.levels)}; ask for fewer"
        )
