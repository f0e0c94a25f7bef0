"""Mutants of a candidate's source: each differs from it in one place, as a mistake would. Imports no torch."""

import ast
import random
from collections.abc import Iterator
from typing import Any

from kernels_eval.frozen import FrozenModel
from kernels_eval.redteam.mutation_operators import HOST_OPERATORS, KERNEL_OPERATORS

Change = tuple[str, ast.AST, ast.AST]
"""Operator, node, and what replaces it."""


class Mutant(FrozenModel):
    """A candidate's source with one change."""

    operator: str
    line: int
    """Line of the changed node in the original source."""
    source: str


def draw_mutants(source: str, count: int, seed: int) -> list[Mutant]:
    """Return at most `count` mutants of a candidate, none of which prints as the candidate or as another one.

    The seed decides which; operators take turns, so that rare ones occur.
    """
    tree = ast.parse(source)
    places = _places(tree)
    seen = {ast.unparse(tree)}
    drawn: list[Mutant] = []
    for operator, node, replacement in _in_turn(_changes(tree), random.Random(seed)):
        text = _replaced(tree, places[id(node)], replacement)
        if text not in seen:
            seen.add(text)
            drawn.append(Mutant(operator=operator, line=getattr(node, "lineno", 0), source=text))
        if len(drawn) == count:
            break
    return drawn


def _in_turn(changes: Iterator[Change], order: random.Random) -> Iterator[Change]:
    """Yield changes in random order, one of each operator in every round."""
    piles: dict[str, list[Change]] = {}
    for change in changes:
        piles.setdefault(change[0], []).append(change)
    for pile in piles.values():
        order.shuffle(pile)
    while piles:
        names = list(piles)
        order.shuffle(names)
        for name in names:
            yield piles[name].pop()
        piles = {name: pile for name, pile in piles.items() if pile}


def _changes(tree: ast.Module) -> Iterator[Change]:
    kernels, host = _parts(tree)
    for node in ast.walk(tree):
        table = KERNEL_OPERATORS if id(node) in kernels else HOST_OPERATORS if id(node) in host else {}
        for name, operator in table.items():
            for replacement in operator(node):
                yield name, node, replacement


def _parts(tree: ast.Module) -> tuple[set[int], set[int]]:
    """Return the nodes of statements in kernels and in other functions."""
    kernels: set[int] = set()
    host: set[int] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        is_kernel = any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)
        (kernels if is_kernel else host).update(
            id(inner) for statement in function.body for inner in ast.walk(statement)
        )
    return kernels, host


def _places(tree: ast.Module) -> dict[int, tuple[ast.AST, str, int | None]]:
    """Return for each node its parent, the field that holds it, and its index if that is a list."""
    places: dict[int, tuple[ast.AST, str, int | None]] = {}
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            nodes: list[Any] = value if isinstance(value, list) else [value]
            for index, node in enumerate(nodes):
                if isinstance(node, ast.AST):
                    places[id(node)] = (parent, field, index if isinstance(value, list) else None)
    return places


def _replaced(tree: ast.Module, place: tuple[ast.AST, str, int | None], replacement: ast.AST) -> str:
    """Return the tree as text with one node replaced; the tree stays as it is."""
    parent, field, index = place
    before = getattr(parent, field)
    after = replacement if index is None else [*before[:index], replacement, *before[index + 1 :]]
    setattr(parent, field, after)
    text = ast.unparse(tree)
    setattr(parent, field, before)
    return text
