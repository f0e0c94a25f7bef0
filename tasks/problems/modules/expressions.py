"""Draws formulas of a tensor's elements, each as PyTorch and Triton write it.

A function with a name can be learnt by heart. A formula has to be read: its kernel says the same, part by part.
"""

import ast
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw

FORMULA = "formula"
"""Name of the operator, as `problems.unseen` knows it."""
_OF_ONE = (
    (("torch.tanh({0})", "({0}).tanh()"), "(2.0 * tl.sigmoid(2.0 * ({0})) - 1.0)"),
    (("torch.sigmoid({0})", "({0}).sigmoid()"), "tl.sigmoid({0})"),
    (("torch.relu({0})", "F.relu({0})"), "tl.maximum({0}, 0.0)"),
    (("torch.abs({0})", "({0}).abs()"), "tl.abs({0})"),
    (("torch.sin({0})", "({0}).sin()"), "tl.sin({0})"),
    (("torch.cos({0})", "({0}).cos()"), "tl.cos({0})"),
    (("torch.erf({0})",), "tl.erf({0})"),
    (("torch.exp(-torch.abs({0}))",), "tl.exp(-tl.abs({0}))"),
    (("torch.exp(torch.clamp({0}, max=2.0))",), "tl.exp(tl.minimum({0}, 2.0))"),
    (("torch.log(1.5 + torch.abs({0}))",), "tl.log(1.5 + tl.abs({0}))"),
    (("torch.sqrt(torch.abs({0}) + 0.1)",), "tl.sqrt(tl.abs({0}) + 0.1)"),
    (("torch.clamp({0}, -1.5, 2.5)", "torch.clamp({0}, min=-1.5, max=2.5)"), "tl.minimum(tl.maximum({0}, -1.5), 2.5)"),
    (("torch.clamp({0}, min=-0.75)", "({0}).clamp(min=-0.75)"), "tl.maximum({0}, -0.75)"),
    (("torch.square({0})", "({0}) ** 2", "torch.pow({0}, 2)"), "({0}) * ({0})"),
    (("1 / (2 + torch.exp({0}))",), "1.0 / (2.0 + tl.exp({0}))"),
    (("torch.rsqrt(({0}) * ({0}) + 0.5)",), "tl.rsqrt(({0}) * ({0}) + 0.5)"),
)
"""Functions of one value: ways to write them in PyTorch, and Triton's."""
_OF_TWO = (
    ("({0}) + ({1})", "({0}) + ({1})"),
    ("({0}) - ({1})", "({0}) - ({1})"),
    ("({0}) * ({1})", "({0}) * ({1})"),
    ("({0}) / (2 + torch.abs({1}))", "({0}) / (2.0 + tl.abs({1}))"),
    ("torch.maximum({0}, {1})", "tl.maximum({0}, {1})"),
    ("torch.minimum({0}, {1})", "tl.minimum({0}, {1})"),
    # The two sides meet at zero, so that rounding does not decide.
    ("torch.where(x > 0, {0}, ({0}) + x * ({1}))", "tl.where(x > 0.0, {0}, ({0}) + x * ({1}))"),
)
"""Functions of two values."""
_OF_NUMBER = ("({0}) * {1}", "{1} * ({0})", "({0}) + {1}", "({0}) - {1}", "{1} - ({0})", "({0}) / {1}")
"""Functions of a value and a number."""
_NUMBERS = ("0.3", "0.5", "0.7", "1.5", "2.0", "3.0")
_NAMES = ("gate", "inner", "part", "raised", "scaled", "left", "shifted")
"""Names of values on the way; no kernel has one of them."""
_Value = tuple[str, str]
"""An expression in PyTorch and in Triton."""


@dataclass(frozen=True)
class Formula:
    """Statements that replace `x` by a formula of it, in both languages."""

    torch: tuple[str, ...]
    triton: tuple[str, ...]


def draw_formula(rng: Draw) -> Formula:
    """Return a formula of two to four functions, in one statement or in two."""
    x = ("x", "x")
    if rng.chance(0.6):
        return _statements({"x": _formula(rng, x, rng.pick(2, 2, 3))})
    name = rng.choice(_NAMES)
    last = _applied(rng.choice(_OF_TWO), *rng.sample([x, (name, name)], 2))
    return _statements({name: _formula(rng, x, rng.pick(1, 2)), "x": _of_one(rng, last) if rng.chance(0.4) else last})


def _statements(values: dict[str, _Value]) -> Formula:
    torch, triton = (
        tuple(f"{name} = {ast.unparse(ast.parse(value[side]))}" for name, value in values.items()) for side in (0, 1)
    )
    return Formula(torch, triton)


def _formula(rng: Draw, value: _Value, count: int) -> _Value:
    """Return `count` functions around a value; one of two values takes a function of `x`, too."""
    for _ in range(count):
        kind = rng.choices(("one", "two", "number"), (4, 3, 3))[0]
        if kind == "one":
            value = _of_one(rng, value)
        elif kind == "two":
            value = _applied(rng.choice(_OF_TWO), *rng.sample([value, _of_one(rng, ("x", "x"))], 2))
        else:
            form, number = rng.choice(_OF_NUMBER), rng.choice(_NUMBERS)
            value = _applied((form, form), value, (number, number))
    return value


def _of_one(rng: Draw, value: _Value) -> _Value:
    forms, triton = rng.choice(_OF_ONE)
    return _applied((rng.choice(forms), triton), value)


def _applied(forms: _Value, *values: _Value) -> _Value:
    return forms[0].format(*(value[0] for value in values)), forms[1].format(*(value[1] for value in values))
