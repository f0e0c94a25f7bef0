"""Matrix products that nothing depends on: they are left out, and every other statement stays."""

import ast

import pytest

from kernels_eval.interpreter.dead_products import without_dead_products

KERNEL = """
def kernel(x, o, zeros, flag, N, B):
    acc = tl.zeros((B, B), tl.float32)
    shown = tl.zeros((B, B), tl.float32)
    for i in range(0, N, B):
        v = tl.load(x + i)
        {statement}
        acc += v
    {after}
    tl.store(o, acc)
"""


def left(statement: str, after: str = "pass") -> bool:
    """Return whether the statement is still there."""
    (function,) = ast.parse(KERNEL.format(statement=statement, after=after)).body
    assert isinstance(function, ast.FunctionDef)
    found = ast.unparse(without_dead_products(function))
    for kept in ("acc += v", "v = tl.load(x + i)", "tl.store(o, acc)"):
        assert kept in found
    return ast.unparse(ast.parse(statement)) in found


@pytest.mark.parametrize(
    "statement",
    [
        "tl.dot(v, zeros)",
        "dot(v, zeros)",
        "shown = tl.dot(v, zeros)",
        "shown: tl.tensor = tl.dot(v, zeros)",
        "shown = tl.dot(v, zeros, shown)",
        "shown += tl.dot(tl.load(x + i), zeros).to(tl.float32)",
        "shown, other = (tl.dot(v, zeros), v)",
        "_ = tl.dot_scaled(v, None, 'e4m3', zeros, None, 'e4m3') * 0",
    ],
)
def test_a_product_for_show_is_left_out(statement: str) -> None:
    assert not left(statement)


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("acc = tl.dot(v, zeros, acc)", "pass"),
        ("acc += 0 * tl.dot(v, zeros)", "pass"),
        ("tl.store(o, tl.dot(v, zeros))", "pass"),
        ("tl.atomic_add(o, tl.dot(v, zeros))", "pass"),
        ("helper(o, tl.dot(v, zeros))", "pass"),
        ("shown = helper(o, tl.dot(v, zeros))", "pass"),
        ("flag[0] = tl.dot(v, zeros)", "pass"),
        ("shown = tl.dot(v, zeros)", "acc += tl.sum(shown)"),
        ("shown = tl.dot(v, zeros)", "acc = tl.where(shown > 0, acc, 0)"),
        ("shown = tl.dot(v, zeros)", "return shown"),
        ("shown = tl.dot(v, zeros)", "o.store([0], shown)"),
        ("shown = tl.dot(v, zeros)", "helper(shown)"),
        ("shown = tl.dot(v, zeros)", "o = o if tl.sum(shown) > 0 else x"),
        ("shown = tl.dot(v, zeros)", "tl.device_print('shown', shown)"),
        ("shown = tl.exp(v)", "pass"),
        ("tl.device_print('v', v)", "pass"),
    ],
)
def test_what_an_effect_may_depend_on_stays(statement: str, after: str) -> None:
    assert left(statement, after)


def test_a_chain_of_values_is_followed() -> None:
    chain = "first = tl.exp(shown); second, third = first + 1, first; acc += third"
    assert left("shown = tl.dot(v, zeros)", chain)
    assert not left("shown = tl.dot(v, zeros)", "first = tl.exp(shown); second = first + 1")


def test_a_body_that_loses_its_only_statement_stays_a_body() -> None:
    source = "def kernel(a, b, n):\n    for i in range(n):\n        tl.dot(a, b)\n    if n:\n        c = tl.dot(a, b)\n"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    compile(ast.fix_missing_locations(ast.Module([without_dead_products(function)], [])), "kernel", "exec")
