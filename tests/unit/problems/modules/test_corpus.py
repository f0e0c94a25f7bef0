"""Drawn pairs in KernelBench's style: deterministic, distinct, short, and without unseen operators."""

import ast
from collections import Counter
from typing import Any

import pytest
import torch

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from tasks.problems.modules.chain_tails import MAP_TAILS, ROW_TAILS
from tasks.problems.modules.corpus import FAMILIES, OPERATORS, draw_pairs, draw_problems, problem_of
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import chains, long_chains

UNSEEN = frozenset({"softsign", "argmin", "cumprod", "masked_cumsum", "hinge_loss", "l1_norm"})
MOST_CHARACTERS = 2600
"""Of a kernel: at three characters a token, about 850 tokens."""


@pytest.fixture(scope="module")
def pairs():
    return list(draw_pairs(800, seed=0))


def test_the_same_seed_gives_the_same_pairs_and_another_seed_others(pairs):
    assert list(draw_pairs(800, seed=0)) == pairs
    assert list(draw_pairs(50, seed=1)) != pairs[:50]


def test_fewer_pairs_are_the_beginning_of_more(pairs):
    assert list(draw_pairs(100, seed=0)) == pairs[:100]


def test_every_family_is_drawn_and_names_its_operators(pairs):
    assert {pair.family for pair in pairs} == {family.name for family, _ in FAMILIES}
    of_family = {family.name: set(family.operators) for family, _ in FAMILIES}
    for pair in pairs:
        assert set(pair.operators) <= of_family[pair.family]


@pytest.mark.parametrize(
    "family", [*(family for family, _ in FAMILIES), long_chains.FAMILY], ids=lambda family: family.name
)
def test_no_pair_has_an_unseen_operator(family):
    unseen = frozenset(family.operators[1::2])
    rng = Draw("unseen")
    drawn = {name for _ in range(300) for name in family.draw(rng, unseen).operators}
    assert drawn
    assert not drawn & unseen


def test_long_chains_have_the_share_that_is_asked_for():
    drawn = list(draw_pairs(400, 0, UNSEEN, long_chains=0.25))
    found = [pair for pair in drawn if pair.family == "long_chains"]
    assert 0.18 < len(found) / len(drawn) < 0.32
    assert not {name for pair in found for name in pair.operators} & UNSEEN
    assert {problem_of(pair).level for pair in found} == {2}


def test_long_chains_reduce_up_to_three_times_and_stay_below_their_limit():
    reducing = {*ROW_TAILS, *MAP_TAILS}
    rng = Draw("long")
    pairs = [long_chains.draw(rng, frozenset()) for _ in range(300)]
    counts = Counter(len(reducing.intersection(pair.operators)) for pair in pairs)
    assert set(counts) == {1, 2, 3}
    assert min(counts[1], counts[2]) > 60  # of those that are drawn with two, more are too long
    assert max(len(pair.kernel_source) for pair in pairs) <= long_chains.LONGEST
    for pair in pairs:
        ast.parse(pair.kernel_source)
        check_problem_source(pair.problem_source, pair.title)


def test_a_convolution_is_followed_by_every_normalisation_and_pooling():
    rng = Draw("pairs")
    drawn = {pair.operators for pair in (long_chains.draw(rng, frozenset()) for _ in range(600))}
    second = {name for first, *others in drawn if first.startswith("conv") for name in others}
    assert second >= {"group_norm", "instance_norm", "batch_norm", "max_pool", "average_pool", "global_average_pool"}


@pytest.mark.parametrize(
    ("unseen", "begin_with"),
    [(ROW_TAILS, {"conv2d", "conv3d"}), (MAP_TAILS, {"linear"}), ((*ROW_TAILS, *MAP_TAILS), set[str]())],
)
def test_long_chains_begin_with_what_something_may_follow(unseen: tuple[str, ...], begin_with: set[str]):
    others = {"conv_transpose2d", "conv_transpose3d"}
    drawn = list(draw_pairs(150, 0, frozenset(unseen) | others, long_chains=0.4))
    assert {pair.operators[0] for pair in drawn if pair.family == "long_chains"} == begin_with


@pytest.mark.parametrize("left", ["elu", "relu", "softmin"])
def test_a_single_operator_may_be_left(left):
    drawn = list(draw_pairs(20, 0, frozenset(OPERATORS) - {left}))
    assert {pair.operator for pair in drawn} == {left}


def test_no_pair_of_the_corpus_has_an_unseen_operator():
    drawn = Counter(name for pair in draw_pairs(800, 0, UNSEEN) for name in pair.operators)
    assert not set(drawn) & UNSEEN


def test_problems_and_kernels_are_modules_of_the_expected_form(pairs):
    for pair in pairs:
        check_problem_source(pair.problem_source, pair.title)
        classes = {node.name for node in ast.parse(pair.kernel_source).body if isinstance(node, ast.ClassDef)}
        assert "ModelNew" in classes
        assert "class ModelNew(nn.Module)" in (pair.earlier_source or pair.kernel_source)  # it may not parse


def test_they_are_short(pairs):
    assert max(len(pair.kernel_source) for pair in pairs) <= chains.LONGEST
    assert max(len(pair.problem_source) for pair in pairs) < MOST_CHARACTERS


def test_about_three_in_ten_answer_another_kernel(pairs):
    repairs = [pair for pair in pairs if pair.earlier_source is not None]
    assert 0.2 < len(repairs) / len(pairs) < 0.4
    assert all(pair.earlier_source != pair.kernel_source for pair in repairs)


def test_tensors_have_at_most_64_mib(pairs):
    for pair in pairs:
        names: dict[str, Any] = {}
        with torch.device("meta"):
            exec(pair.problem_source, names)
            tensors = [given for given in names["get_inputs"]() if isinstance(given, torch.Tensor)]
        assert tensors
        assert all(0 < tensor.numel() * 4 <= 64 * 2**20 for tensor in tensors), pair.problem_source


def _constructor(source: str) -> ast.arguments | None:
    made = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return next((node.args for node in made if node.name == "__init__"), None)


def _defaults(source: str) -> dict[str, str]:
    arguments = _constructor(source)
    if arguments is None or not arguments.defaults:
        return {}
    names = [argument.arg for argument in arguments.args[-len(arguments.defaults) :]]
    return dict(zip(names, map(ast.unparse, arguments.defaults), strict=True))


def test_kernels_have_the_defaults_of_their_problems(pairs):
    with_defaults = [pair for pair in pairs if _defaults(pair.problem_source)]
    for pair in with_defaults:
        assert _defaults(pair.kernel_source) == _defaults(pair.problem_source)
    assert {"chains", "reductions", "scans", "softmax", "scaling", "elementwise"} <= {
        pair.family for pair in with_defaults
    }


def test_arguments_with_defaults_are_often_not_passed_and_leave_no_constant_behind(pairs):
    left_out = Counter[bool]()
    for pair in filter(lambda pair: _defaults(pair.problem_source), pairs):
        names: dict[str, Any] = {}
        exec(pair.problem_source, names)
        given, constructor = names["get_init_inputs"](), _constructor(pair.problem_source)
        names["Model"](*given)
        assert constructor is not None
        left_out[len(given) < len(constructor.args) - 1] += 1
        outside = [part for part in ast.parse(pair.problem_source).body if not isinstance(part, ast.ClassDef)]
        used = Counter(node.id for part in outside for node in ast.walk(part) if isinstance(node, ast.Name))
        constants = {node.targets[0].id for node in outside if isinstance(node, ast.Assign)}
        assert all(used[name] > 1 for name in constants), pair.problem_source
    assert left_out[True] > left_out[False] > 0


def test_problems_are_distinct_and_of_the_wanted_levels():
    problems = draw_problems(300, seed=3)
    assert len({problem.digest for problem in problems}) == len({problem.problem_id for problem in problems}) == 300
    assert {problem.level for problem in problems} == {1, 2}
    assert {problem.level for problem in draw_problems(20, 3, levels=(2,))} == {2}


def test_a_problem_keeps_the_name_of_its_family(pairs):
    problem = problem_of(pairs[0], "one")
    assert (problem.problem_id, problem.family, problem.source) == ("one", pairs[0].family, pairs[0].problem_source)


@pytest.mark.parametrize(
    ("unseen", "message"),
    [({"sofsign"}, "no operator is called sofsign; expected some of abs"), (set(OPERATORS), "no operator is left")],
)
def test_names_that_are_no_operators_are_refused(unseen, message):
    with pytest.raises(InputError, match=message):
        draw_problems(1, 0, frozenset(unseen))


def test_levels_that_no_problem_has_are_refused():
    with pytest.raises(InputError, match=r"problems\.levels: found \[3\], expected one of \[1, 2\]"):
        draw_problems(1, 0, levels=(3,))
