"""Long chains of level 2: a linear layer or a convolution, and one to three normalisations, poolings or reductions.

The kernels are longer than those of `chains`, and most of them are composed.
"""

import re
from dataclasses import replace

from tasks.problems.modules.chain_tails import MAP_TAILS, ROW_TAILS, SAMPLE_TAILS, Tail
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import chains
from tasks.problems.modules.families.chain_bases import WEIGHTS, Base, channel_after, draw_base, renamed
from tasks.problems.modules.families.chain_steps import Step, draw_steps, with_input
from tasks.problems.modules.families.chain_texts import (
    Stage,
    composed_text,
    module_of,
    operator_of,
    plain_text,
    tail_on,
)
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import Module, problem_text

COMPOSED = 0.85
"""Share of the chains whose kernel is composed."""
LONGEST = 5400
"""Characters of a kernel at most: about 2,300 tokens."""
_NORMS = ("group_norm", "layer_norm", "batch_norm", "instance_norm")
_POOLS = ("max_pool", "average_pool")
_CHANNEL_REDUCTIONS = ("softmax", "logsumexp", "max", "min_reduction", "mean")
_TWO = 0.5
"""Share of the chains that have two or three."""
_THREE = 0.45
"""Share of those that have three."""
_POOLED_TWICE = 0.2
"""Share of the poolings with room for another one that come twice."""
_ONE_LAYER = 0.4
"""Share of the poolings that come twice whose layer is one."""
_LEAST_FOR_TWO_POOLS = 9
"""Smallest size of a dimension that two windows of three leave something of."""


def can_draw(unseen: frozenset[str]) -> bool:
    """Return True if a first operator is left, and something that may follow it."""
    return not set(WEIGHTS) <= _and_bases_alone(unseen)


def _and_bases_alone(unseen: frozenset[str]) -> frozenset[str]:
    """Return the unseen operators, and the first operators that nothing is left to follow."""
    rows = {"linear"} if unseen.issuperset(ROW_TAILS) else set[str]()
    maps = set(WEIGHTS) - {"linear"} if unseen.issuperset(MAP_TAILS) else set[str]()
    return unseen | rows | maps


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a chain with a normalisation, pooling or reduction, or two."""
    while True:
        pair = _draw(rng, unseen)
        if pair is not None and len(pair.kernel_source) <= LONGEST:
            return pair


def _draw(rng: Draw, unseen: frozenset[str]) -> ModulePair | None:
    """Return a pair; None if two of its parts have one name."""
    base, steps, stages = draw_parts(rng, unseen)
    module = module_of(base, steps, stages)
    if has_one_name_twice(module, stages):
        return None
    is_once = len(module.inputs) == 1 and len({tail.kernel for tail, _ in stages}) == len(stages)
    is_composed = rng.chance(COMPOSED) or not is_once
    style, write = ("composed", composed_text) if is_composed else ("plain", plain_text)
    return ModulePair(
        family=FAMILY.name,
        operator=operator_of(base, steps, stages),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=write(base, steps, stages, module),
        style=style,
    )


def draw_parts(rng: Draw, unseen: frozenset[str]) -> tuple[Base, list[Step], list[Stage]]:
    """Return a first operator, the steps that follow it, and one to three tails."""
    base = draw_base(rng, _and_bases_alone(unseen))
    names = _draw_tails(rng, unseen, base)
    steps = draw_steps(rng, unseen, rng.pick(0, 0, 1, 1, 2), base.channel)
    steps = with_input(rng, unseen, steps, base.output_shape)
    stages = [_stage(rng, unseen, base, names, place) for place in range(len(names))]
    if len(set(names)) < len(names):
        tails = _twice(rng, stages[0][0])
        stages = [(tail, later) for tail, (_, later) in zip(tails, stages, strict=True)]
    return base, steps, stages


def _draw_tails(rng: Draw, unseen: frozenset[str], base: Base) -> list[str]:
    """Return one to three names of tails; each suits what the ones before it leave."""
    is_map = base.layer is not None
    weighted = [(name, 3 if name in _NORMS or name in _POOLS else 1) for name in (MAP_TAILS if is_map else ROW_TAILS)]
    known = [(name, weight) for name, weight in weighted if name not in unseen]
    first = rng.choices([name for name, _ in known], [weight for _, weight in known])[0]
    names = [first]
    if first in _POOLS and first in _following(first, base) and rng.chance(_POOLED_TWICE):
        return [first, first]
    while len(names) < 3 and rng.chance(_TWO if len(names) == 1 else _THREE):
        possible = _following(names[-1], base) if is_map else _following_in_rows(names[-1])
        without = set(names)
        if "global_average_pool" in names or (len(names) == 2 and not set(_POOLS).isdisjoint(names)):
            without |= set(_POOLS)  # nothing is left for a window
        following = rng.unless(possible, unseen | without, str)
        if not following:
            break
        names.append(rng.choice(following))
    return names


def _following(first: str, base: Base) -> list[str]:
    """Return the tails that may follow one on a convolution's output."""
    assert base.layer is not None
    if first == "global_average_pool":
        return list(_CHANNEL_REDUCTIONS)
    if first in SAMPLE_TAILS:
        return []
    if first in _CHANNEL_REDUCTIONS:
        return [*_POOLS, *(["max", "logsumexp"] if first == "softmax" else ["global_average_pool"])]
    pools = _POOLS if first not in _POOLS or min(base.layer.out_size) >= _LEAST_FOR_TWO_POOLS else ()
    norms = ("group_norm", "batch_norm", *SAMPLE_TAILS) if first in _POOLS else ()
    whole = () if first == "instance_norm" else ("global_average_pool",)  # the mean of a normalised plane is zero
    return [*_CHANNEL_REDUCTIONS, *whole, *pools, *norms]


def _following_in_rows(first: str) -> list[str]:
    """Return the tails that may follow one on a matrix, which a reduction leaves with one column.

    The sum of a normalised row is zero, that of a softmax is one: such problems have a constant as their answer.
    """
    if first in _NORMS:
        whole = ["softmax", "log_softmax", "logsumexp", "max", "min_reduction"]
        return [*whole, "sum", "mean"] if first == "batch_norm" else whole
    return {"softmax": ["max", "logsumexp"], "log_softmax": ["max", "sum", "mean"]}.get(first, [])


def _stage(rng: Draw, unseen: frozenset[str], base: Base, names: list[str], place: int) -> Stage:
    """Return a tail with the element-wise steps that follow it."""
    name, is_last = names[place], place == len(names) - 1
    drawn = draw_steps(rng, unseen, rng.pick(0, 1, 1, 2) if is_last else rng.pick(0, 0, 1), channel_after(base, name))
    later = [renamed(step, "last_act" if is_last else ("second_act", "third_act")[place]) for step in drawn]
    return tail_on(rng, base, name, is_last=is_last and "global_average_pool" not in names[:place]), later


def _twice(rng: Draw, tail: Tail) -> tuple[Tail, Tail]:
    """Return a pooling two times: one layer that is called twice, or two layers with equal settings."""
    if rng.chance(_ONE_LAYER):
        return tail, replace(tail, arguments=(), init=(), own_init=())
    attribute = tail.form.removesuffix("(x)")

    def numbered(number: int) -> Tail:
        init, host = (
            tuple(re.sub(rf"{attribute}\b", f"{attribute}{number}", line) for line in lines)
            for lines in (tail.init, tail.host)
        )
        return replace(tail, form=f"{attribute}{number}(x)", init=init, own_init=init, host=host)

    return numbered(1), replace(numbered(2), arguments=())


def has_one_name_twice(module: Module, stages: list[Stage]) -> bool:
    """Return True if two arguments, attributes or kernels have one name."""
    kernels = [re.split(r"[ (]", kernel)[1] for kernel in {tail.kernel for tail, _ in stages}]
    attributes = [match[1] for line in module.init if (match := re.match(r"self\.(\w+) =", line))]
    found = ([argument.name for argument in module.arguments], attributes, kernels)
    return any(len(set(names)) < len(names) for names in found)


FAMILY = Family("long_chains", chains.FAMILY.operators, draw, needed=chains.FAMILY.needed)
