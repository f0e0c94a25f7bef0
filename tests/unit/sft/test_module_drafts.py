"""Drafts of the corpus in KernelBench's style."""

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.sft.config import SftDataConfig
from tasks.sft.corpus_check import check_corpus
from tasks.sft.drafts import generate_drafts

UNSEEN = ("relu", "softmax", "sum")


def test_the_modules_corpus_has_the_wanted_pairs_and_repairs_without_unseen_operators():
    config = SftDataConfig(corpus="modules", pairs=200)
    drafts = generate_drafts(config, ProblemsConfig(unseen=UNSEEN), 0)
    assert len(drafts) == 200
    assert any(draft.earlier for draft in drafts)
    assert not {name for draft in drafts for name in draft.composition.split("+")} & set(UNSEEN)
    assert generate_drafts(config, ProblemsConfig(unseen=UNSEEN), 0) == drafts


def test_both_has_the_pairs_of_both():
    settings = {"compositions": 10, "pairs": 15}
    composed = generate_drafts(SftDataConfig(**settings), ProblemsConfig(), 0)
    modules = generate_drafts(SftDataConfig(corpus="modules", **settings), ProblemsConfig(), 0)
    assert generate_drafts(SftDataConfig(corpus="both", **settings), ProblemsConfig(), 0) == composed + modules


def test_kernels_in_another_language_than_the_judges_are_refused():
    with pytest.raises(InputError, match=r"sft\.data\.corpus: found modules, whose kernels are in Triton"):
        check_corpus(SftDataConfig(corpus="modules"), JudgeConfig(backend="cuda"))
