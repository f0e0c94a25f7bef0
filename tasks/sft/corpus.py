"""Drafts of SFT conversations: problem, kernel to imitate, and for a repair the earlier kernel. Nothing is judged yet.

The generated corpus is like a scraped one: several styles for the same composition, all correct and of different
speed, and with `bug_probability` above 0 also plausible mistakes.
"""

import random
from collections.abc import Collection
from pathlib import Path

from kernels_eval.problem import Problem
from kernels_eval.settings import FrozenModel
from tasks.problems.config import ProblemsConfig
from tasks.problems.generated.composition import Composition
from tasks.problems.generated.kernels import Style, kernel_source
from tasks.problems.generated.suite import draw_shape, draw_training_compositions, problem_of
from tasks.problems.pairs import load_pairs
from tasks.sft.config import SftDataConfig

REPAIR_MISTAKES = 0.5
"""Share of operators with a mistake in the earlier kernel of a repair (at least one)."""
SLOW_STYLES = (Style.SMALL_BLOCKS, Style.EXTRA_PASSES, Style.STEPWISE)


class Draft(FrozenModel):
    """One conversation to be: `earlier` is what a repair starts from."""

    problem: Problem
    kernel: str
    earlier: str | None = None
    composition: str = ""
    style: str = ""


def generate_drafts(config: SftDataConfig, problems: ProblemsConfig, seed: int) -> list[Draft]:
    """Return the drafts of the generated corpus; none of their compositions is held out."""
    generator = random.Random(f"corpus-{seed}")
    drafts: list[Draft] = []
    for composition in draw_training_compositions(problems, config.compositions, seed=problems.seed):
        styles = generator.sample(list(Style), min(config.styles_per_composition, len(Style)))
        drafts += [_direct(composition, style, config, generator) for style in styles]
    if config.repair_fraction > 0:
        repairs = round(len(drafts) * config.repair_fraction / max(1.0 - config.repair_fraction, 0.01))
        compositions = [draft.composition for draft in drafts]
        drafts += [_repair(compositions[index % len(compositions)], config, generator) for index in range(repairs)]
    return drafts


def load_drafts(path: Path) -> list[Draft]:
    """Return the drafts of a file or folder of pairs (KernelBook's columns or ours)."""
    return [
        Draft(
            problem=Problem(problem_id=pair.pair_id, source=pair.problem_source),
            kernel=pair.kernel_source,
            style="external",
        )
        for pair in load_pairs(path)
    ]


def _direct(composition: Composition, style: Style, config: SftDataConfig, generator: random.Random) -> Draft:
    wrong = _mistakes(composition, config.bug_probability, generator)
    return _draft(composition, style, wrong, None, generator)


def _repair(key: str, config: SftDataConfig, generator: random.Random) -> Draft:
    """A wrong kernel and then a right one in any style, or a slow kernel and then the fused one."""
    composition = Composition(names=tuple(key.split(">")))
    answer_mistakes = _mistakes(composition, config.bug_probability, generator)
    if generator.random() < 0.5:
        mistakes = _mistakes(composition, REPAIR_MISTAKES, generator) or {generator.choice(composition.names)}
        style = generator.choice(list(Style))
        earlier = kernel_source(composition, style, mistakes)
        return _draft(composition, style, answer_mistakes, earlier, generator)
    earlier = kernel_source(composition, generator.choice(SLOW_STYLES))
    return _draft(composition, Style.FUSED, answer_mistakes, earlier, generator)


def _mistakes(composition: Composition, probability: float, generator: random.Random) -> set[str]:
    return {name for name in composition.names if generator.random() < probability}


def _draft(
    composition: Composition, style: Style, mistakes: Collection[str], earlier: str | None, generator: random.Random
) -> Draft:
    return Draft(
        problem=problem_of(composition, draw_shape(composition, generator)),
        kernel=kernel_source(composition, style, mistakes),
        earlier=earlier,
        composition=composition.key,
        style=style,
    )
