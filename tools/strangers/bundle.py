"""One source of what an operator of an unpacked package needs: definitions as their authors wrote them, in order.

A definition is taken with all that it names, through the package's own modules. Imports of other packages are kept,
and names of a module that is imported as a whole (`tools.program_id`) become names of the bundle. Nothing of a package
is executed here, and none of its text is kept in this repository.
"""

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

KEPT = ("torch", "triton", "numpy", "packaging")
"""Packages besides Python's own whose imports are kept. Others are left out: a candidate cannot import them."""


class CannotBundleError(Exception):
    """Names a definition that cannot be taken, and the reason."""


@dataclass(frozen=True)
class _Import:
    module: str
    name: str | None
    """None: the module itself."""
    text: str


class _Module:
    def __init__(self, folder: Path, name: str, aliases: Mapping[str, str]) -> None:
        path = folder.joinpath(*name.split("."))
        self.is_package = (path / "__init__.py").exists()
        path = path / "__init__.py" if self.is_package else path.with_suffix(".py")
        if not path.exists():
            raise CannotBundleError(f"{name}: no such module")
        self.name, self._aliases = name, aliases
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.tree = ast.parse(self.text)

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        """Statements of the module by the names that they define; of those that replace a name, the last one."""
        found: dict[str, list[ast.stmt]] = {}
        for node in self.tree.body:
            for name in _defined(node):
                found[name] = [*(found.get(name, []) if _keeps_earlier(node, name) else []), node]
        return found

    @cached_property
    def stars(self) -> list[str]:
        """Modules of which all names are imported."""
        found = (node for node in _own_statements(self.tree.body) if isinstance(node, ast.ImportFrom))
        return [self._absolute(node) for node in found if node.names[0].name == "*"]

    @cached_property
    def imports(self) -> dict[str, _Import]:
        """Imports anywhere in the module's own body, by the name that they give."""
        found: dict[str, _Import] = {}
        for node in _own_statements(self.tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    text = f"import {alias.name} as {alias.asname}" if alias.asname else f"import {alias.name}"
                    found[name] = _Import(alias.name, None, text)
            elif isinstance(node, ast.ImportFrom):
                module = self._absolute(node)
                for alias in node.names:
                    text = f"from {module} import {alias.name} as {alias.asname or alias.name}"
                    found[alias.asname or alias.name] = _Import(module, alias.name, text)
        return found

    def source(self, node: ast.stmt) -> str:
        """Return a statement's text with its decorators."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)])
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            first, dot, rest = (node.module or "").partition(".")
            return self._aliases.get(first, first) + dot + rest
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, *([node.module] if node.module else [])])


@dataclass
class Bundle:
    """Collects definitions of one package. `stand_ins`: text by name, taken in place of the package's own."""

    folder: Path
    package: str
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Packages' own names of modules, by the first part under which they are imported."""
    _texts: list[str] = field(default_factory=list[str])
    _taken: dict[str, str] = field(default_factory=dict[str, str])
    """Module that each name was taken from."""
    _modules: dict[str, _Module] = field(default_factory=dict[str, _Module])

    def take(self, module: str, *names: str) -> str:
        """Return the text of definitions and of all that they need. Raises CannotBundleError."""
        for name in names:
            if not self._take(self._module(module), name):
                raise CannotBundleError(f"{name}: not in {module}")
        return "\n\n".join(self._texts) + "\n"

    def _module(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = _Module(self.folder, name, self.aliases)
        return self._modules[name]

    def _take(self, module: _Module, name: str) -> bool:
        if name in self.stand_ins:
            self._add(name, "a stand-in", self.stand_ins[name])
        elif name in module.definitions:
            self._define(module, name)
        elif name in module.imports:
            self._import(module.imports[name], name)
        else:
            own = (each for each in module.stars if each.split(".")[0] == self.package)
            return any(self._take(self._module(each), name) for each in own)
        return True

    def _define(self, module: _Module, name: str) -> None:
        nodes = module.definitions[name]
        if self._has_same(name, module, nodes[-1]) or self._is_taken(name, module.name):
            return
        self._taken |= {each: module.name for node in nodes for each in _defined(node) if each not in self.stand_ins}
        for node in nodes:
            self._state(module, name, node)

    def _state(self, module: _Module, name: str, node: ast.stmt) -> None:
        """Take what a statement needs, and the statement."""
        text = module.source(node)
        for alias in self._modules_in(module, node):
            parts = {each.attr for each in _attributes(node, alias)}
            for part in sorted(parts):
                self._import(_Import(module.imports[alias].module, module.imports[alias].name, ""), alias, part)
                text = re.sub(rf"(?<![\w.]){alias}\.{part}\b", part, text)
        for needed in dict.fromkeys(_names(node)):
            is_pythons = hasattr(builtins, needed) and needed not in module.definitions | module.imports
            if needed != name and not is_pythons and needed not in self._modules_in(module, node):
                self._take(module, needed)
        self._texts.append(text)

    def _has_same(self, name: str, module: _Module, node: ast.stmt) -> bool:
        """Return whether another module's definition with the same text was taken: a logger, a constant, a helper."""
        before = self._modules.get(self._taken.get(name, ""))
        if before is None or before is module or not isinstance(node, ast.Assign | ast.FunctionDef):
            return False
        return name in before.definitions and before.source(before.definitions[name][-1]) == module.source(node)

    def _modules_in(self, module: _Module, node: ast.stmt) -> list[str]:
        """Return the names in a statement that are modules of the package."""
        names = (name for name in dict.fromkeys(_names(node)) if name in module.imports and name not in self.stand_ins)
        return [name for name in names if self._is_own(module.imports[name]) and self._whole(module.imports[name])]

    def _is_own(self, found: _Import) -> bool:
        return found.module.split(".")[0] == self.package

    def _whole(self, found: _Import) -> str | None:
        """Return the name of the module that an import gives as a value; None: it gives something else."""
        if found.name is None:
            return found.module
        path = self.folder.joinpath(*found.module.split("."), found.name)
        is_module = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
        own = self._module(found.module)
        is_defined = found.name in own.definitions or found.name in own.imports
        return f"{found.module}.{found.name}" if is_module and not is_defined else None

    def _import(self, found: _Import, name: str, part: str | None = None) -> None:
        """Take what an import gives; `part`: a name of the module that it gives."""
        if not self._is_own(found):
            if found.module.split(".")[0] in (*KEPT, *sys.stdlib_module_names):
                self._add(name, "an import", found.text)
            return
        whole = self._whole(found)
        if part is not None and whole is not None:
            if not self._take(self._module(whole), part):
                raise CannotBundleError(f"{part}: not in {whole}")
            return
        if found.name is None or whole is not None:
            raise CannotBundleError(f"{name}: a module of the package as a value")
        if not self._take(self._module(found.module), found.name):
            raise CannotBundleError(f"{found.name}: not in {found.module}")
        if found.name != name:
            self._add(name, found.module, f"{name} = {found.name}")

    def _add(self, name: str, origin: str, text: str) -> None:
        if not self._is_taken(name, origin):
            self._taken[name] = origin
            self._texts.append(text)

    def _is_taken(self, name: str, origin: str) -> bool:
        before = self._taken.get(name, origin)
        if before != origin:
            raise CannotBundleError(f"{name}: both of {before} and of {origin}")
        return name in self._taken


def _own_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, those under `if` and `try` too."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                yield from _own_statements(part)
            for handler in getattr(node, "handlers", []):
                yield from _own_statements(handler.body)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    found = [
        part.id
        for each in _own_statements([node])
        if isinstance(each, ast.Assign | ast.AnnAssign)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        for part in ast.walk(target)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    ]
    if isinstance(node, ast.If | ast.Try):
        found += [each.name for each in _own_statements([node]) if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return found


def _keeps_earlier(node: ast.stmt, name: str) -> bool:
    """Return whether a definition may leave the earlier one in force or is made of it, as a decorated kernel is."""
    if isinstance(node, ast.If | ast.Try):
        return True
    return isinstance(node, ast.Assign) and name in _names(node.value)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names in a statement, without a function's own variables."""
    own: set[str] = set()
    if isinstance(node, ast.FunctionDef):
        own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        own -= {name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id not in own)


def _attributes(node: ast.AST, name: str) -> Iterator[ast.Attribute]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == name:
            yield part
