"""Kernels of the drawn pairs, judged on the CPU."""

import pytest

from kernels_eval import Judge, JudgeConfig, Status
from tasks.problems.modules.corpus import FAMILIES, draw_optimizations, problem_of
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import long_chains
from tasks.problems.modules.mistakes import with_mistake

JUMPS = {"hardshrink", "threshold"}
CONFIG = JudgeConfig(compile="never", workers=2, full_size_share=0.0, timeout_s=60)


@pytest.fixture(scope="module")
def judge():
    with Judge(CONFIG) as judge:
        yield judge


@pytest.fixture(scope="module")
def whole_judge():
    with Judge(CONFIG.model_copy(update={"full_size_share": 1.0})) as judge:
        yield judge


def drawn(family, count, seed):
    rng = Draw(seed)
    return [family.draw(rng, frozenset()) for _ in range(count)]


def wrong(judge, pairs):
    """The pairs whose kernel, or slow earlier kernel, is not correct, with what the judge says."""
    items = [(problem_of(pair), pair.kernel_source) for pair in pairs]
    items += [(problem_of(pair), pair.earlier_source) for pair in pairs if pair.earlier_source is not None]
    return [
        (problem.name, verdict.status, verdict.error_message)
        for (problem, _), verdict in zip(items, judge.evaluate_many(items), strict=True)
        if verdict.status is not Status.CORRECT
    ]


@pytest.mark.parametrize("family", [family for family, _ in FAMILIES], ids=lambda family: family.name)
def test_a_few_of_each_family_are_correct(judge, family):
    assert not wrong(judge, drawn(family, 2, "few"))


def test_a_few_long_chains_are_correct(judge):
    assert not wrong(judge, drawn(long_chains.FAMILY, 6, "few"))


@pytest.mark.long
def test_slow_kernels_are_correct_and_most_take_longer(judge):
    pairs = list(draw_optimizations(16, seed=5))
    items = [(problem_of(pair), kernel) for pair in pairs for kernel in (pair.earlier_source, pair.kernel_source)]
    verdicts = judge.evaluate_many(items)
    assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
    ratios = [slow.candidate_ms / fast.candidate_ms for slow, fast in zip(verdicts[::2], verdicts[1::2], strict=True)]
    assert sum(ratio >= 1.2 for ratio in ratios) > len(ratios) / 2


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family, _ in FAMILIES], ids=lambda family: family.name)
def test_every_operator_and_style_of_a_family_is_correct_at_the_full_size(judge, whole_judge, family):
    chosen = {}
    for pair in drawn(family, 1500, "all"):
        chosen.setdefault((pair.operators[0], pair.style, pair.earlier_source is None), pair)
    assert {name for name, *_ in chosen} >= {name for name in family.operators if name in _first_operators(family)}
    # Of millions of values one may fall on the other side of a jump by rounding.
    jump = [pair for pair in chosen.values() if JUMPS.intersection(pair.operators)]
    assert not wrong(whole_judge, [pair for pair in chosen.values() if pair not in jump])
    assert not wrong(judge, jump)


def _first_operators(family):
    return {pair.operators[0] for pair in drawn(family, 1500, "names")}


@pytest.mark.long
def test_most_mistakes_are_wrong(judge):
    rng = Draw("mistakes")
    pairs = [pair for family, _ in FAMILIES for pair in drawn(family, 6, "mistakes")]
    items = [(problem_of(pair), with_mistake(rng, pair.kernel_source)) for pair in pairs]
    judged_items = [item for item in items if item[1]]
    correct = sum(verdict.status is Status.CORRECT for verdict in judge.evaluate_many(judged_items))
    assert correct < 0.5 * len(judged_items)  # a mask left out does no harm where the sizes are even
