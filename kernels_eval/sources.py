"""Digests of Python sources: a module and what it imports of the same project. Sources are parsed, never imported.

Comments, layout and docstrings do not count.
"""

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

from kernels_eval.syntax import syntax_tree


def digests_behind(
    module: str, is_ours: Callable[[str], bool], skip: Callable[[str], bool] = lambda name: False
) -> dict[str, tuple[Path, str]]:
    """Return path and digest (16 hex digits) of a module and of every module that it imports, directly or not.

    Imports inside functions count. `is_ours`: takes the top-level name of an imported module, and says if that is
    followed. `skip`: modules that are left out, with what they import. Raises ModuleNotFoundError if there is no such
    module in Python source.
    """
    seen: dict[str, tuple[Path, str]] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = source_of(name)
        if name in seen or path is None or (name != module and skip(name)):
            continue
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        digest, imported = _read(path, package)
        seen[name] = path, digest
        waiting.extend(other for other in imported if is_ours(other.partition(".")[0]))
    if not seen:
        raise ModuleNotFoundError(f"{module}: no such module")
    return seen


def combined(digests: dict[str, str]) -> str:
    """Return 16 hex digits for named digests."""
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """Return 16 hex digits for a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def forget() -> None:
    """Forget which files were read: they have changed."""
    source_of.cache_clear()
    _read.cache_clear()


@functools.cache
def source_of(module: str) -> Path | None:
    """Return the file of a module; None if it has none, e.g. if the name is that of a function in a module."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        file = Path(spec.origin or "")
        return file if not rest and file.suffix == ".py" and file.is_file() else None
    for folder in spec.submodule_search_locations:
        base = Path(folder).joinpath(*rest)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


@functools.cache
def _read(path: Path, package: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of one source file's syntax tree, and the modules that it names."""
    tree = syntax_tree(path.read_text(encoding="utf-8"))
    imported = tuple(sorted(set(_imports(tree, package))))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
    return hashlib.sha256("".join(_words(tree)).encode()).hexdigest()[:16], imported


def _words(value: object) -> Iterator[str]:
    """Yield a syntax tree as text that is the same under every Python.

    `ast.dump` and `ast.unparse` promise no such thing: empty fields and an f-string's quotes follow the version.
    """
    if isinstance(value, ast.Constant):
        yield f"{type(value.value).__name__}:{value.value!r} "
    elif isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name, held in ast.iter_fields(value):
            if held is not None and held != []:
                yield f"{name}="
                yield from _words(held)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for held in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _words(held)  # pyright: ignore[reportUnknownArgumentType]
        yield "]"
    else:
        yield f"{value!r} "


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or the text below a field of a model."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (above, node.module or "") if part)
            yield module
            # `from tasks.update import losses` names a module, `from tasks.pipeline.store import publish` does not.
            yield from (f"{module}.{alias.name}" for alias in node.names)
