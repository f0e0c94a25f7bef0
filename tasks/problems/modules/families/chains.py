"""Chains of level 2: a linear layer or a convolution, element-wise steps, and a reduction, normalisation or pooling.

The two styles are those of `chain_texts`. Slower than the plain one: the composed one.
"""

from tasks.problems.modules.chain_tails import MAP_TAILS, ROW_TAILS
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families.chain_bases import WEIGHTS, channel_after, draw_base, renamed
from tasks.problems.modules.families.chain_steps import OPERATORS, draw_steps, with_input
from tasks.problems.modules.families.chain_texts import (
    Stage,
    composed_text,
    module_of,
    operator_of,
    plain_text,
    tail_on,
)
from tasks.problems.modules.families.elementwise import UNARY
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import problem_text

COMPOSED = 0.6
"""Share of the chains whose kernel is composed."""
LONGEST = 4400
"""Characters of a kernel at most: about 1,850 tokens."""


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a chain of two to five operators."""
    while True:
        pair = _draw(rng, unseen)
        if pair is not None and len(pair.kernel_source) <= LONGEST:
            return pair


def _draw(rng: Draw, unseen: frozenset[str]) -> ModulePair | None:
    """Return a pair; None if two of its steps have one name."""
    base = draw_base(rng, unseen)
    tails = rng.unless(ROW_TAILS if base.layer is None else MAP_TAILS, unseen, str)
    has_tail = bool(tails) and rng.chance(0.5)
    count = rng.pick(0, 1, 1, 2) if has_tail else rng.pick(1, 1, 2, 2, 3, 4)
    steps = with_input(rng, unseen, draw_steps(rng, unseen, count, base.channel), base.output_shape)
    stages = list[Stage]()
    if has_tail:
        name = rng.choice(tails)
        later = draw_steps(rng, unseen, rng.pick(0, 0, 1, 1, 2), channel_after(base, name))
        stages.append((tail_on(rng, base, name, is_last=True), [renamed(step) for step in later]))
    names = [argument.name for step in (*steps, *(stages[0][1] if stages else ())) for argument in step.arguments]
    if len(set(names)) < len(names):
        return None
    module = module_of(base, steps, stages)
    plain, composed = (write(base, steps, stages, module) for write in (plain_text, composed_text))
    has_input = len(module.inputs) > 1
    is_composed = rng.chance(COMPOSED) or has_input
    return ModulePair(
        family=FAMILY.name,
        operator=operator_of(base, steps, stages),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=composed if is_composed else plain,
        style="composed" if is_composed else "plain",
        slower=(composed,) if steps and not is_composed and len(composed) <= LONGEST else (),
    )


FAMILY = Family(
    "chains",
    (*WEIGHTS, *OPERATORS, *(unary.name for unary in UNARY), *dict.fromkeys((*ROW_TAILS, *MAP_TAILS))),
    draw,
    needed=tuple(WEIGHTS),
)
