"""Mistakes of a generated corpus: of which operators they are, and what repairs leave of them."""

from itertools import chain, combinations

from tasks.problems.config import ProblemsConfig
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.operators import BY_NAME
from tasks.problems.synthetic.sources import Style, kernel_source
from tasks.sft.config import SftDataConfig
from tasks.sft.drafts import Draft, generate_drafts, misconceived_operators

SEED = 3


def test_misconceived_operators_are_wrong_in_most_uses_and_others_rarely() -> None:
    drafts = _drafts(misconceived=0.3, bug_probability=0.1, repair_fraction=0.0)
    misconceived = misconceived_operators(0.3, SEED)
    assert len(misconceived) == round(0.3 * len(BY_NAME))
    uses, wrong = {True: 0, False: 0}, {True: 0, False: 0}
    for draft in drafts:
        mistakes = _mistakes(draft, draft.kernel)
        for name in parse_composition(draft.composition).names:
            uses[name in misconceived] += 1
            wrong[name in misconceived] += name in mistakes
    assert 0.55 < wrong[True] / uses[True] < 0.75
    assert 0.05 < wrong[False] / uses[False] < 0.15


def test_corpora_of_other_seeds_misconceive_other_operators() -> None:
    assert misconceived_operators(0.3, 0) == misconceived_operators(0.3, 0) != misconceived_operators(0.3, 1)
    assert misconceived_operators(0.0, 0) == frozenset()


def test_repairs_mend_a_share_of_the_mistakes_and_make_no_others() -> None:
    repairs = _repairs(mended=0.5)
    left, were = 0, 0
    for draft in repairs:
        before, after = _mistakes(draft, draft.earlier[-1]), _mistakes(draft, draft.kernel)
        assert after <= before
        left, were = left + len(after), were + len(before)
    assert 0.35 < left / were < 0.65


def test_repairs_that_mend_everything_end_in_right_kernels() -> None:
    assert not any(_mistakes(draft, draft.kernel) for draft in _repairs(mended=1.0))
    assert any(_mistakes(draft, draft.kernel) for draft in _repairs(mended=None))


def _repairs(mended: float | None) -> list[Draft]:
    drafts = _drafts(misconceived=0.3, bug_probability=0.1, repair_fraction=0.5, mended=mended)
    return [draft for draft in drafts if draft.earlier]


def _drafts(**settings: float | None) -> list[Draft]:
    config = SftDataConfig(compositions=60, verified=False, levels=(2,), **settings)  # pyright: ignore[reportArgumentType]
    return generate_drafts(config, ProblemsConfig(train=8, heldout=4), SEED)


def _mistakes(draft: Draft, kernel: str) -> set[str]:
    """Return the fewest mistakes with which some style of the composition gives this kernel."""
    composition = parse_composition(draft.composition)
    names = composition.names
    subsets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    return next(
        set(wrong) for wrong in subsets if any(kernel_source(composition, style, wrong) == kernel for style in Style)
    )
