"""Interpreter process: matrix products whose results no store, condition or return depends on.

Triton's compiler leaves them out, so they are left out here too, with all that stands in the same statement. Else a
product for show would seem to fetch a loop's loads ahead (kernels_eval.interpreter.load_turns).
"""

import ast

_PRODUCTS = frozenset({"dot", "dot_scaled"})
_EFFECTS = ("store", "atomic", "device_", "debug_", "static_", "inline_")
"""Beginnings of the language's functions that do more than to return a value."""
_Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign


def without_dead_products(function: ast.FunctionDef) -> ast.FunctionDef:
    """Return a kernel's syntax tree, which is changed, without statements that only compute such a product."""
    if any(_is_product(node) for node in ast.walk(function)):
        _Removing(_live_names(function)).visit(function)
    return function


class _Removing(ast.NodeTransformer):
    def __init__(self, live: frozenset[str]) -> None:
        self._live = live

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit statements alone: a product within an expression belongs to its statement."""
        if isinstance(node, _Assignment):
            targets = _targets(node)
            is_dead = targets is not None and targets.isdisjoint(self._live) and _is_for_show(node.value)
            return ast.copy_location(ast.Pass(), node) if is_dead else node
        if isinstance(node, ast.Expr):
            return ast.copy_location(ast.Pass(), node) if _is_for_show(node.value) else node
        return super().generic_visit(node)


def _live_names(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names on whose values an effect depends, wherever in the function they get them."""
    assignments: list[tuple[set[str], set[str]]] = []
    live: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, _Assignment) and node.value is not None:
            targets = _targets(node)
            if targets is not None and _is_pure(node.value):
                assignments.append((targets, _read(node.value)))
            else:
                live |= _read(node)
        elif isinstance(node, ast.Return | ast.Assert | ast.Raise | ast.Delete) or _has_effect(node):
            live |= _read(node)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            live |= _read(node.test)
        elif isinstance(node, ast.For):
            live |= _read(node.iter)
    count = -1
    while count < len(live):
        count = len(live)
        live.update(*(read for targets, read in assignments if not targets.isdisjoint(live)))
    return frozenset(live)


def _targets(node: _Assignment) -> set[str] | None:
    """Return the names that an assignment binds; None if it binds anything else."""
    found: set[str] = set()
    pending: list[ast.expr] = list(node.targets) if isinstance(node, ast.Assign) else [node.target]
    while pending:
        target = pending.pop()
        if isinstance(target, ast.Name):
            found.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            pending += target.elts
        else:
            return None
    return found


def _has_effect(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and not _is_pure(node.value)


def _is_for_show(value: ast.expr | None) -> bool:
    return value is not None and any(_is_product(node) for node in ast.walk(value)) and _is_pure(value)


def _is_pure(value: ast.expr) -> bool:
    """Return whether an expression only computes a value; functions of the kernel's own may do more."""
    return all(_is_pure_call(node) for node in ast.walk(value) if isinstance(node, ast.Call))


def _is_pure_call(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Name):
        return node.func.id in _PRODUCTS
    return isinstance(node.func, ast.Attribute) and not node.func.attr.startswith(_EFFECTS)


def _is_product(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return name in _PRODUCTS


def _read(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
