"""Drafts of SFT conversations: a problem, the kernel to imitate, and for a repair the earlier kernels.

The generated corpus has several styles of different speed for each composition, and with `bug_probability` above 0 also
plausible mistakes. Its kernels are in the language that rollouts are judged in (`judge.backend`).
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels_eval import Problem
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.problems.config import ProblemsConfig
from tasks.problems.modules.corpus import draw_optimizations, draw_pairs
from tasks.problems.modules.corpus import problem_of as module_problem_of
from tasks.problems.modules.pair import ModulePair
from tasks.problems.pairs import load_pairs
from tasks.problems.synthetic.composition import Composition, parse_composition
from tasks.problems.synthetic.languages import Language, Wanted, language_of
from tasks.problems.synthetic.operators import BY_NAME
from tasks.problems.synthetic.sizes import SizesName
from tasks.problems.synthetic.suite import draw_shape, draw_training_compositions, problem_of
from tasks.sft.config import SftDataConfig

_CORPUS_SEED = 1_000_003
REPAIR_MISTAKES = 0.5
"""Share of operators with a mistake in the earlier kernel of a repair (at least one), without `sft.data.mended`."""
SECOND_REPAIRS = 0.4
"""Share of repairs with two earlier kernels."""
LEAST_GAIN = 1.2
"""Time of a slow kernel over the time of the answer, from which on an optimization is trained on."""


class Draft(FrozenModel):
    """One conversation to be: `earlier` are the kernels that a repair starts from, oldest first."""

    problem: Problem
    kernel: str
    earlier: tuple[str, ...] = ()
    reasoning: str = ""
    """Before the kernel, without tags."""
    composition: str = ""
    style: str = ""
    least_gain: float = 0.0
    """Of an optimization: the earlier kernel has to be right and take so many times as long. 0: it may be anything."""


@dataclass(frozen=True)
class _Corpus:
    """Settings that all drafts of a corpus share."""

    config: SftDataConfig
    sizes: SizesName
    language: Language
    misconceived: frozenset[str]
    """Operators that are misconceived."""

    def draw_mistakes(self, composition: Composition, generator: random.Random) -> set[str]:
        """Draw the operators that a first kernel has wrong."""
        usual, of_misconceived = self.config.bug_probability, self.config.misconception_probability
        return {
            name
            for name in composition.names
            if generator.random() < (of_misconceived if name in self.misconceived else usual)
        }


def generate_drafts(config: SftDataConfig, problems: ProblemsConfig, seed: int, backend: str = "triton") -> list[Draft]:
    """Return the drafts of the generated corpora that `config.corpus` names, in the language of `backend`."""
    drafts: list[Draft] = []
    if config.corpus != "modules":
        drafts += _composed_drafts(config, problems, seed, backend)
    if config.corpus != "compositions":
        unseen = frozenset(problems.unseen) | frozenset(config.leave_out)
        long_chains = problems.long_chains if config.long_chains is None else config.long_chains
        drafts += [_module_draft(pair) for pair in draw_pairs(config.pairs, seed, unseen, long_chains)]
        drafts += _optimizations(config, seed, unseen)
    return drafts


def _module_draft(pair: ModulePair) -> Draft:
    earlier = () if pair.earlier_source is None else (pair.earlier_source,)
    style = f"{pair.family}:{pair.style}"
    return Draft(
        problem=module_problem_of(pair),
        kernel=pair.kernel_source,
        earlier=earlier,
        composition=pair.operator,
        style=style,
    )


def _optimizations(config: SftDataConfig, seed: int, unseen: frozenset[str]) -> list[Draft]:
    """Return the optimizations; in `stop_fraction` of them the answer is the earlier kernel itself."""
    generator = random.Random(f"stops-{seed}")
    drafts: list[Draft] = []
    for pair in draw_optimizations(config.optimizations, seed, unseen):
        draft = _module_draft(pair)
        if config.stop_fraction and generator.random() < config.stop_fraction:
            drafts.append(draft.model_copy(update={"earlier": (draft.kernel,)}))
        else:
            drafts.append(draft.model_copy(update={"least_gain": LEAST_GAIN}))
    return drafts


def _composed_drafts(config: SftDataConfig, problems: ProblemsConfig, seed: int, backend: str) -> list[Draft]:
    """Return the drafts of compositions of the bundled suite's operators; none of the compositions is held out.

    Compositions that no style of `config.styles` suits are left out.
    """
    language = language_of(backend, config.styles)
    corpus = _Corpus(config, problems.sizes, language, misconceived_operators(config.misconceived, seed))
    generator = random.Random(f"corpus-{seed}")
    drafts: list[Draft] = []
    # Other compositions than the training problems': RL learns most on problems whose answer SFT has not shown.
    apart = problems.seed + _CORPUS_SEED
    for composition in draw_training_compositions(problems, config.compositions, apart, config.levels):
        styles = corpus.language.styles(composition)
        for style in generator.sample(styles, min(config.styles_per_composition, len(styles))):
            mistakes = corpus.draw_mistakes(composition, generator)
            drafts.append(_draft(corpus, composition, [(style, mistakes)], generator))
    if not drafts:
        styles = ", ".join(config.styles)
        found = f"found {styles}, expected one that suits a composition (sft.data.compositions = {config.compositions})"
        raise InputError(f"sft.data.styles: {found}")
    if config.repair_fraction > 0:
        repairs = round(len(drafts) * config.repair_fraction / max(1.0 - config.repair_fraction, 0.01))
        compositions = [draft.composition for draft in drafts]
        drafts += [_repair(corpus, compositions[index % len(compositions)], generator) for index in range(repairs)]
    return drafts


def misconceived_operators(share: float, seed: int) -> frozenset[str]:
    """Return the operators that the authors of a generated corpus misunderstand: this share of them, by its seed."""
    names = sorted(BY_NAME)
    return frozenset(random.Random(f"misconceived-{seed}").sample(names, round(share * len(names))))


def load_drafts(
    path: Path, columns: Mapping[str, str] | None = None, bad_rows: float = 0.5, reader: str | None = None
) -> list[Draft]:
    """Return the drafts of a file or folder of pairs; an earlier kernel makes one a repair.

    Settings: as for `load_pairs`.
    """
    drafts: list[Draft] = []
    for pair in load_pairs(path, columns, bad_rows, reader):
        problem = Problem(problem_id=pair.pair_id, source=pair.problem_source)
        earlier = () if pair.earlier_source is None else (*pair.before, pair.earlier_source)
        kernel, reasoning = pair.kernel_source, pair.reasoning
        drafts.append(Draft(problem=problem, kernel=kernel, earlier=earlier, reasoning=reasoning, style="external"))
    return drafts


def _repair(corpus: _Corpus, key: str, generator: random.Random) -> Draft:
    """Draft one or two wrong or slow kernels, then a correct one: the fastest, or in any style after a wrong kernel.

    Or, for `stop_fraction` of them, the fastest one, which is its own answer.
    """
    config, language = corpus.config, corpus.language
    composition = parse_composition(key)
    if config.stop_fraction and generator.random() < config.stop_fraction:
        draft = _draft(corpus, composition, [(language.fastest_style(composition), ())], generator)
        return draft.model_copy(update={"earlier": (draft.kernel,)})
    answer_mistakes = corpus.draw_mistakes(composition, generator)
    drawn: list[tuple[str, Collection[str]]] = []
    slow = language.slow_styles(composition)
    was_wrong = False
    for _ in range(2 if generator.random() < SECOND_REPAIRS else 1):
        was_wrong = generator.random() < 0.5 or not slow
        if was_wrong:
            mistakes = _earlier_mistakes(corpus, composition, generator) or {generator.choice(composition.names)}
            drawn.append((generator.choice(language.styles(composition)), mistakes))
        else:
            drawn.append((generator.choice(slow), ()))
    style = generator.choice(language.styles(composition)) if was_wrong else language.fastest_style(composition)
    if config.mended is not None:
        answer_mistakes = {name for name in sorted(drawn[-1][1]) if generator.random() >= config.mended}
    return _draft(corpus, composition, [*drawn, (style, answer_mistakes)], generator)


def _earlier_mistakes(corpus: _Corpus, composition: Composition, generator: random.Random) -> set[str]:
    """Draw the operators that the earlier kernel of a repair has wrong."""
    if corpus.config.mended is not None:
        return corpus.draw_mistakes(composition, generator)
    return {name for name in composition.names if generator.random() < REPAIR_MISTAKES}


def _draft(
    corpus: _Corpus,
    composition: Composition,
    drawn: Sequence[tuple[str, Collection[str]]],
    generator: random.Random,
) -> Draft:
    """Return a conversation about one problem; the last of the kernels (style, mistakes) is the answer."""
    shape = draw_shape(composition, generator, sizes=corpus.sizes)
    kernels = [
        corpus.language.write(Wanted(composition, style, mistakes, shape.columns, corpus.config.tuning, generator))
        for style, mistakes in drawn
    ]
    return Draft(
        problem=problem_of(composition, shape),
        kernel=kernels[-1],
        earlier=tuple(kernels[:-1]),
        composition=composition.key,
        style=drawn[-1][0],
    )
