"""A problem in KernelBench's format, and the digest that names it.

A problem is Python source: a module with a class `Model` (an `nn.Module`), `get_inputs()` returning the list of forward
arguments and `get_init_inputs()` returning the list of constructor arguments. A candidate is Python source that defines
`ModelNew` with the same constructor and forward arguments. One file may hold both: the problem, the line
`# --- candidate ---`, the candidate; each part is complete, with its own imports.
"""

import ast
import hashlib

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel

_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What ast.parse raises: ValueError for lone surrogates, the last two for what is nested too deep."""
REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
CANDIDATE_LINE = "# --- candidate ---"
"""Separates problem and candidate in a file that holds both."""


class Problem(FrozenModel):
    """One problem: a reference program to be replaced by a faster one."""

    problem_id: str
    source: str
    level: int = 1
    """KernelBench's level: 1 one operator, 2 a fused chain, 3 a block."""
    family: str = ""
    name: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 (16 hex digits) of the normalised source: comments, layout and docstrings do not count."""
        return hashlib.sha256(normalise_source(self.source).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def normalise_source(source: str) -> str:
    """Return the source as its syntax tree prints it, without docstrings; source that does not parse is returned stripped."""
    try:
        tree = ast.parse(source)
    except _UNPARSABLE:
        return source.strip()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    try:
        return ast.unparse(tree)
    except RecursionError:
        return source.strip()


def check_problem_source(source: str, where: str) -> None:
    """Raise InputError, naming `where`, unless `source` parses and defines the three names of KernelBench's format."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise InputError(f"{where}: not Python: {error.msg} (line {error.lineno})") from error
    except _UNPARSABLE as error:
        raise InputError(f"{where}: not Python: {type(error).__name__}") from error
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    missing = [name for name in REQUIRED_NAMES if name not in defined]
    if missing:
        raise InputError(
            f"{where}: expected a KernelBench problem that defines {', '.join(REQUIRED_NAMES)}; missing: {', '.join(missing)}"
        )


def split_source(text: str, where: str) -> tuple[str, str]:
    """Return (problem source, candidate source) of a file that holds both; raises InputError, naming `where`, if it does not."""
    lines = text.split("\n")
    marks = [index for index, line in enumerate(lines) if line.rstrip() == CANDIDATE_LINE]
    if len(marks) != 1:
        raise InputError(
            f"{where}: expected one line `{CANDIDATE_LINE}` between problem and candidate, found {len(marks)}"
        )
    problem, candidate = lines[: marks[0]], lines[marks[0] + 1 :]
    return "\n".join(problem).rstrip("\n") + "\n", "\n".join(candidate).lstrip("\n")
