"""Mistakes put into right kernels."""

import re

import pytest

from tasks.problems.modules.corpus import draw_pairs
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.mistakes import MISTAKES, with_mistake

KERNELS = [pair.kernel_source for pair in draw_pairs(600, seed=4)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_applies_to_some_kernel(mistake):
    assert any(re.search(mistake.pattern, kernel, re.DOTALL) for kernel in KERNELS)


def test_a_kernel_is_changed_and_many_mistakes_occur():
    wrong = [with_mistake(Draw(str(number)), KERNELS[0]) for number in range(40)]
    assert KERNELS[0] not in wrong
    assert len(set(wrong)) >= 6


def test_a_text_without_any_place_for_one_has_none():
    assert with_mistake(Draw("0"), "x = 1\n") is None
