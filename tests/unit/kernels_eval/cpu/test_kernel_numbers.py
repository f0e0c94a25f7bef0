"""Whole numbers that a kernel's text tells of one launch, in no more time and digits than the text has lines."""

import ast

import numpy as np
import pytest

from kernels_eval.cpu.kernel_numbers import KernelNumbers
from kernels_eval.trace.schema import KernelReference, KernelSource, LaunchKernel, ModuleName, Plain


def numbers(body: str) -> KernelNumbers:
    """Return the numbers of a launch of four programs with N = 3 and a function f."""
    source = f"def kernel(x_ptr, N, f):\n    {body}\n"
    kernel = KernelSource(
        number=0, name="kernel", source=source, line=1, globals={"tl": ModuleName(name="triton.language")}
    )
    arguments = {"N": Plain(value=3), "f": KernelReference(kernel=1)}
    return KernelNumbers(kernel, LaunchKernel(kernel=0, arguments=arguments, grid=(4, 1, 1)))


def number_of(expression: str, body: str = "pass") -> object:
    """Return what an expression is in such a launch."""
    found = numbers(body).of(ast.parse(expression, mode="eval").body)
    return found.tolist() if isinstance(found, np.ndarray) else found


def chain(lines: int, expression: str) -> str:
    """Return lines each of which makes a number of the one before it: `a1 = …`, from `a0 = N` on."""
    made = (f"a{line} = {expression.format(before=f'a{line - 1}')}" for line in range(1, lines + 1))
    return "\n    ".join(["a0 = N", *made])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("N * 2 + 1", 7),
        ("tl.cdiv(N, 2)", 2),
        ("tl.program_id(0) * N", [0, 3, 6, 9]),
        ("N - 4", None),
        ("N // 0", None),
        ("unknown", None),
    ],
)
def test_numbers(expression: str, expected: object) -> None:
    assert number_of(expression) == expected


def test_a_name_is_followed_once_however_often_it_is_named() -> None:
    assert number_of("a64", chain(64, "{before} - {before} + N")) == 3


@pytest.mark.parametrize(
    "expression", ["2147483648", "N * 1000000000", "tl.program_id(0) * 2147483647 * 2147483647", "a8"]
)
def test_numbers_of_more_than_32_bits_are_not_followed(expression: str) -> None:
    assert number_of(expression, chain(8, "{before} * {before}")) is None


def test_a_name_that_is_made_of_itself_has_no_number() -> None:
    assert number_of("a", "a = b\n    b = a") is None


@pytest.mark.parametrize(("name", "is_own"), [("tl", False), ("N", True), ("f", False), ("a", True)])
def test_names_of_the_text_s_own(name: str, is_own: bool) -> None:
    assert numbers("a = tl.arange").is_own(name) == is_own
