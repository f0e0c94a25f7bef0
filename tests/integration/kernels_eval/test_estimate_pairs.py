"""The estimate orders a good kernel and the same with a defect as a GPU does: by a tenth at least."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Verdict

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from estimate_pairs import Pair, all_pairs, equal_pairs
from estimate_pairs_of_memory import memory_pairs
from estimate_pairs_of_work import work_pairs

pytestmark = pytest.mark.long

LEAST = 1.1
MOST_EQUAL = 1.1
FURTHER = [*memory_pairs(), *work_pairs()]
Judged = dict[str, tuple[Verdict, Verdict]]


def verdicts(pairs: Sequence[Pair]) -> Judged:
    """Return the verdicts on the good and the defective kernel of each pair, with machine code known."""
    config = JudgeConfig(workers=2, device="cpu", timeout_s=30, full_size_share=0.0)
    with Judge(config) as judge:
        items = [(pair.problem, kernel) for pair in pairs for kernel in (pair.good, pair.defect)]
        found = judge.evaluate_many(items)
    return {pair.name: both for pair, both in zip(pairs, zip(found[::2], found[1::2], strict=True), strict=True)}


@pytest.fixture(scope="module")
def judged() -> Judged:
    return verdicts([*all_pairs(), *equal_pairs()])


@pytest.fixture(scope="module")
def further() -> Judged:
    return verdicts(FURTHER)


def ratio(judged: Judged, pair: Pair) -> float:
    good, defect = judged[pair.name]
    assert good.correct, good
    assert defect.correct, defect
    assert good.candidate_ms is not None
    assert defect.candidate_ms is not None
    return defect.candidate_ms / good.candidate_ms


@pytest.mark.parametrize("pair", all_pairs(), ids=lambda pair: pair.name)
def test_a_defect_is_estimated_to_be_slower(judged: Judged, pair: Pair) -> None:
    assert ratio(judged, pair) >= LEAST


@pytest.mark.parametrize("pair", FURTHER, ids=lambda pair: pair.name)
def test_a_defect_of_structure_is_estimated_to_be_slower(further: Judged, pair: Pair) -> None:
    assert ratio(further, pair) >= LEAST


@pytest.mark.parametrize("pair", equal_pairs(), ids=lambda pair: pair.name)
def test_what_costs_a_gpu_nothing_is_not_charged(judged: Judged, pair: Pair) -> None:
    assert 1 / MOST_EQUAL <= ratio(judged, pair) <= MOST_EQUAL
