"""Drafts of the corpus in KernelBench's style."""

from typing import Any

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.problems.modules.rows import draw_training_rows
from tasks.sft.config import SftDataConfig
from tasks.sft.corpus_check import check_corpus, check_left_out
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


def test_rl_has_operators_that_the_corpus_leaves_out():
    config = SftDataConfig(corpus="modules", pairs=200, leave_out=("relu", "softmax"))
    problems = ProblemsConfig(source="modules", train=200, heldout=1, unseen=("sum",))
    drafts = generate_drafts(config, problems, 0)
    assert not {name for draft in drafts for name in draft.composition.split("+")} & set(UNSEEN)
    sources = " ".join(row.problem.source for row in draw_training_rows(problems))
    assert "relu" in sources
    assert "softmax" in sources


def test_optimizations_follow_the_pairs_and_change_none_of_them():
    plain = SftDataConfig(corpus="modules", pairs=20)
    more = plain.model_copy(update={"optimizations": 60, "stop_fraction": 0.3})
    drafts = generate_drafts(more, ProblemsConfig(unseen=UNSEEN), 0)
    assert drafts[:20] == generate_drafts(plain, ProblemsConfig(unseen=UNSEEN), 0)
    assert len(drafts) == 80
    stops = [draft for draft in drafts[20:] if draft.earlier == (draft.kernel,)]
    assert 6 <= len(stops) <= 30
    assert {draft.least_gain for draft in stops} == {0.0}
    assert {draft.least_gain for draft in drafts[20:] if draft not in stops} == {1.2}
    assert not {name for draft in drafts for name in draft.composition.split("+")} & set(UNSEEN)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"sft\.data\.optimizations: found 5 .* beside sft\.data\.corpus = compositions, expected 0"),
        ({"corpus": "modules", "path": "x.jsonl"}, r"beside sft\.data\.path = x\.jsonl, expected 0"),
    ],
)
def test_optimizations_of_another_corpus_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        check_corpus(SftDataConfig.model_validate({"optimizations": 5, **settings}), JudgeConfig())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"corpus": "compositions"},
            r"sft\.data\.leave_out: found operators .* beside sft\.data\.corpus = compositions",
        ),
        ({"corpus": "modules", "path": "x.jsonl"}, r"beside sft\.data\.path = x\.jsonl, expected none"),
        ({"corpus": "modules", "leave_out": ("rely",)}, r"sft\.data\.leave_out: no operator is called rely"),
    ],
)
def test_operators_to_leave_out_are_checked(settings: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        check_left_out(SftDataConfig.model_validate({"leave_out": ("relu",), **settings}), UNSEEN)


def test_a_corpus_with_a_seed_of_its_own_is_one_corpus_for_runs_of_several_seeds():
    assert [SftDataConfig(seed=5).seed_in(run) for run in (0, 1)] == [5, 5]
    assert [SftDataConfig().seed_in(run) for run in (0, 1)] == [0, 1]
    assert SftDataConfig(seed=0).seed_in(3) == 0
