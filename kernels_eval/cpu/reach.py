"""CPU worker: refuses files that reach past their own program, into the judge or the parts of Python it works with.

The tracing process runs a candidate's host code beside the code that records it. Host code that gets hold of a
recorder, or replaces a function of Python's library that it calls, makes it send launches that the file does not make.
The worker cannot see this in what is sent. It reads it in the file: it has no use in a program that runs elsewhere.

Texts that are carried out, and names found, by functions of libraries: kernels_eval.sandbox.made_code.

Refused are the judge's own name; frames, closures, namespaces and referrers of other code; PyTorch's stacks of modes;
modules of Python's library other than to read their members, and those that another package has imported; patterns
that read attributes; names that are made while the program runs; `exec` and `getattr` under another name; what reads
and writes memory by its address, such as `ctypes`.
"""

import ast
import functools
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from kernels_eval.sandbox.guarded_names import REACHING, TABLES
from kernels_eval.trace.kernel_syntax import nodes_of

_BY_NAME = ("getattr", "setattr", "delattr")
_RUN = ("exec", "eval", "compile", "__import__", "import_module")
_IMPORTS = (
    "builtins", "code", "codeop", "importlib._bootstrap", "importlib.abc", "importlib.machinery",
    "inspect.stack", "inspect.trace", "jinja2", "string.Formatter", "sys.modules", "triton.runtime.interpreter",
    "unittest", "xmlrpc", "zipimport",
)  # fmt: skip
"""Modules, and members: they find objects by names or addresses that are made while the program runs, run texts, or
hand out frames."""
_FINDING = tuple(f"{name}." for name in _IMPORTS)
_OPEN = ("torch", "tl", "triton", "self", "F", "nn", "np", "math", "libdevice")
"""Objects whose members may be named at run time; what they lead to is guarded then (sandbox.guarded_names)."""
_LOOKED_AT = (
    ast.Attribute, ast.Call, ast.Compare, ast.Constant, ast.Import, ast.ImportFrom, ast.MatchClass, ast.Name,
)  # fmt: skip
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_FILES_KEPT = 16
_MOST_STEPS = 5_000_000
_SHORTEST_START = 2
_REACHING_WORDS = (*TABLES, *(word for word in re.findall(r"[a-z_]+", REACHING.pattern) if len(word) > _SHORTEST_START))
_FRAMES = re.compile(r"(f|tb|gi|cr|ag)_")

_Fixed = dict[str | int, tuple[str, ...]]
"""Texts by the name that stands for one of them; or by the identity of the place where the name stands."""


@functools.lru_cache(maxsize=_FILES_KEPT)
def reached(source: str) -> str | None:
    """Return what a file reaches for, with its line, or None. A file that is not Python reaches for nothing.

    Found once for the sessions of a candidate, which follow each other.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = [node for node in nodes_of(tree) if isinstance(node, _LOOKED_AT)]
    modules, members = dict(_library(nodes)), set(_members(nodes))
    bases = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    harmless = {id(part) for node in nodes for part in _asked_for_a_name(node)}
    no_values = {id(node.func) for node in nodes if isinstance(node, ast.Call)} | set(_parameters_in_use(tree))
    fixed = _fixed_texts(tree)
    for node in nodes:
        if id(node) in harmless:
            continue
        found = (
            _of_name(node)
            or _of_module(node, modules, members, bases)
            or _of_call(node, members, fixed)
            or _of_function(node, no_values)
            or _of_import(node)
        )
        if found is not None:
            return f"{found} (line {getattr(node, 'lineno', 0)})"
    return None


def _library(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names that imports give modules of Python's library, and the modules."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if top in sys.stdlib_module_names:
                    yield alias.asname or top, alias.name


def _members(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names that imports give members of modules of Python's library."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in sys.stdlib_module_names:
            yield from (alias.asname or alias.name for alias in node.names)


def _of_name(node: ast.AST) -> str | None:
    """Return a name, or a text that may serve as one, that leads to other code's objects."""
    if isinstance(node, ast.MatchClass):
        return "a pattern that reads attributes" if node.patterns or node.kwd_patterns else None
    if isinstance(node, ast.Attribute):
        is_of_type = isinstance(node.value, ast.Name) and node.value.id == "type"
        name = f"type.{node.attr}" if is_of_type else node.attr
    elif isinstance(node, ast.Name):
        name = node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
        name = node.value if node.value.strip() and " " not in node.value.strip() else ""
    else:
        return None
    found = REACHING.search(name)
    return found[0] if found else None


def _of_function(node: ast.AST, no_values: set[int]) -> str | None:
    """Return a function that takes a name or a program, and that may get another name here.

    `no_values`: names that are called, which `_of_call` looks at, and those of parameters.
    """
    if id(node) in no_values:
        return None
    if isinstance(node, ast.Attribute):
        return "import_module as a value" if node.attr == "import_module" else None
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    return f"{node.id} as a value" if node.id in (*_RUN, *_BY_NAME) else None


def _parameters_in_use(tree: ast.Module) -> Iterator[int]:
    """Yield the uses of parameters that are named as such a function is: `def __init__(self, compile=False)`."""
    nodes = nodes_of(tree)
    functions = {*_RUN, *_BY_NAME}.difference(*(node.names for node in nodes if isinstance(node, ast.Global)))
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            given = node.args
            own = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)} & functions
            inner = nodes_of(ast.Module(node.body, [])) if own else []
            yield from (id(part) for part in inner if isinstance(part, ast.Name) and part.id in own)


def _of_import(node: ast.AST) -> str | None:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
    found: list[str] = []
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module or ''}.{name}" for name in names]
        found = [f"the module {name} of another package" for name in names if _is_anothers(name)]
    found += [name for name in names if REACHING.search(name) or f"{name}.".startswith(_FINDING)]
    return found[0] if found else None


def _is_anothers(name: str) -> bool:
    """True for `package.module` where the module is of Python's library, and the package is not."""
    package, _, module = name.rpartition(".")
    return module in TABLES and package.partition(".")[0] not in sys.stdlib_module_names


def _of_module(node: ast.AST, modules: dict[str, str], members: set[str], bases: set[int]) -> str | None:
    """Return a module of Python's library that is changed, passed on, or asked for the table of all modules."""
    if isinstance(node, ast.Name) and node.id in modules and isinstance(node.ctx, ast.Load) and id(node) not in bases:
        return f"the module {modules[node.id]} as a value"
    if not isinstance(node, ast.Attribute):
        return None
    base, root = _root(node)
    if node.attr in TABLES and root != "self" and modules.get(root, root).partition(".")[0] not in TABLES:
        return f"the module {node.attr} of another package"
    if root in modules and f"{modules[root]}.{base.attr}" in _IMPORTS:
        return f"{modules[root]}.{base.attr}"
    is_read = isinstance(node.ctx, ast.Load)
    return None if is_read or root not in modules.keys() | members else f"{ast.unparse(node)} is replaced"


def _asked_for_a_name(node: ast.AST) -> list[ast.expr]:
    """Return the parts that name `sys.modules` where a file only asks whether a module is there, or for an absent one.

    `"torch._dynamo" in sys.modules`, `sys.modules.get("its_own_package.utils")`.
    """
    table = None
    parts: list[ast.expr] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        table = node.comparators[0] if isinstance(node.left, ast.Constant) else None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        top = name.partition(".")[0] if isinstance(name, str) else ""
        is_absent = top.isidentifier() and top not in sys.modules and importlib.util.find_spec(top) is None
        if is_absent:
            table = node.func.value
            parts.append(node.func)
    if not (isinstance(table, ast.Attribute) and table.attr == "modules" and isinstance(table.value, ast.Name)):
        return []
    return [*parts, table]


def _root(node: ast.Attribute) -> tuple[ast.Attribute, str]:
    """Return the innermost attribute of a chain, and the name before it; empty if it is no name."""
    while isinstance(node.value, ast.Attribute):
        node = node.value
    return node, node.value.id if isinstance(node.value, ast.Name) else ""


def _fixed_texts(tree: ast.Module) -> _Fixed:
    """Return the names that the file binds once, to a text or in turn to several, with the texts.

    In a comprehension, which has names of its own, the places where they stand.
    """
    nodes = nodes_of(tree)
    times = Counter(name for node in nodes for name in _bound(node))
    fixed: _Fixed = {}
    if "*" not in times:
        bindings = [
            (target, [node.value]) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
        ]
        bindings += [(node.target, _items(node.iter)) for node in nodes if isinstance(node, ast.For)]
        once = [(name.id, each) for name, each in bindings if isinstance(name, ast.Name) and times[name.id] == 1]
        fixed |= {name: texts for name, each in once if (texts := _texts(each))}
    comprehensions = [node for node in nodes if isinstance(node, _COMPREHENSIONS)]
    if len(comprehensions) * len(nodes) <= _MOST_STEPS:  # each is walked, and they may lie in each other
        for node in comprehensions:
            fixed |= _fixed_within(node)
    return fixed


def _fixed_within(node: ast.expr) -> _Fixed:
    """Return the places in a comprehension of names that take one text after the other, with the texts."""
    assert isinstance(node, _COMPREHENSIONS)
    inner = nodes_of(ast.Module([ast.Expr(node)], []))
    times = Counter(name for each in inner for name in _bound(each))
    outside = set(map(id, nodes_of(ast.Module([ast.Expr(node.generators[0].iter)], []))))
    found = {each.target.id: _texts(_items(each.iter)) for each in node.generators if isinstance(each.target, ast.Name)}
    names = (each for each in inner if isinstance(each, ast.Name) and id(each) not in outside)
    return {id(name): found[name.id] for name in names if found.get(name.id) and times[name.id] == 1}


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else []


def _texts(values: Sequence[ast.expr]) -> tuple[str, ...]:
    """Return the texts that expressions are; none if one is none."""
    texts = tuple(value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))
    return texts if len(texts) == len(values) else ()


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a part of a file may bind, whatever to."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.partition(".")[0]]
    return [value for field in ("name", "arg", "rest") if isinstance(value := getattr(node, field, None), str)]


def _of_call(node: ast.AST, members: set[str], fixed: _Fixed) -> str | None:
    """Return a function that is given a name, or a program, that is made while the file runs.

    `fixed`: names that stand for one text; the text itself is looked at wherever it is written.
    """
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    is_own = isinstance(node.func, ast.Name)
    if name in _RUN and (is_own or name == "import_module"):
        return f"{name} of a text"
    if name not in _BY_NAME or not is_own or len(node.args) < 2:
        return None
    of = node.args[0]
    root = _root(of)[1] if isinstance(of, ast.Attribute) else getattr(of, "id", "")
    if root in members and name != "getattr":
        return f"{name} of {root}"
    is_open = root in _OPEN and not (root == "self" and isinstance(of, ast.Attribute))
    is_fixed = isinstance(node.args[1], ast.Constant) or len(_of_fixed(node.args[1], fixed)) > 0
    starts = () if is_open or is_fixed else _starts(node.args[1], fixed)
    is_harmless = is_open or is_fixed or (len(starts) > 0 and not _may_reach(starts))
    return None if is_harmless else f"{name} of a name that is made at run time"


def _starts(name: ast.expr, fixed: _Fixed) -> tuple[str, ...]:
    """Return texts with one of which a name begins that is made at run time; none if they are not known.

    `f"weight_ih_l{layer}"`, `f"{kind}_l{layer}"`, `"weight_ih_l{}".format(layer)`.
    """
    match name:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return (text,)
        case ast.JoinedStr(values=[ast.FormattedValue(value=first, format_spec=None), *_]):
            return _of_fixed(first, fixed)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return (text.partition("{")[0],)
        case _:
            return ()


def _of_fixed(node: ast.expr, fixed: _Fixed) -> tuple[str, ...]:
    """Return the texts that a name may stand for; none if they are not known."""
    return fixed.get(id(node)) or fixed.get(node.id, ()) if isinstance(node, ast.Name) else ()


@functools.lru_cache(maxsize=256)
def _may_reach(starts: tuple[str, ...]) -> bool:
    """True if a name that begins with one of these may lead to other code's objects."""
    for start in starts:
        is_plain = len(start) > _SHORTEST_START and start[0].isalpha() and not _FRAMES.match(start)
        if not is_plain or any(word.startswith(start) or start.startswith(word) for word in _REACHING_WORDS):
            return True
    return False
