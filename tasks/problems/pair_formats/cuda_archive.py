"""The columns of the AI CUDA Engineer Archive: CUDA C++ kernels for KernelBench's problems, with their times.

`PyTorch_Code_Module`, KernelBench's module, is the problem. `PyTorch_Code_Functional` has a class `Model` too, of which
`forward(self, …, fn=module_fn)` hands the inputs, its parameters and its numbers to `fn`, in the order in which the
function `forward` that `CUDA_Code` binds takes them. Rows that are not `Correct` give no pair. `CUDA_Runtime` is in ms.

The kernel is a module that builds `CUDA_Code` with `load_inline` and defines that class as `ModelNew`, with the built
`forward` in place of `fn`; definitions that the class does not need are left out, the PyTorch version of the function
among them. The judge gives the parameters the problem's values. Other columns are ignored, the times of others too: the
judge measures its own.
"""

import ast
import functools
import math
import re
import symtable
from typing import NamedTuple

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from kernels_eval.syntax import syntax_tree
from tasks.problems.pair_formats.pair import Pair, Reason, UnconvertibleError
from tasks.problems.row import Row, shown, text

COLUMNS = ("CUDA_Code", "PyTorch_Code_Module", "PyTorch_Code_Functional", "Correct", "CUDA_Runtime")
_SOURCE, _EXTENSION, _LOAD = "cuda_source", "extension", "load_inline"
_TAKEN = frozenset({"ModelNew", _SOURCE, _EXTENSION, _LOAD})
_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(\s*TORCH_EXTENSION_NAME\s*,")
_FORWARD = re.compile(r"\.\s*def\s*\(\s*\"forward\"")
_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def pair_of(row: Row) -> Pair:
    """Return the row's pair; UnconvertibleError says why there is none, InputError that a column is of another type."""
    correct = row.values.get("Correct")
    if correct is not None and not isinstance(correct, bool):
        raise InputError(f"{row.where}: column `Correct`: expected true, false or null, found {shown(correct)}")
    if not correct:
        raise UnconvertibleError(Reason.NOT_CORRECT)
    problem = text(row, "PyTorch_Code_Module") or ""
    if not _is_problem(problem):
        raise UnconvertibleError(Reason.NOT_A_PROBLEM)
    kernel = kernel_source(text(row, "CUDA_Code") or "", text(row, "PyTorch_Code_Functional") or "")
    return Pair(problem_source=problem, kernel_source=kernel, runtime_ms=_runtime(row))


def kernel_source(cuda_code: str, functional: str) -> str:
    """Return the source of a kernel that builds the CUDA code and hands it what the functional module hands `fn`.

    Raises UnconvertibleError.
    """
    if not _MODULE.search(cuda_code) or not _FORWARD.search(cuda_code):
        raise UnconvertibleError(Reason.NO_BINDING)
    host = _host(functional)
    built = [
        f"{_SOURCE} = {_literal(cuda_code)}",
        f'{_EXTENSION} = {_LOAD}("cuda_kernels", cpp_sources="", cuda_sources={_SOURCE})',
    ]
    imports = [*host.imports, f"from torch.utils.cpp_extension import {_LOAD}"]
    return "\n".join([*imports, "", *built, "", *host.definitions, "", host.model]) + "\n"


class _Host(NamedTuple):
    """Python side of a kernel."""

    imports: tuple[str, ...]
    definitions: tuple[str, ...]
    """Needs of `ModelNew` from the module that it comes from."""
    model: str


# All kernels of a task have the same.
@functools.lru_cache(maxsize=1024)
def _host(functional: str) -> _Host:
    try:
        tree = syntax_tree(functional)
        symtable.symtable(functional, "", "exec")  # refuses what parses and does not compile
    except _UNPARSABLE as error:
        raise UnconvertibleError(Reason.NOT_A_KERNEL) from error
    if _TAKEN & _names(tree):
        raise UnconvertibleError(Reason.NAME_TAKEN)
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    if model is None:
        raise UnconvertibleError(Reason.NOT_A_KERNEL)
    _call_the_extension(model)
    model.name = "ModelNew"
    needed = _needed(tree, model)
    imports = [node for node in needed if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in needed if not isinstance(node, ast.Import | ast.ImportFrom)]
    return _Host(tuple(map(ast.unparse, imports)), tuple(map(ast.unparse, others)), ast.unparse(model))


def _call_the_extension(model: ast.ClassDef) -> None:
    """Take the parameter `fn` from `forward`, and put the extension's function where it was used."""
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    if forward is None or not forward.args.args or forward.args.args[-1].arg != "fn" or not forward.args.defaults:
        raise UnconvertibleError(Reason.NOT_A_KERNEL)
    forward.args.args.pop()
    forward.args.defaults.pop()
    uses = [node for node in ast.walk(forward) if isinstance(node, ast.Name) and node.id == "fn"]
    calls = [node.func for node in ast.walk(forward) if isinstance(node, ast.Call)]
    if not uses or any(use not in calls for use in uses) or any(arg.arg == "fn" for arg in _arguments(forward)):
        raise UnconvertibleError(Reason.NOT_A_KERNEL)
    for node in ast.walk(forward):
        if isinstance(node, ast.Call) and node.func in uses:
            node.func = ast.Attribute(ast.Name(_EXTENSION, ast.Load()), "forward", ast.Load())
    for node in ast.walk(model):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"


def _needed(tree: ast.Module, model: ast.ClassDef) -> list[ast.stmt]:
    """Return the statements of the module that define what the class uses, or what those use, in their order."""
    by_name: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _defined(node):
            by_name.setdefault(name, []).append(node)
    found: set[ast.stmt] = {model}
    waiting: list[ast.stmt] = [model]
    while waiting:
        used = _used(symtable.symtable(ast.unparse(waiting.pop()), "", "exec"))
        for node in (node for name in used for node in by_name.get(name, [])):
            if node not in found:
                found.add(node)
                waiting.append(node)
    return [node for node in tree.body if node in found and node is not model]


def _used(table: symtable.SymbolTable) -> set[str]:
    """Return the names of the module that a statement uses. A parameter is none, though constants bear its name too."""
    outside = table.get_type() == "module"
    used = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (outside or symbol.is_global())
    }
    return used.union(*map(_used, table.get_children()))


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines; compound statements count with all that they assign."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _names(tree: ast.Module) -> set[str]:
    """Return every name in a module, attributes apart."""
    names = {argument.arg for argument in _arguments(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.stmt):
            names |= _defined(node)
    return names


def _arguments(tree: ast.AST) -> list[ast.arg]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.arg)]


def _literal(code: str) -> str:
    """Return a literal of the code between two newlines: raw and readable if a raw one can say it."""
    content = "\n" + code.strip("\n") + "\n"
    raw = f'r"""{content}"""'
    try:
        return raw if ast.literal_eval(raw) == content else repr(content)
    except _UNPARSABLE:
        return repr(content)


@functools.lru_cache(maxsize=1024)
def _is_problem(source: str) -> bool:
    try:
        check_problem_source(source, "")
    except InputError:
        return False
    return True


def _runtime(row: Row) -> float | None:
    value = row.values.get("CUDA_Runtime")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InputError(f"{row.where}: column `CUDA_Runtime`: expected a number or null, found {shown(value)}")
    return None if value is None or not math.isfinite(value) or value <= 0 else float(value)
