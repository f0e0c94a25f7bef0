"""The bundled suite: deterministic, rich enough, and split so that nothing held out can be trained on."""

import ast
import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source, normalise_source
from tasks.problems.config import ProblemsConfig
from tasks.problems.contamination import Overlap, contaminated, fingerprint_of
from tasks.problems.row import ProblemRow, Split, Tier
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.operators import ALL, Family
from tasks.problems.synthetic.sources import Shape, Style, draw_passes, kernel_source, problem_source
from tasks.problems.synthetic.suite import generate_problems
from tasks.problems.synthetic.well_posed import is_well_posed
from tasks.sft.config import SftDataConfig
from tasks.sft.drafts import generate_drafts

CONFIG = ProblemsConfig(train=300, heldout=60)


@pytest.fixture(scope="module")
def suite():
    return generate_problems(CONFIG)


def test_the_same_seed_gives_the_same_suite_and_another_seed_another(suite):
    assert generate_problems(CONFIG) == suite
    assert generate_problems(CONFIG.model_copy(update={"seed": 1})) != suite


def test_it_has_every_family_and_three_levels(suite):
    assert {row.problem.level for row in suite} == {1, 2, 3}
    assert {row.problem.family for row in suite} == set(Family)
    assert len([row for row in suite if row.split is Split.TRAIN]) == 300
    assert len([row for row in suite if row.split is Split.HELDOUT]) == 60


def test_no_held_out_problem_is_in_training_by_composition_or_normalised_source(suite):
    train = [row for row in suite if row.split is Split.TRAIN]
    heldout = [row for row in suite if row.split is Split.HELDOUT]
    assert not {row.composition for row in train} & {row.composition for row in heldout}
    sources = {normalise_source(row.problem.source) for row in train}
    assert not any(normalise_source(row.problem.source) in sources for row in heldout)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_held_out_composition_is_in_the_sft_corpus(suite, seed):
    heldout = {row.composition for row in suite if row.split is Split.HELDOUT}
    drafts = generate_drafts(SftDataConfig(compositions=400), CONFIG, seed)
    assert not heldout & {draft.composition for draft in drafts}


def test_held_out_problems_do_not_depend_on_how_many_training_problems_there_are(suite):
    fewer = generate_problems(CONFIG.model_copy(update={"train": 20}))
    assert [row for row in fewer if row.split is Split.HELDOUT] == [row for row in suite if row.split is Split.HELDOUT]


def contains(whole: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(whole[start : start + len(part)] == part for start in range(len(whole)))


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_no_held_out_sequence_is_a_part_of_one_that_is_trained_on(seed):
    config = ProblemsConfig(train=250, heldout=60, harder=12, seed=seed)
    rows = generate_problems(config)
    trained = {tuple(row.composition.split(">")) for row in rows if row.split is Split.TRAIN}
    drafts = generate_drafts(SftDataConfig(compositions=250), config, seed)
    trained |= {tuple(draft.composition.split(">")) for draft in drafts}
    heldout = {tuple(row.composition.split(">")) for row in rows if row.split is Split.HELDOUT}
    assert len(heldout) == 72
    assert [(whole, part) for whole in trained for part in heldout if contains(whole, part)] == []


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_no_held_out_problem_is_a_training_problem_with_other_constants(seed):
    """The fingerprint of a program (tasks.problems.contamination) leaves its numbers out."""
    rows = generate_problems(ProblemsConfig(train=400, heldout=96, harder=12, seed=seed))
    sources = {split: [row.problem.source for row in rows if row.split is split] for split in Split}
    assert set(contaminated(sources[Split.TRAIN], sources[Split.HELDOUT])) == {Overlap.NONE}


def test_operators_with_equal_fingerprints_have_one_canonical_name():
    shape = Shape(rows=8, columns=8, inner=8)
    names: dict[str, set[str]] = {}
    for operator in ALL:
        composition = parse_composition(operator.name)
        names.setdefault(fingerprint_of(problem_source(composition, shape)), set()).update(composition.canonical)
    assert [found for found in names.values() if len(found) > 1] == []


def test_each_harder_tier_has_what_training_lacks():
    rows = generate_problems(ProblemsConfig(train=400, heldout=20, harder=13))
    of = {tier: [row for row in rows if row.tier is tier and row.split is Split.HELDOUT] for tier in Tier}
    assert [len(of[tier]) for tier in Tier] == [20, 5, 4, 4]
    train = [row for row in rows if row.split is Split.TRAIN]
    lengths = {family: max(len(names(row)) for row in train if is_product(row) is family) for family in (True, False)}
    assert all(len(names(row)) > lengths[is_product(row)] for row in of[Tier.LONGER])
    pairs = {pair for row in train for pair in pairwise(parse_composition(row.composition).canonical)}
    assert all(set(pairwise(parse_composition(row.composition).canonical)) - pairs for row in of[Tier.NEW_PAIRS])
    assert not {shape(row) for row in of[Tier.NEW_SHAPES]} & {shape(row) for row in train}
    assert {row.tier for row in train} == {Tier.STANDARD}


def test_the_standard_held_out_problems_do_not_depend_on_the_harder_ones(suite):
    rows = generate_problems(CONFIG.model_copy(update={"harder": 6}))
    standard = [row for row in rows if row.split is Split.HELDOUT and row.tier is Tier.STANDARD]
    assert standard == [row for row in suite if row.split is Split.HELDOUT]


def test_single_operators_are_held_out_only_where_there_is_nothing_else():
    levels = {row.problem.level for row in generate_problems(CONFIG) if row.split is Split.HELDOUT}
    assert levels == {2, 3}
    single = generate_problems(ProblemsConfig(train=20, heldout=6, levels=(1,)))
    heldout = {row.composition for row in single if row.split is Split.HELDOUT}
    assert len(heldout) == 6
    assert not heldout & {row.composition for row in single if row.split is Split.TRAIN}


def names(row: ProblemRow) -> list[str]:
    return row.composition.split(">")


def is_product(row: ProblemRow) -> bool:
    return names(row)[0] in ("linear", "matmul")


def shape(row: ProblemRow) -> str:
    return row.problem.problem_id.rpartition("/")[2]


def test_problems_are_in_the_format_and_run(suite):
    for row in suite[::7]:
        check_problem_source(row.problem.source, row.problem.problem_id)
        small = problem_source(parse_composition(row.composition), Shape(rows=6, columns=40, inner=32))
        module: dict[str, object] = {}
        exec(small, module)
        model = module["Model"](*module["get_init_inputs"]())
        with torch.no_grad():
            assert torch.isfinite(model(*module["get_inputs"]())).all()


@given(
    operator=st.sampled_from(ALL),
    style=st.sampled_from(list(Style)),
    is_wrong=st.booleans(),
)
def test_every_kernel_is_python_that_defines_model_new(operator, style, is_wrong):
    composition = parse_composition(operator.name)
    source = kernel_source(composition, style, {operator.name} if is_wrong else ())
    assert "ModelNew" in {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    if is_wrong:
        assert source != kernel_source(composition, style)


STORES = "tl.store(out_ptr + offs, x, mask=mask)"


@given(
    key=st.sampled_from(["sine>gelu", "sine>gelu>silu>abs", "linear>sine>softmax>abs>silu"]), seed=st.integers(0, 999)
)
def test_a_partly_fused_kernel_writes_its_tile_where_it_is_drawn_and_never_nowhere(key, seed):
    composition = parse_composition(key)
    passes = draw_passes(composition, random.Random(seed))
    assert 1 <= len(passes) < len(composition.names)
    source = kernel_source(composition, Style.PARTLY_FUSED, passes=passes)
    assert source.count(STORES) == len(passes) + 1
    assert source.count("x = tl.load(out_ptr") == len(passes)
    every = range(len(composition.names) - 1)
    extra = kernel_source(composition, Style.EXTRA_PASSES)
    assert kernel_source(composition, Style.PARTLY_FUSED, passes=every) == extra
    assert (source == extra) == (passes == set(every))


def test_a_single_operator_has_nothing_to_fuse():
    assert not draw_passes(parse_composition("sine"), random.Random(0))


@pytest.mark.parametrize(
    "key", ["relu>abs", "square>relu", "softmax>abs>sine", "relu>negate>relu", "gaussian>hardtanh"]
)
def test_a_composition_with_an_operator_that_changes_nothing_is_no_problem(key):
    assert not is_well_posed(key)


@pytest.mark.parametrize("key", ["relu>sigmoid", "linear>gelu>softmax", "layer_norm>scale_columns>sum"])
def test_a_composition_in_which_every_operator_matters_is_one(key):
    assert is_well_posed(key)


def test_too_many_problems_are_refused_with_what_there_is():
    with pytest.raises(InputError, match="fewer than 500 distinct compositions at levels \\[1\\]"):
        generate_problems(ProblemsConfig(train=500, heldout=10, levels=(1,)))


def test_an_unknown_level_is_refused():
    with pytest.raises(InputError, match=r"problems\.levels.*found 7"):
        generate_problems(ProblemsConfig(levels=(1, 7)))


H100_BYTES_A_MICROSECOND = 3.35e6
"""Peak bandwidth, from the data sheet."""


def numbers_of(source: str) -> dict[str, int]:
    names, _, values = next(line for line in source.splitlines() if line.startswith("M, ")).partition(" = ")
    return dict(zip(names.split(", "), map(int, values.split(", ")), strict=True))


def test_gpu_sizes_are_kernels_of_ten_microseconds_to_one_millisecond():
    config = ProblemsConfig(train=150, heldout=30, harder=9, sizes="gpu")
    rows = generate_problems(config)
    sources = [row.problem.source for row in rows]
    sources += [draft.problem.source for draft in generate_drafts(SftDataConfig(compositions=60), config, 0)]
    for source in sources:
        size = numbers_of(source)
        elements = size["M"] * (size.get("K", size["N"]) + size["N"])
        elements += size["M"] * size["N"] * source.count("randn(M, N)") - size["M"] * size["N"] * ("K" not in size)
        # Reads and writes at 80 % of the bandwidth: a lower bound, a matrix product takes longer.
        microseconds = 4 * elements / (0.8 * H100_BYTES_A_MICROSECOND)
        assert 9 <= microseconds <= 1000, source
    assert {row.composition for row in rows} == {
        row.composition for row in generate_problems(config.model_copy(update={"sizes": "small"}))
    }
