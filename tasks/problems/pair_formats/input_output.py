"""Pairs as `{"input": …, "output": …}`: what an agent is shown, and the kernel that it answers.

`output` is a kernel: Python source that defines `ModelNew`. `input` is one of these:

- for the generator, the text of a problem in KernelBench's format, as it is or as the only fenced block of a text; or
  an object `{"problem": source}`;
- for the optimizer, a text with two fenced blocks, one with the problem and one with the earlier kernel (either comes
  first); or an object with `problem`, `kernel` (the earlier one, which may be wrong), and optionally `issues` (a list
  of texts about that kernel) and `target_speedup` (a number above 0).

A source in an object, and `output`, is the source as it is, or in one fenced block with nothing around it. Text around
the blocks of `input`, `issues` and `target_speedup` are checked and then left out: what the agent is shown is written
anew, as in rollouts, and its issues are those that the judge finds in the earlier kernel. Whether the pair is used is
for the judge to say too. Everything else is an InputError that names file, line and field: other fields; a description
without a program (operation, shapes, dtype), which nothing could be judged against.
"""

import ast
import math
import re
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from tasks.problems.pair_formats.fences import fenced
from tasks.problems.pair_formats.pair import Pair, needed
from tasks.problems.row import Row, shown

COLUMNS = ("input", "output")
KEYS = ("problem", "kernel", "issues", "target_speedup")
_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)
_PROBLEM = "a KernelBench problem that defines Model, get_inputs, get_init_inputs"


def pair_of(row: Row) -> Pair:
    """Return the row's pair; InputError names the row, the field, what was found and what was expected."""
    if others := [name for name in row.found if name not in COLUMNS]:
        raise InputError(f"{row.where}: expected the fields input and output alone, found also {', '.join(others)}")
    given = row.values["input"]
    if isinstance(given, str):
        problem, earlier = _from_text(f"{row.where}: field `input`", given)
    elif isinstance(given, dict):
        # Tables fill the fields that a row leaves out with null.
        problem, earlier = _from_object(row.where, {key: value for key, value in given.items() if value is not None})
    else:
        raise InputError(
            f"{row.where}: field `input`: expected text or an object with {', '.join(KEYS)}, found {shown(given)}"
        )
    if earlier is not None and not _is_unicode(earlier):
        raise InputError(f"{row.where}: field `input`: expected a kernel of Unicode text, found a lone surrogate in it")
    where = f"{row.where}: field `output`"
    kernel = _source(where, needed(row, "output"))
    _check_kernel(where, kernel)
    return Pair(problem_source=problem, kernel_source=kernel, earlier_source=earlier)


def _from_text(where: str, text: str) -> tuple[str, str | None]:
    """Return (problem, earlier kernel or None)."""
    fault = _problem_fault(text)
    if fault is None:
        return text, None
    blocks = fenced(text).blocks
    if not blocks:
        raise InputError(f"{where}: expected {_PROBLEM}, as it is or in a fenced block; found text without: {fault}")
    problems = [block for block in blocks if _problem_fault(block) is None]
    kernels = [block for block in blocks if _MODEL_NEW.search(block)]
    if len(problems) != 1 or len(kernels) > 1 or len(blocks) != len(problems) + len(kernels):
        raise InputError(
            f"{where}: expected one fenced block with {_PROBLEM}, and at most one other, with a kernel that defines "
            f"ModelNew; found {', '.join(map(_kind, blocks))}"
        )
    return problems[0], kernels[0] if kernels else None


def _from_object(where: str, given: dict[str, Any]) -> tuple[str, str | None]:
    """Return (problem, earlier kernel or None)."""
    if "problem" not in given or set(given) - set(KEYS):
        raise InputError(
            f"{where}: field `input`: expected the keys problem and optionally kernel, issues, target_speedup; found "
            f"{', '.join(given) or 'none'}"
        )
    problem = _source(f"{where}: field `input.problem`", given["problem"])
    check_problem_source(problem, f"{where}: field `input.problem`")
    if "kernel" not in given and "issues" in given:
        raise InputError(f"{where}: field `input.issues`: expected a `kernel` that has them beside it, found none")
    _check_issues(f"{where}: field `input.issues`", given.get("issues", []))
    _check_target(f"{where}: field `input.target_speedup`", given.get("target_speedup", 1))
    if "kernel" not in given:
        return problem, None
    kernel = _source(f"{where}: field `input.kernel`", given["kernel"])
    # A kernel to mend need not parse.
    if not _MODEL_NEW.search(kernel):
        raise InputError(f"{where}: field `input.kernel`: expected source with a class ModelNew, found {shown(kernel)}")
    return problem, kernel


def _check_issues(where: str, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(issue, str) for issue in value):
        raise InputError(f"{where}: expected a list of texts, found {shown(value)}")


def _check_target(where: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise InputError(f"{where}: expected a number above 0, found {shown(value)}")


def _check_kernel(where: str, kernel: str) -> None:
    tree = _parsed(kernel)
    if isinstance(tree, str):
        raise InputError(f"{where}: expected the source of a kernel that defines ModelNew; found no Python: {tree}")
    if not any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
        raise InputError(
            f"{where}: expected the source of a kernel that defines ModelNew; found Python without that class"
        )


def _source(where: str, value: Any) -> str:
    """Return a source that is given as it is, or as one fenced block with nothing around it."""
    if not isinstance(value, str):
        raise InputError(f"{where}: expected text, found {shown(value)}")
    found = fenced(value)
    if len(found.blocks) == 1 and not found.around.strip():
        return found.blocks[0]
    # A docstring may hold a fence too.
    if (found.blocks or "```" in found.around) and isinstance(_parsed(value), str):
        raise InputError(
            f"{where}: expected source, as it is or in one fenced block with nothing around it; found "
            f"{len(found.blocks)} complete fenced blocks in {shown(value)}"
        )
    return value


def _parsed(source: str) -> ast.Module | str:
    """Return the syntax tree, or why there is none."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        return f"{error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return type(error).__name__


def _problem_fault(text: str) -> str | None:
    """Return why a text is no problem; None if it is one."""
    try:
        check_problem_source(text, "")
    except InputError as error:
        return str(error).removeprefix(": ")
    return None


def _is_unicode(text: str) -> bool:
    """Tell whether a text can be written: JSON's escapes can say half a character. Python source that parses can be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(block: str) -> str:
    if _problem_fault(block) is None:
        return "a problem that defines ModelNew" if _MODEL_NEW.search(block) else "a problem"
    return "a kernel" if _MODEL_NEW.search(block) else f"neither ({shown(block)})"
