"""Drafts of SFT conversations: problem, kernel to imitate, and for a repair the earlier kernel. Nothing is judged yet.

The generated corpus is like a scraped one: several styles for the same composition, all correct and of different
speed, and with `bug_probability` above 0 also plausible mistakes.
"""

import random
from collections.abc import Collection
from pathlib import Path

from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.generated.composition import Composition
from tasks.problems.generated.kernels import Style, kernel_source
from tasks.problems.generated.suite import draw_shape, draw_training_compositions, problem_of
from tasks.problems.pairs import load_pairs
from tasks.sft.config import SftDataConfig

_CORPUS_SEED = 1_000_003
REPAIR_MISTAKES = 0.5
"""Share of operators with a mistake in the earlier kernel of a repair (at least one)."""
SECOND_REPAIRS = 0.4
"""Share of repairs with two earlier kernels."""
SLOW_STYLES = (Style.SMALL_BLOCKS, Style.EXTRA_PASSES, Style.STEPWISE)


class Draft(FrozenModel):
    """One conversation to be: `earlier` are the kernels that a repair starts from, oldest first."""

    problem: Problem
    kernel: str
    earlier: tuple[str, ...] = ()
    composition: str = ""
    style: str = ""


def generate_drafts(config: SftDataConfig, problems: ProblemsConfig, seed: int) -> list[Draft]:
    """Return the drafts of the generated corpus; none of their compositions is held out."""
    generator = random.Random(f"corpus-{seed}")
    drafts: list[Draft] = []
    # Other compositions than the training problems': RL learns most where the policy has not been shown the answer.
    for composition in draw_training_compositions(problems, config.compositions, seed=problems.seed + _CORPUS_SEED):
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
    return _draft(composition, style, wrong, (), generator)


def _repair(key: str, config: SftDataConfig, generator: random.Random) -> Draft:
    """One or two kernels that are wrong or slow, and then a right one: in any style after a wrong one, else the fused one."""
    composition = Composition(names=tuple(key.split(">")))
    answer_mistakes = _mistakes(composition, config.bug_probability, generator)
    earlier: list[str] = []
    was_wrong = False
    for _ in range(2 if generator.random() < SECOND_REPAIRS else 1):
        was_wrong = generator.random() < 0.5
        if was_wrong:
            mistakes = _mistakes(composition, REPAIR_MISTAKES, generator) or {generator.choice(composition.names)}
            earlier.append(kernel_source(composition, generator.choice(list(Style)), mistakes))
        else:
            earlier.append(kernel_source(composition, generator.choice(SLOW_STYLES)))
    style = generator.choice(list(Style)) if was_wrong else Style.FUSED
    return _draft(composition, style, answer_mistakes, tuple(earlier), generator)


def _mistakes(composition: Composition, probability: float, generator: random.Random) -> set[str]:
    return {name for name in composition.names if generator.random() < probability}


def _draft(
    composition: Composition,
    style: Style,
    mistakes: Collection[str],
    earlier: tuple[str, ...],
    generator: random.Random,
) -> Draft:
    return Draft(
        problem=problem_of(composition, draw_shape(composition, generator)),
        kernel=kernel_source(composition, style, mistakes),
        earlier=earlier,
        composition=composition.key,
        style=style,
    )
