"""Compositions: what of their operators decides level, family and operands."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.problems.synthetic.composition import draw_composition, parse_composition
from tasks.problems.synthetic.operators import ALL, Place


@given(st.integers(1, 3), st.integers(0, 10_000))
def test_a_drawn_composition_has_its_level_and_places_every_operator_rightly(level: int, seed: int):
    composition = draw_composition(level, random.Random(seed))
    operators = composition.operators
    assert composition.level == level
    assert len(set(composition.names)) == len(composition.names)
    assert all(operator.place is not Place.HEAD for operator in operators[1:])
    assert all(operator.place is not Place.TAIL for operator in operators[:-1])
    operands = [operator.operand for operator in operators if operator.operand]
    assert len(set(operands)) == len(operands)
    assert not {"y", "c"} <= set(operands)
    assert parse_composition(composition.key) == composition
    assert composition.family in {operator.family for operator in operators}


@pytest.mark.parametrize("operator", ALL, ids=lambda operator: operator.name)
def test_a_single_operator_is_of_level_one_and_its_own_family(operator):
    composition = parse_composition(operator.name)
    assert (composition.level, composition.family) == (1, operator.family)
    assert composition.operands == ((operator.operand,) if operator.operand else ())


def test_an_unknown_operator_is_named():
    with pytest.raises(InputError, match=r"'relu>rleu': unknown operator 'rleu'; known: .*relu"):
        parse_composition("relu>rleu")
