"""Formulas of a tensor's elements that have no name, alone or reduced along a dimension."""

import re

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.expressions import FORMULA, Formula, draw_formula
from tasks.problems.modules.families.elementwise import kernel_of_elements
from tasks.problems.modules.over_dimension import OverDimension, draw_over_dimension
from tasks.problems.modules.pair import SEPARATOR, Family, ModulePair
from tasks.problems.modules.text import Input, Module, kernel_text, problem_text
from tasks.problems.modules.tiles import Along

_REDUCED = 0.35
"""Share of the formulas that are reduced."""
_TITLES = ("a custom activation function", "an element-wise formula", "a custom element-wise operation")
_REDUCTIONS = {
    "sum": ("torch.sum({}, dim={{d}}{{k}})", "0.0", "acc + {}", "tl.sum({}, 0)", "acc"),
    "mean": ("torch.mean({}, dim={{d}}{{k}})", "0.0", "acc + {}", "tl.sum({}, 0)", "acc / R"),
    "max": ("torch.amax({}, dim={{d}}{{k}})", '-float("inf")', "tl.maximum(acc, {})", "tl.max({}, 0)", "acc"),
}
"""Form in PyTorch, value where nothing is, a loop's step, reduction of a tile, and result."""


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a formula."""
    names = rng.unless(list(_REDUCTIONS), unseen, str)
    return _reduced(rng, rng.choice(names)) if names and rng.chance(_REDUCED) else _alone(rng)


def _alone(rng: Draw) -> ModulePair:
    """Return a pair of one or two formulas of all elements."""
    formulas, shape = [draw_formula(rng) for _ in range(rng.pick(1, 1, 2))], rng.shape()
    statements = [line for formula in formulas for line in formula.torch]
    module = Module(
        title=rng.choice(_TITLES),
        inputs=(Input("x", shape.made(rng.tensor())),),
        forward=(*statements, "return x"),
        constants=shape.constants,
    )
    block = rng.pick(1024, 1024, 2048)
    kernel = kernel_of_elements("formula_kernel", [line for formula in formulas for line in formula.triton])
    host = ["x = x.contiguous()", "out = torch.empty_like(x)", "n = x.numel()"]
    host += [f"formula_kernel[(triton.cdiv(n, {block}),)](x, out, n, BLOCK={block})", "return out"]
    return ModulePair(
        family=FAMILY.name,
        operator=SEPARATOR.join([FORMULA] * len(formulas)),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel_text([kernel], module, host),
        style="plain",
    )


def _reduced(rng: Draw, name: str) -> ModulePair:
    """Return a pair of a formula that is reduced along a dimension."""
    form, pad, step, reduction, result = _REDUCTIONS[name]
    torch, triton = _expression(rng)
    value = f"tl.where(mask, {triton}, {pad})"
    along = Along(
        pad if name != "max" else "0.0",
        (f"acc = {reduction.format(value)}",),
        (("acc", pad),),
        (f"acc = {step.format(value)}",),
        (f"acc = {reduction.format('acc')}",),
        result,
    )
    operator = OverDimension(name, f"a {name} of a formula", (form.format(torch),), along)
    pair = draw_over_dimension(rng, FAMILY.name, operator)
    return pair.model_copy(update={"operator": SEPARATOR.join((FORMULA, name))})


def _expression(rng: Draw) -> tuple[str, str]:
    """Return a formula of one statement as an expression: in PyTorch of `x`, in Triton of `v`."""
    while True:
        formula: Formula = draw_formula(rng)
        if len(formula.torch) == 1:
            torch, triton = (lines[0].removeprefix("x = ") for lines in (formula.torch, formula.triton))
            return torch, re.sub(r"\bx\b", "v", triton)


FAMILY = Family("formulas", (FORMULA, *_REDUCTIONS), draw, needed=(FORMULA,))
