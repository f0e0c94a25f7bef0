"""Tunings suit their problem, and the kernels written with them launch what they say."""

import ast
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.operators import ALL, Place
from tasks.problems.synthetic.sources import Style, kernel_source
from tasks.problems.synthetic.tuning import draw_tuning, fixed_tuning, needs_whole_rows, tunings

KEYS = ("relu>silu", "softmax>abs", "sine>transpose", "linear>gelu", "matmul>softmax", "relu>sum", "add_tensor")


@given(key=st.sampled_from(KEYS), columns=st.integers(64, 2048))
def test_there_is_a_choice_and_every_tile_is_of_a_sensible_size(key: str, columns: int) -> None:
    composition = parse_composition(key)
    columns = columns % 128 + 32 if composition.head else columns  # products of the suite are narrow
    found = tunings(composition, columns)
    assert len(found) >= 8
    assert len(set(found)) == len(found)
    for tuning in found:
        assert tuning.columns is None or not needs_whole_rows(composition)
        assert (tuning.inner is not None) == (composition.head is not None)


@given(operator=st.sampled_from(ALL), style=st.sampled_from(list(Style)), seed=st.integers(0, 10_000))
def test_a_tuned_kernel_is_python_whose_grid_has_the_rows_of_its_tile(operator, style, seed) -> None:
    chain = f"sine>{operator.name}" if operator.place is Place.TAIL else operator.name
    composition = parse_composition(chain)
    source = kernel_source(composition, style, tuning=draw_tuning(composition, 384, random.Random(seed)))
    ast.parse(source)
    launches = re.findall(r"_kernel\[.*triton\.cdiv\(M, (\d+)\).*\]\(.*ROWS=(\d+)", source)
    assert len(launches) == source.count("@triton.jit")
    assert all(rows == tile for rows, tile in launches)


def test_without_a_tuning_a_kernel_is_the_fixed_one() -> None:
    for key in KEYS:
        composition = parse_composition(key)
        fixed = fixed_tuning(composition, is_small=False)
        assert kernel_source(composition, Style.FUSED) == kernel_source(composition, Style.FUSED, tuning=fixed)


def test_a_step_that_needs_whole_rows_has_them_where_others_are_narrower() -> None:
    """Kernels of a chain are launched one by one; only those that reduce over a row take all of it."""
    composition = parse_composition("relu>silu")
    narrow = next(tuning for tuning in tunings(composition, 1024) if tuning.columns == 128)
    source = kernel_source(parse_composition("relu>softmax"), Style.STEPWISE, tuning=narrow)
    first, second = re.findall(r"_kernel\[.*", source)
    assert "BLOCK=128" in first
    assert "BLOCK=triton.next_power_of_2(N)" in second
