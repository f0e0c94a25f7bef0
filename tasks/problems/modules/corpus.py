"""Draws pairs and problems of all families; the same seed gives the same ones."""

from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import islice

from kernels_eval import Problem
from kernels_eval.errors import InputError
from tasks.problems.modules.defaults import with_drawn_defaults
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import (
    attention,
    binary,
    chains,
    convolutions,
    elementwise,
    formulas,
    long_chains,
    losses,
    norm_layers,
    pooling,
    products,
    reductions,
    scaling,
    scans,
    softmax,
    transposed_convolutions,
    whole_norm,
)
from tasks.problems.modules.mistakes import with_mistake
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.renaming import with_drawn_names
from tasks.problems.modules.slow_forms import slow_kernel

FAMILIES: tuple[tuple[Family, float], ...] = (
    (attention.FAMILY, 0.5),
    (binary.FAMILY, 1.5),
    (chains.FAMILY, 6.0),
    (convolutions.FAMILY, 2.0),
    (elementwise.FAMILY, 2.5),
    (formulas.FAMILY, 2.0),
    (losses.FAMILY, 1.0),
    (norm_layers.FAMILY, 1.5),
    (pooling.FAMILY, 1.5),
    (products.FAMILY, 2.5),
    (reductions.FAMILY, 2.0),
    (scaling.FAMILY, 1.5),
    (scans.FAMILY, 1.0),
    (softmax.FAMILY, 1.0),
    (transposed_convolutions.FAMILY, 1.5),
    (whole_norm.FAMILY, 0.25),
)
"""The families, and how often each is drawn. `long_chains` has a share of its own (`problems.long_chains`)."""
OPERATORS = tuple(sorted({name for family, _ in FAMILIES for name in family.operators}))
LEVELS = (1, 2)
"""Levels of the problems: of one operator, and of several."""
WRONG_EARLIER = 0.3
"""Share of the pairs, of those without a slow earlier kernel, that answer a wrong one."""
_PATIENCE = 2000
"""Draws in a row that may repeat an earlier pair before the families count as exhausted."""


def check_operators(unseen: frozenset[str], field: str = "unseen") -> None:
    """Raise InputError, naming the setting, if a name is no operator of the families or a family has none left."""
    unknown = sorted(unseen - set(OPERATORS))
    if unknown:
        raise InputError(f"{field}: no operator is called {unknown[0]}; expected some of {', '.join(OPERATORS)}")
    if not any(family.can_draw(unseen) for family, _ in FAMILIES):
        raise InputError(f"{field}: no operator is left; name fewer of them")


def draw_pairs(
    count: int, seed: int, unseen: frozenset[str] = frozenset(), long_chains: float = 0.0
) -> Iterator[ModulePair]:
    """Yield `count` distinct pairs without an unseen operator; about three in ten answer an earlier kernel.

    `long_chains`: share of long chains. Raises InputError if an operator is unknown, or the families have fewer pairs.
    """
    check_operators(unseen)
    drawn = _draws(Draw(f"module-pairs-{seed}"), unseen, long_chains)
    distinct = _distinct(drawn, lambda pair: (pair.problem_source, pair.kernel_source, pair.earlier_source))
    return islice(distinct, count)


def draw_optimizations(count: int, seed: int, unseen: frozenset[str] = frozenset()) -> Iterator[ModulePair]:
    """Yield `count` distinct pairs without an unseen operator that each answer a correct kernel that takes longer.

    How much longer, the judge says. They are drawn apart from the pairs of `draw_pairs`, which stay as they are.
    Raises InputError as `draw_pairs` does.
    """
    check_operators(unseen)
    rng = Draw(f"module-optimizations-{seed}")
    distinct = _distinct(_with_slow_kernels(rng, unseen), lambda pair: (pair.problem_source, pair.earlier_source))
    return islice(distinct, count)


def draw_problems(
    count: int, seed: int, unseen: frozenset[str] = frozenset(), levels: Collection[int] = LEVELS
) -> list[Problem]:
    """Return `count` problems with distinct digests, and without an unseen operator.

    Raises InputError as `draw_pairs` does, and if no problem is of one of the levels.
    """
    return list(islice(stream_problems(seed, unseen, levels), count))


def stream_problems(
    seed: int,
    unseen: frozenset[str],
    levels: Collection[int] = LEVELS,
    prefix: str = "module",
    long_chains: float = 0.0,
) -> Iterator[Problem]:
    """Yield problems as `draw_problems` does, without end; ids are `module-00000` and so on."""
    return (problem for problem, _ in stream_answered(seed, unseen, levels, prefix, long_chains))


def stream_answered(
    seed: int,
    unseen: frozenset[str],
    levels: Collection[int] = LEVELS,
    prefix: str = "module",
    long_chains: float = 0.0,
) -> Iterator[tuple[Problem, str]]:
    """Yield the problems of `stream_problems`, each with the source of a kernel for it."""
    check_operators(unseen)
    if not set(levels) & set(LEVELS):
        raise InputError(f"problems.levels: found {list(levels)}, expected one of {list(LEVELS)} for module problems")
    drawn = _draws(Draw(f"module-problems-{seed}"), unseen, long_chains)
    pairs = _distinct(
        (pair for pair in drawn if problem_of(pair).level in levels), lambda pair: problem_of(pair).digest
    )
    return ((problem_of(pair, f"{prefix}-{index:05d}"), pair.kernel_source) for index, pair in enumerate(pairs))


def problem_of(pair: ModulePair, problem_id: str = "") -> Problem:
    """Return the pair's problem; of level 1 if it has one operator, else of level 2."""
    level = 1 if len(pair.operators) == 1 else 2
    return Problem(problem_id=problem_id, source=pair.problem_source, level=level, family=pair.family, name=pair.title)


def _draws(rng: Draw, unseen: frozenset[str], share: float) -> Iterator[ModulePair]:
    """Yield drawn pairs; of those without a slow earlier kernel `WRONG_EARLIER` answer a wrong one."""
    for pair in _drawn(rng, unseen, share):
        if pair.earlier_source is None and rng.chance(WRONG_EARLIER):
            yield pair.model_copy(update={"earlier_source": with_mistake(rng, pair.kernel_source)})
        else:
            yield pair


def _with_slow_kernels(rng: Draw, unseen: frozenset[str]) -> Iterator[ModulePair]:
    """Yield drawn pairs whose earlier kernel is slow, without those of which no slow one is known."""
    for pair in _drawn(rng, unseen, with_slower=True):
        slow = slow_kernel(rng, pair.kernel_source, pair.slower)
        if slow is not None:
            yield pair.model_copy(update={"earlier_source": slow})


def _drawn(rng: Draw, unseen: frozenset[str], share: float = 0.0, *, with_slower: bool = False) -> Iterator[ModulePair]:
    """Yield pairs of all families, `share` of them long chains where their operators are left."""
    share = share if long_chains.can_draw(unseen) else 0.0
    families = [(family, weight) for family, weight in FAMILIES if family.can_draw(unseen)]
    weights = [weight for _, weight in families]
    while True:
        family = long_chains.FAMILY if share and rng.chance(share) else None
        pair = (family or rng.choices([family for family, _ in families], weights)[0]).draw(rng, unseen)
        if not with_slower:  # to write names into texts takes most of the time
            pair = pair.model_copy(update={"slower": ()})
        yield with_drawn_names(rng, with_drawn_defaults(rng, pair))


def _distinct(pairs: Iterator[ModulePair], key_of: Callable[[ModulePair], Hashable]) -> Iterator[ModulePair]:
    seen: set[Hashable] = set()
    repeats = 0
    for pair in pairs:
        key = key_of(pair)
        if key not in seen:
            seen.add(key)
            repeats = 0
            yield pair
            continue
        repeats += 1
        if repeats > _PATIENCE:
            raise InputError(f"module problems: found only {len(seen)} distinct ones; ask for fewer")
