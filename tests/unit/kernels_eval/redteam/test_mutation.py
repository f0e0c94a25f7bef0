"""Mutants: one change each, the same for a seed, every operator of use, in kernels and host code alone."""

import ast
import difflib
from collections import Counter

import pytest

from kernels_eval.problem import EXAMPLE_KERNEL
from kernels_eval.redteam.mutation import draw_mutants
from kernels_eval.redteam.mutation_operators import HOST_OPERATORS, KERNEL_OPERATORS
from kernels_eval.redteam.suite import load_cases

KERNEL = """
import torch, triton
import triton.language as tl

LIMIT = 3

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.debug_barrier()
    tl.atomic_add(out + i, v, mask=i < n)

class ModelNew:
    def forward(self, x, y):
        out = torch.zeros_like(x)
        add[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
        return out
"""


def changed_lines(source: str, mutant: str) -> list[str]:
    lines = difflib.unified_diff(ast.unparse(ast.parse(source)).splitlines(), mutant.splitlines(), lineterm="", n=0)
    return [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]


def mutated(operator: str) -> set[str]:
    drawn = draw_mutants(KERNEL, 1000, 0)
    return {"".join(changed_lines(KERNEL, mutant.source)) for mutant in drawn if mutant.operator == operator}


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        ("drop mask", "v = tl.load(x + i)"),
        ("drop other", "v = tl.load(x + i, mask=i < n)"),
        ("shift address", "v = tl.load(x + i + 1, mask=i < n, other=0.0)"),
        ("change comparison", "v = tl.load(x + i, mask=i <= n, other=0.0)"),
        ("change constant", "v = tl.load(x + i, mask=i < n, other=1.0)"),
        ("change program", "i = 0 * BLOCK + tl.arange(0, BLOCK)"),
        ("change program", "i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)"),
        ("plain access for an atomic", "tl.store(out + i, tl.load(out + i, mask=i < n) + v, mask=i < n)"),
        ("drop statement", "pass"),
        ("shrink grid", "add[x.numel() // 64,](x, y, out, x.numel(), BLOCK=64)"),
        ("swap arguments", "add[triton.cdiv(x.numel(), 64),](y, x, out, x.numel(), BLOCK=64)"),
        ("uninitialised memory", "out = torch.empty_like(x)"),
    ],
)
def test_an_operator_makes_the_change_that_it_names(operator: str, line: str) -> None:
    assert line in mutated(operator)


def test_every_mutant_parses_and_differs_in_one_statement_from_the_kernel() -> None:
    drawn = draw_mutants(EXAMPLE_KERNEL, 500, 3)
    assert len(drawn) > 50
    assert len({mutant.source for mutant in drawn}) == len(drawn)
    for mutant in drawn:
        ast.parse(mutant.source)
        assert len(changed_lines(EXAMPLE_KERNEL, mutant.source)) == 1, mutant


def test_the_seed_decides_and_operators_take_turns() -> None:
    assert draw_mutants(KERNEL, 12, 5) == draw_mutants(KERNEL, 12, 5)
    assert draw_mutants(KERNEL, 12, 5) != draw_mutants(KERNEL, 12, 6)
    counts = Counter(mutant.operator for mutant in draw_mutants(KERNEL, 10, 5))
    assert max(counts.values()) == 1


def test_nothing_outside_of_functions_and_no_kernel_by_operators_on_host_code_is_changed() -> None:
    for mutant in draw_mutants(KERNEL, 1000, 0):
        assert "LIMIT = 3\n" in mutant.source
        line = "".join(changed_lines(KERNEL, mutant.source))
        in_host = line.startswith(("add[", "out = torch", "return out"))
        assert (mutant.operator in HOST_OPERATORS) == in_host, mutant


@pytest.mark.long
def test_honest_kernels_have_more_than_two_thousand_mutants_of_every_operator() -> None:
    honest = [case for case in load_cases() if case.is_honest][::2]
    found = Counter(mutant.operator for case in honest for mutant in draw_mutants(case.kernel, 60, 0))
    assert sum(found.values()) > 2000
    assert set(found) == {*KERNEL_OPERATORS, *HOST_OPERATORS}
