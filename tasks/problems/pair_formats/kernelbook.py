"""KernelBook's columns: scraped modules and the kernels that Inductor compiled them to.

The class named by `entry_point` becomes `Model`, its counterpart `<name>New` becomes `ModelNew`, and constructor
arguments given as `[[positional], {keyword}]` become a flat list of positional ones, as KernelBench expects; nothing
else changes.
"""

import ast
import io
import keyword
import tokenize

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from kernels_eval.syntax import syntax_tree
from tasks.problems.pair_formats.pair import Pair, Reason, UnconvertibleError, needed
from tasks.problems.row import Row

COLUMNS = ("python_code", "triton_code", "entry_point")


def pair_of(row: Row) -> Pair:
    """Return the row's pair; UnconvertibleError says why there is none, InputError that a column holds no text."""
    problem, kernel = convert(*(needed(row, column) for column in COLUMNS))
    return Pair(problem_source=problem, kernel_source=kernel)


def convert(python_code: str, triton_code: str, entry_point: str) -> tuple[str, str]:
    """Return (problem source, kernel source); raises UnconvertibleError."""
    problem = convert_problem(python_code, entry_point)
    return problem, _renamed(triton_code, f"{entry_point}New", "ModelNew", Reason.NOT_A_KERNEL)


def convert_problem(python_code: str, entry_point: str) -> str:
    """Return the problem alone; raises UnconvertibleError."""
    if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
        raise UnconvertibleError(Reason.NOT_A_PROBLEM)
    problem = _renamed(python_code, entry_point, "Model", Reason.NOT_A_PROBLEM)
    problem = _with_positional_arguments(problem)
    try:
        check_problem_source(problem, "KernelBook row")
    except InputError as error:
        raise UnconvertibleError(Reason.NOT_A_PROBLEM) from error
    return problem


def _renamed(source: str, old: str, new: str, missing: Reason) -> str:
    """Return the source with the class `old` renamed to `new`, except where the name is an attribute."""
    tree = _parsed(source, missing)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if old not in classes:
        raise UnconvertibleError(missing)
    if old == new:
        return source
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    names = [(index, token) for index, token in enumerate(tokens) if token.type == tokenize.NAME]
    if any(token.string == new for _, token in names):
        raise UnconvertibleError(Reason.NAME_TAKEN)
    lines = source.splitlines(keepends=True)
    for index, token in reversed(names):
        # `module.Name` is an attribute of something else.
        if token.string == old and tokens[index - 1].string != ".":
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + new + lines[row - 1][column + len(old) :]
    renamed = "".join(lines)
    _parsed(renamed, missing)
    return renamed


def _with_positional_arguments(problem: str) -> str:
    """Return the problem with a `get_init_inputs` that returns a flat list; unchanged if it does already."""
    tree = _parsed(problem, Reason.NOT_A_PROBLEM)
    returned = _returned_by(tree, "get_init_inputs")
    if not (isinstance(returned, ast.List | ast.Tuple) and len(returned.elts) == 2):
        return problem
    positional, keywords = returned.elts
    if not (isinstance(positional, ast.List | ast.Tuple) and isinstance(keywords, ast.Dict)):
        return problem
    given = [_text(problem, element) for element in positional.elts]
    named: dict[str, str] = {}
    for key, value in zip(keywords.keys, keywords.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise UnconvertibleError(Reason.CONSTRUCTOR)
        named[key.value] = _text(problem, value)
    arguments = given + _in_order(tree, len(given), named) if named else given
    return _replaced(problem, returned, f"[{', '.join(arguments)}]")


def _in_order(tree: ast.Module, given: int, named: dict[str, str]) -> list[str]:
    """Return the keyword arguments as the positional ones that follow the first `given`; gaps get their defaults."""
    parameters = _constructor_parameters(tree)[given:]
    last = max((index for index, (name, _) in enumerate(parameters) if name in named), default=-1)
    if set(named) - {name for name, _ in parameters}:
        raise UnconvertibleError(Reason.CONSTRUCTOR)
    arguments = [named.get(name, default) for name, default in parameters[: last + 1]]
    if None in arguments:
        raise UnconvertibleError(Reason.CONSTRUCTOR)
    return [argument for argument in arguments if argument is not None]


def _constructor_parameters(tree: ast.Module) -> list[tuple[str, str | None]]:
    """Return (name, default) of what `Model` can be given by position; an inherited constructor is looked up."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    name: str | None = "Model"
    visited: set[str] = set()
    while name is not None and name in classes and name not in visited:
        visited.add(name)
        node = classes[name]
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                parameters = [argument.arg for argument in (*method.args.posonlyargs, *method.args.args)]
                defaults = [ast.unparse(default) for default in method.args.defaults]
                padded = [None] * (len(parameters) - len(defaults)) + defaults
                return list(zip(parameters, padded, strict=True))[1:]
        base = node.bases[0] if node.bases else None
        name = base.id if isinstance(base, ast.Name) else None
    raise UnconvertibleError(Reason.CONSTRUCTOR)


def _returned_by(tree: ast.Module, function: str) -> ast.expr | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            statements = [statement for statement in node.body if isinstance(statement, ast.Return)]
            return statements[0].value if len(statements) == 1 else None
    return None


def _parsed(source: str, reason: Reason) -> ast.Module:
    try:
        return syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnconvertibleError(reason) from error


def _text(source: str, node: ast.expr) -> str:
    return ast.get_source_segment(source, node) or ast.unparse(node)


def _replaced(source: str, node: ast.expr, text: str) -> str:
    """Return the source with one expression replaced; positions of the syntax tree count UTF-8 bytes."""
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before = b"".join(lines[:first]) + lines[first][: node.col_offset]
    after = lines[last][node.end_col_offset :] + b"".join(lines[last + 1 :])
    return (before + text.encode() + after).decode()
