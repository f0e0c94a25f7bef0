"""Functions cost what their table says, double precision costs its own pipe, and products their unit."""

import pytest

from kernels_eval.cost.instructions import FUNCTIONS, UNKNOWN, operations_of, product_operation


def test_single_precision_is_counted_by_pipe() -> None:
    assert operations_of("add") == (("fp32", 1),)
    assert operations_of("exp") == (("fp32", 3), ("alu", 1), ("sfu", 1))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_double_precision_is_one_pipe_and_never_cheaper(name: str) -> None:
    ((pipe, count),) = operations_of(name, is_double=True)
    assert pipe == "fp64"
    assert count >= sum(each for _, each in operations_of(name)) > 0


def test_an_unknown_function_is_not_free() -> None:
    assert dict(operations_of("no such function")) == {"fp32": UNKNOWN.fp32, "alu": UNKNOWN.alu, "sfu": UNKNOWN.sfu}


@pytest.mark.parametrize(
    ("dtype", "precision", "unit", "each"),
    [
        ("fp32", "tf32", "dot_tf32", 2),
        ("fp32", "ieee", "dot_fp32", 2),
        ("fp32", "tf32x3", "dot_tf32", 6),
        ("fp32", "bf16x3", "dot_half", 6),
        ("fp32", "bf16x6", "dot_half", 12),
        ("fp16", "tf32", "dot_half", 2),
        ("bf16", "ieee", "dot_half", 2),
        ("fp64", "ieee", "dot_fp64", 2),
        ("fp8e4nv", "tf32", "dot_byte", 2),
        ("int8", "tf32", "dot_byte", 2),
    ],
)
def test_products_run_in_the_unit_of_their_operands(dtype: str, precision: str, unit: str, each: float) -> None:
    assert product_operation(dtype, precision) == (unit, each)
