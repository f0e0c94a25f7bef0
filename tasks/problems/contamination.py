"""Overlap of training sources with the held-out problems: by normalised source, and by fingerprint.

SAME: equal normalised source (comments, layout and docstrings aside); such training rows are dropped. SIMILAR: equal
fingerprint (own names and numbers aside, calls included), e.g. `torch.matmul(A, B)` for square and for tall matrices;
such rows are kept and counted, and never on both sides of a split that is decided here. Not detected: statements in
another order, other spellings (`x + y`, `torch.add(x, y)`), dead code, other operators with the same result.
"""

import ast
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from kernels_eval.problem import normalise_source
from kernels_eval.syntax import syntax_tree

_INPUT_FUNCTIONS = frozenset({"get_inputs", "get_init_inputs"})


def fingerprint_of(source: str) -> str:
    """Return the classes and functions of a problem with its own names and its numbers replaced.

    Docstrings, annotations and the functions that give the inputs are left out. What does not parse is only stripped.
    """
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError):
        return source.strip()
    body: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in _INPUT_FUNCTIONS
    ]
    module = ast.Module(body=body, type_ignores=[])
    names = _OwnNames()
    names.visit(tree)
    return ast.unparse(_Replacer(names.names, names.attributes).visit(module))


def fingerprint_digest(source: str) -> str:
    """Return 16 hex digits of SHA-256 over the fingerprint."""
    return hashlib.sha256(fingerprint_of(source).encode()).hexdigest()[:16]


class _OwnNames(ast.NodeVisitor):
    """Collects the names that the source defines: variables, parameters, functions, classes, attributes of `self`."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.names.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.names.add(node.arg)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self":
            self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.add(node.name)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        # Methods that torch calls by name keep their name; methods that only the source calls are renamed.
        if node.name not in {"forward", "__init__"}:
            self.names.add(node.name)
            self.attributes.add(node.name)
        self.generic_visit(node)


class _Replacer(ast.NodeTransformer):
    """Renames own names in the order of their first use, and turns every number into 0."""

    def __init__(self, names: set[str], attributes: set[str]) -> None:
        self._names = names
        self._attributes = attributes
        self._given: dict[str, str] = {}

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._renamed(node.name)
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._renamed(node.name)
        node.returns = None
        return self._without_docstring(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=self._renamed(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self._renamed(node.id), ctx=node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = self.visit(node.value)
        own = node.attr in self._attributes and isinstance(node.value, ast.Name) and node.value.id == "self"
        return ast.Attribute(value=value, attr=self._fresh(f".{node.attr}") if own else node.attr, ctx=node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        own = isinstance(node.func, ast.Name) and node.func.id in self._names
        self.generic_visit(node)
        if own:
            for keyword in node.keywords:
                keyword.arg = None if keyword.arg is None else self._renamed(keyword.arg)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        is_number = isinstance(node.operand, ast.Constant) and node.operand.value == 0
        return node.operand if is_number and isinstance(node.op, ast.USub | ast.UAdd) else node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_number = isinstance(node.value, int | float | complex) and not isinstance(node.value, bool)
        return ast.Constant(value=0) if is_number else node

    def _without_docstring(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def _renamed(self, name: str) -> str:
        return self._fresh(name) if name in self._names else name

    def _fresh(self, name: str) -> str:
        return self._given.setdefault(name, f"n{len(self._given)}")


_log = logging.getLogger(__name__)

T = TypeVar("T")


class Overlap(StrEnum):
    """Degree of overlap between a training source and the nearest held-out problem."""

    NONE = "none"
    """No held-out problem has this source or this fingerprint."""
    SIMILAR = "similar"
    """A held-out problem has this fingerprint, with other names or numbers."""
    SAME = "same"
    """A held-out problem has this normalised source."""


class Cleaned(NamedTuple, Generic[T]):
    """Training rows without those that are held-out problems."""

    clean: list[T]
    """The rows to train on, in their order."""
    dropped: int
    """Number of rows left out: SAME as a held-out problem."""
    similar: int
    """Number of rows in `clean` that are SIMILAR to a held-out problem."""


def contaminated(sources: Sequence[str], heldout: Iterable[str]) -> list[Overlap]:
    """Return the overlap of each training source with the nearest held-out source, in order."""
    heldout = list(heldout)
    normalised = {normalise_source(source) for source in heldout}
    fingerprints = {fingerprint_of(source) for source in heldout}

    def overlap_of(source: str) -> Overlap:
        if normalise_source(source) in normalised:
            return Overlap.SAME
        return Overlap.SIMILAR if fingerprint_of(source) in fingerprints else Overlap.NONE

    return [overlap_of(source) for source in sources]


def drop_contaminated(rows: Sequence[T], heldout: Iterable[str], source_of: Callable[[T], str]) -> Cleaned[T]:
    """Return the training rows that are no held-out problem, and the numbers of dropped and similar ones."""
    overlaps = contaminated([source_of(row) for row in rows], heldout)
    cleaned = Cleaned(
        clean=[row for row, overlap in zip(rows, overlaps, strict=True) if overlap is not Overlap.SAME],
        dropped=overlaps.count(Overlap.SAME),
        similar=overlaps.count(Overlap.SIMILAR),
    )
    if cleaned.dropped:
        _log.warning("dropped %d of %d training rows: their problem is held out", cleaned.dropped, len(rows))
    if cleaned.similar:
        _log.warning("%d of %d training rows have a held-out problem's fingerprint", cleaned.similar, len(rows))
    return cleaned
