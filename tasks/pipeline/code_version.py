"""Code version of a stage, and content digest of files: parts of cache keys.

The version is a digest over the stage's module and every module of this project that it imports, directly or not, also
inside functions, with the data files beside them (JSON, YAML). Comments, layout and docstrings do not count. Sources
are parsed, not imported: a cache hit needs no torch. Not covered: versions of libraries, modules named in strings only.
"""

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OUR_PACKAGES = ("extras", "tasks", "kernels_eval")
_NOT_DECISIVE = {
    *(f"tasks.pipeline.{name}" for name in ("stage", "cache", "store", "integrity", "code_version", "verdicts")),
    *("tasks.cluster.workers", "tasks.cluster.placement"),
}
"""Modules that move results and never decide them."""

_ATTEMPTS = 20
_LARGE_BYTES = 64 * 2**20


@functools.cache
def code_version(module: str) -> str:
    """Return 16 hex digits for the code behind `module`, e.g. `tasks.update.train`."""
    seen: dict[str, str] = {}
    folders: set[Path] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source_of(name)
        if name in seen or path is None or (name in _NOT_DECISIVE and name != module):
            continue
        seen[name], imported = _read(path)
        folders.add(path.parent)
        waiting.extend(imported)
    if not seen:
        raise ModuleNotFoundError(f"{module}: no such module")
    for folder in folders:
        seen |= {f"{folder.name}/{path.relative_to(folder)}": _file_digest(path) for path in _data_files(folder)}
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(seen.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the digest of one source file as its syntax tree prints it, and the modules of ours that it names."""
    tree = _tree(path.read_text(encoding="utf-8"))
    imported = tuple(sorted(set(_imports(tree))))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16], imported


def _tree(text: str) -> ast.Module:
    """Return the syntax tree. CPython 3.11 may fail while another thread parses (python/cpython#106905): retried."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def content_digest(path: Path) -> str:
    """Return 16 hex digits for a file, or for every file in a folder (but version control's), by name and content.

    Of a file above 64 MiB (weights) its size and time of change stand for the content.
    """
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(path) if file != path else Path(file.name)
        if ".git" in name.parts:
            continue
        state = file.stat()
        content = f"{state.st_size} {state.st_mtime_ns}" if state.st_size > _LARGE_BYTES else _file_digest(file)
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the data files of a stage's folder; the top folder of a package holds the stages, not data."""
    if (folder / "__init__.py").is_file() and folder.name not in _OUR_PACKAGES:
        for pattern in ("*.json", "*.yaml"):
            yield from folder.rglob(pattern)


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or the text below a field of a model."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in _OUR_PACKAGES)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in _OUR_PACKAGES:
            yield node.module
            # `from tasks.update import losses` names a module, `from tasks.pipeline.store import publish` does not.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _source_of(module: str) -> Path | None:
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        return None
    base = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
