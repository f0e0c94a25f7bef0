"""Pairs of problem and kernel to imitate: KernelBook's columns or ours, from JSON Lines, Parquet or a dataset folder.

Ours: `problem_source`, `kernel_source`, optionally `pair_id`, `composition`, `style`, `level`; in the SFT stage's own
`pairs.parquet` only rows of kind `direct` are pairs. A bad row of ours is an InputError.

KernelBook (scraped modules and the kernels that Inductor compiled them to): `python_code`, `triton_code`,
`entry_point`. The class named by `entry_point` becomes `Model`, its counterpart `<name>New` becomes `ModelNew`, and
constructor arguments given as `[[positional], {keyword}]` become a flat list of positional ones, as KernelBench
expects; nothing else changes. A row that cannot be converted is dropped and counted by reason.
"""

import ast
import hashlib
import io
import keyword
import logging
import tokenize
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import check_problem_source, normalise_source
from tasks.problems.loaders import read_dataset_folder, read_jsonl, read_parquet
from tasks.problems.row import Row, text

_log = logging.getLogger(__name__)

KERNELBOOK_COLUMNS = ("python_code", "triton_code", "entry_point")
OWN_COLUMNS = ("problem_source", "kernel_source")
_OPTIONAL = ("pair_id", "composition", "style", "kind")
_WANTED = frozenset({*KERNELBOOK_COLUMNS, *OWN_COLUMNS, *_OPTIONAL})
_DUPLICATE = "duplicate"
_NOT_DIRECT = "not_direct"


class Pair(FrozenModel):
    """A problem and a kernel for it, not judged yet."""

    pair_id: str
    """Unique in its corpus; derived from the content if the source gives none."""
    problem_source: str
    """In KernelBench's format."""
    kernel_source: str
    """Defines `ModelNew`."""
    composition: str = ""
    style: str = ""


def load_pairs(path: Path) -> list[Pair]:
    """Return the distinct pairs of a file or folder; log the numbers of dropped rows by reason.

    Reasons: `Reason`, `duplicate`, `not_direct`. Raises InputError if there is no pair, or a row of ours is bad.
    """
    pairs: dict[str, Pair] = {}
    dropped: Counter[str] = Counter()
    contents: set[str] = set()
    for row in _rows(path):
        try:
            pair = _pair(row)
        except UnconvertibleError as error:
            dropped[error.reason] += 1
            continue
        if pair is None:
            dropped[_NOT_DIRECT] += 1
            continue
        content = _content_digest(pair)
        if content in contents:
            dropped[_DUPLICATE] += 1
            continue
        contents.add(content)
        pair = pair if pair.pair_id else pair.model_copy(update={"pair_id": f"pair_{content}"})
        if pair.pair_id in pairs:
            raise InputError(f"{row.where}: pair_id {pair.pair_id} occurs more than once with other content")
        pairs[pair.pair_id] = pair
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()))
    if not pairs:
        found = reasons or "the source is empty"
        raise InputError(f"{path}: expected pairs of problem and kernel, found none ({found})")
    if dropped:
        _log.warning("%s: %d pairs; dropped: %s", path, len(pairs), reasons)
    return list(pairs.values())


def _rows(path: Path) -> Iterator[Row]:
    if not path.exists():
        raise InputError(f"sft.data.path: {path}: no such file or folder")
    if path.is_dir():
        return read_dataset_folder(path, _WANTED)
    if path.suffix == ".parquet":
        return read_parquet(path, _WANTED)
    if path.suffix == ".jsonl":
        return read_jsonl(path, _WANTED)
    raise InputError(f"sft.data.path: {path}: expected a .jsonl or .parquet file or a Hugging Face dataset folder")


def _pair(row: Row) -> Pair | None:
    """Return the row's pair (`pair_id` empty if it has none), or None for a row of another kind."""
    if all(column in row.found for column in OWN_COLUMNS):
        if (text(row, "kind") or "direct") != "direct":
            return None
        problem, kernel = _needed(row, "problem_source"), _needed(row, "kernel_source")
        check_problem_source(problem, row.where)
    elif all(column in row.found for column in KERNELBOOK_COLUMNS):
        problem, kernel = convert(*(_needed(row, column) for column in KERNELBOOK_COLUMNS))
    else:
        raise InputError(
            f"{row.where}: expected the columns {', '.join(OWN_COLUMNS)} or {', '.join(KERNELBOOK_COLUMNS)}; "
            f"found {', '.join(row.found) or 'none'}"
        )
    optional = {name: text(row, name) or "" for name in ("pair_id", "composition", "style")}
    return Pair(problem_source=problem, kernel_source=kernel, **optional)


def _needed(row: Row, column: str) -> str:
    value = text(row, column)
    if value is None:
        raise InputError(f"{row.where}: column `{column}`: expected text, found null")
    return value


def _content_digest(pair: Pair) -> str:
    content = f"{normalise_source(pair.problem_source)}\0{normalise_source(pair.kernel_source)}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


class Reason(StrEnum):
    """Reason for dropping a KernelBook row."""

    NOT_A_PROBLEM = "not_a_problem"
    """The PyTorch side does not parse, or lacks the class, `get_inputs` or `get_init_inputs`."""
    NOT_A_KERNEL = "not_a_kernel"
    """The Triton side does not parse, or lacks the class `<entry_point>New`."""
    NAME_TAKEN = "name_taken"
    """The source already uses the name `Model` or `ModelNew` for something else."""
    CONSTRUCTOR = "constructor"
    """The constructor's arguments cannot be given by position."""


class UnconvertibleError(ValueError):
    """The row is not expressible in KernelBench's format."""

    def __init__(self, reason: Reason) -> None:
        """Keep the reason, which the loader counts by."""
        super().__init__(reason.value)
        self.reason = reason


def convert(python_code: str, triton_code: str, entry_point: str) -> tuple[str, str]:
    """Return (problem source, kernel source); raises UnconvertibleError."""
    if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
        raise UnconvertibleError(Reason.NOT_A_PROBLEM)
    problem = _renamed(python_code, entry_point, "Model", Reason.NOT_A_PROBLEM)
    problem = _with_positional_arguments(problem)
    try:
        check_problem_source(problem, "KernelBook row")
    except InputError as error:
        raise UnconvertibleError(Reason.NOT_A_PROBLEM) from error
    return problem, _renamed(triton_code, f"{entry_point}New", "ModelNew", Reason.NOT_A_KERNEL)


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
        return ast.parse(source)
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
