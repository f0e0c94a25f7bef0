"""A problem in KernelBench's format, its digest, what can be read from its source, and a small example.

A problem is Python source: a module with a class `Model` (an `nn.Module`), `get_inputs()` returning the list of forward
arguments and `get_init_inputs()` returning the list of constructor arguments. A candidate is Python source that defines
`ModelNew` with the same constructor and forward arguments. One file may hold both: the problem, the line
`# --- candidate ---`, the candidate; each part is complete, with its own imports.
"""

import ast
import hashlib
from functools import lru_cache
from typing import Any

from pydantic import field_validator

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.syntax import syntax_tree
from kernels_eval.workloads import workloads_of

_UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Exceptions of ast.parse: ValueError for lone surrogates, the last two for source that is nested too deeply."""
REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
CANDIDATE_LINE = "# --- candidate ---"
"""Separates problem and candidate in a file that holds both."""


def without_mark(source: str) -> str:
    """Return a source without the byte order mark that editors put before it; Python skips it in a file."""
    return source.removeprefix("\ufeff")


class Problem(FrozenModel):
    """One problem: a reference program to be replaced by a faster one."""

    problem_id: str
    source: str
    level: int = 1
    """KernelBench's level: 1 one operator, 2 a fused chain, 3 a block."""
    family: str = ""
    name: str = ""

    @field_validator("source")
    @classmethod
    def _is_text(cls, value: str) -> str:
        return without_mark(value)

    @property
    def digest(self) -> str:
        """SHA-256 (16 hex digits) of the normalised source: comments, layout and docstrings do not count."""
        return _digest(self.source)


@lru_cache(maxsize=64)
def _digest(source: str) -> str:
    """Return the digest of a problem's source: kernels of one problem come together, and parsing it takes a while."""
    return hashlib.sha256(normalise_source(source).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def normalise_source(source: str) -> str:
    """Return the source as its syntax tree prints it, without docstrings; stripped if it does not parse."""
    try:
        tree = syntax_tree(source)
    except _UNPARSABLE:
        return source.strip()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    try:
        return ast.unparse(tree)
    except RecursionError:
        return source.strip()


def parsed(source: str, where: str) -> ast.Module:
    """Return the syntax tree of a source. Raises InputError, naming `where`, if it is not Python."""
    try:
        return syntax_tree(without_mark(source))
    except SyntaxError as error:
        place = f" (line {error.lineno})" if error.lineno else ""
        raise InputError(f"{where}: not Python: {error.msg}{place}") from error
    except _UNPARSABLE as error:
        raise InputError(f"{where}: not Python: {type(error).__name__}") from error


def check_problem_source(source: str, where: str) -> None:
    """Raise InputError, naming `where`, unless `source` parses and defines the three names of KernelBench's format."""
    tree = parsed(source, where)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    missing = [name for name in REQUIRED_NAMES if name not in defined]
    if missing:
        expected = f"expected a KernelBench problem that defines {', '.join(REQUIRED_NAMES)}"
        raise InputError(f"{where}: {expected}; missing: {', '.join(missing)}")
    workloads_of(without_mark(source), where)


def split_source(text: str, where: str) -> tuple[str, str]:
    """Return (problem source, candidate source) of a file with both. Raises InputError, naming `where`, if not."""
    lines = text.split("\n")
    marks = [index for index, line in enumerate(lines) if line.rstrip() == CANDIDATE_LINE]
    if len(marks) != 1:
        raise InputError(
            f"{where}: expected one line `{CANDIDATE_LINE}` between problem and candidate, found {len(marks)}"
        )
    problem, candidate = lines[: marks[0]], lines[marks[0] + 1 :]
    return "\n".join(problem).rstrip("\n") + "\n", "\n".join(candidate).lstrip("\n")


def literal_init_inputs(source: str) -> list[Any]:
    """Return what `get_init_inputs` returns if that is a list of constants, read without running anything; else []."""
    tree = syntax_tree(source)
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            _note_constants(node, constants)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            last = node.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.List):
                try:
                    return [_constant(item, constants) for item in last.value.elts]
                except (ValueError, KeyError):
                    return []
    return []


def _note_constants(node: ast.Assign, constants: dict[str, Any]) -> None:
    try:
        value = ast.literal_eval(node.value)
    except ValueError:
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            constants[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
            names = [name.id for name in target.elts if isinstance(name, ast.Name)]
            constants.update(zip(names, value, strict=False))


def _constant(node: ast.expr, constants: dict[str, Any]) -> Any:
    return constants[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


EXAMPLE_PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        x = torch.sigmoid(torch.relu(x) * 2.0 + torch.exp(x))
        return x / (x.sum(dim=1, keepdim=True) + x.amax(dim=1, keepdim=True))

def get_inputs():
    return [torch.randn(1024, 16)]

def get_init_inputs():
    return []
"""
"""A small problem."""

EXAMPLE_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.sigmoid(tl.maximum(x, 0.0) * 2.0 + tl.exp(x))
    y = tl.sum(x, axis=1)[:, None] + tl.max(x, axis=1)[:, None]
    tl.store(out_ptr + rows * N + cols, x / y, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 4),)](x, out, x.shape[0], x.shape[1], ROWS=4, BLOCK=16)
        return out
"""
"""A correct kernel for it that works on tiles of rows, as many candidates do: warms zygotes up, and probes workers."""
