"""Slower kernels of the module corpus: what is drawn, and what a form changes, without a judge."""

import ast
import re
from collections import Counter
from itertools import islice

import pytest

from kernels_eval.errors import InputError
from tasks.problems.modules.corpus import FAMILIES, OPERATORS, draw_optimizations, draw_pairs
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import chains
from tasks.problems.modules.slow_forms import FORMS, slow_kernel, with_step_apart, with_warps


def without_sizes(kernel: str) -> str:
    return re.sub(r"\d+|tf32x3|ieee", "#", re.sub(r", num_warps=\d+", "", kernel))


KERNELS = [pair.kernel_source for pair in draw_pairs(400, seed=4)]
PAIRS = list(draw_optimizations(400, seed=0))


def test_every_family_has_slower_kernels():
    assert {pair.family for pair in PAIRS} == {family.name for family, _ in FAMILIES}


def test_the_same_seed_gives_the_same_distinct_pairs():
    assert list(draw_optimizations(60, seed=0)) == PAIRS[:60]
    assert list(draw_optimizations(60, seed=1)) != PAIRS[:60]
    assert len({(pair.problem_source, pair.earlier_source) for pair in PAIRS}) == len(PAIRS)


def test_earlier_kernels_are_other_modules_with_the_same_constructor():
    for pair in PAIRS:
        assert pair.earlier_source is not None
        assert pair.earlier_source != pair.kernel_source
        ast.parse(pair.earlier_source)
        constructors = [text.partition("def __init__")[2].partition(":")[0] for text in (pair.earlier_source, pair.kernel_source)]  # fmt: skip
        assert constructors[0] == constructors[1]


def test_they_are_short_enough_to_be_read():
    assert max(len(pair.earlier_source or "") for pair in PAIRS) < chains.LONGEST + 100


def test_an_unseen_operator_is_in_none():
    unseen = frozenset({"softmax", "linear", "relu", "conv2d"})
    drawn = Counter(name for pair in draw_optimizations(200, 0, unseen) for name in pair.operators)
    assert not set(drawn) & unseen
    with pytest.raises(InputError, match="no operator is left"):
        draw_optimizations(1, 0, frozenset(OPERATORS))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_form_applies_to_some_kernel_and_changes_sizes_or_precision_alone(form):
    found = list(islice(((kernel, slow) for kernel in KERNELS if (slow := form.of(kernel)) is not None), 5))
    assert found
    for kernel, slow in found:
        assert slow != kernel
        assert without_sizes(slow) == without_sizes(kernel)


def test_a_text_without_any_place_has_no_slow_form():
    assert {slow_kernel(Draw(str(seed)), "x = 1\n", ()) for seed in range(20)} == {None}


def test_a_familys_slow_kernel_is_chosen_most_often():
    found = Counter(slow_kernel(Draw(str(seed)), "BLOCK=1024", ("x = 1", "x = 2")) for seed in range(200))
    assert set(found) == {"x = 1", "x = 2", "BLOCK=64"}
    assert found["BLOCK=64"] < 80


def test_a_rows_warps_are_those_given():
    assert with_warps("k[(n,)](x, BLOCK=triton.next_power_of_2(R), num_warps=8)", 32).endswith("num_warps=32)")
    assert with_warps("k[(n,)](x, BLOCK=triton.next_power_of_2(R))", 1).endswith("(R), num_warps=1)")


def test_a_step_apart_has_a_launch_of_its_own():
    kernel = (
        "@triton.jit\ndef k(x_ptr):\n    x = a + b\n    x = tl.maximum(x, 0.0)\n    tl.store(out_ptr + o, x, mask=mask)\n"
        "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return out\n"
    )
    apart = with_step_apart(kernel, "relu", "tl.maximum(x, 0.0)")
    assert apart.count("@triton.jit") == 2
    assert apart.count("tl.maximum(x, 0.0)") == 1
    assert "relu_kernel[(triton.cdiv(n, 1024),)](out, out, n, BLOCK=1024)\n        return out" in apart
