"""Pairs as `{"input": …, "output": …}`: what an agent is shown, and the kernel that it answers.

Alpaca's `instruction` may stand beside them, and hold the problem instead of `input`.

`output` is an answer with a kernel, Python that defines `ModelNew`. `input` is one of these:

- a text (tasks.problems.pair_formats.conversation): a problem in KernelBench's format, as it is, in a fenced block or
  behind words; for the optimizer, with a second fenced block that has the earlier kernel (either comes first);
- an object with `problem`, for the optimizer also with `kernel` (the earlier one, which may be wrong), and optionally
  `issues` (a list of texts about that kernel) and `target_speedup` (a number above 0).

Other columns, other fields of the object and the text around the code are left out, as are `issues` and
`target_speedup` after a check: what the agent is shown is written anew, as in rollouts, and its issues are those that
the judge finds in the earlier kernel. Whether the pair is used is for the judge to say too. An InputError names file,
line and field of everything else. An operation by name and a bare `__global__` kernel are read as
tasks.problems.pair_formats.bare_cuda says.
"""

import math
import re
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from tasks.answers.kernel import extract_kernel
from tasks.answers.reasoning import reasoning_of
from tasks.problems.pair_formats.bare_cuda import OPERATION_KEYS, bare_kernel_in, problem_of, wrapped
from tasks.problems.pair_formats.conversation import Said, kernel_for, kernel_in, pair_from, problem_in
from tasks.problems.pair_formats.pair import Pair, needed
from tasks.problems.row import Row, shown

COLUMNS = ("input", "output")
KEYS = ("problem", "kernel", "issues", "target_speedup")
_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)


def pair_of(row: Row) -> Pair:
    """Return the row's pair; InputError names the row, the field, what was found and what was expected."""
    given, instruction = row.values.get("input"), row.values.get("instruction")
    answer = needed(row, "output")
    texts = [text for text in (instruction, given) if isinstance(text, str)]
    if texts and not isinstance(given, dict):
        said = [*(Said(answers=False, text=text) for text in texts), Said(answers=True, text=answer)]
        pair = pair_from(row, "output", said)
    elif isinstance(given, dict):
        # Tables fill the fields that a row leaves out with null.
        problem, earlier = _from_object(row.where, {key: value for key, value in given.items() if value is not None})
        kernel = kernel_for(answer, problem, f"{row.where}: field `output`")
        if kernel is None:
            raise InputError(
                f"{row.where}: field `output`: expected a kernel that defines ModelNew, found {shown(answer)}"
            )
        pair = Pair(
            problem_source=problem, kernel_source=kernel, earlier_source=earlier, reasoning=reasoning_of(answer)
        )
    else:
        raise InputError(
            f"{row.where}: field `input`: expected text or an object with {', '.join(KEYS)}, found {shown(given)}"
        )
    if pair.earlier_source is not None and not _is_unicode(pair.earlier_source):
        raise InputError(f"{row.where}: field `input`: expected a kernel of Unicode text, found a lone surrogate in it")
    return pair


def _from_object(where: str, given: dict[str, Any]) -> tuple[str, str | None]:
    """Return (problem, earlier kernel or None)."""
    named = None if "problem" in given else problem_of(given, f"{where}: field `input`")
    if "problem" not in given and named is None:
        raise InputError(
            f"{where}: field `input`: expected the keys problem (or {', '.join(OPERATION_KEYS)}) and optionally "
            f"kernel, issues, target_speedup; found {', '.join(given) or 'none'}"
        )
    text = named or _text(f"{where}: field `input.problem`", given["problem"])
    problem = problem_in(text) or text
    check_problem_source(problem, f"{where}: field `input.problem`")
    if "kernel" not in given and "issues" in given:
        raise InputError(f"{where}: field `input.issues`: expected a `kernel` that has them beside it, found none")
    _check_issues(f"{where}: field `input.issues`", given.get("issues", []))
    _check_target(f"{where}: field `input.target_speedup`", given.get("target_speedup", 1))
    if "kernel" not in given:
        return problem, None
    text = _text(f"{where}: field `input.kernel`", given["kernel"])
    # A kernel to mend need not parse.
    bare = bare_kernel_in(text)
    if bare is not None and not kernel_in(text):
        return problem, wrapped(bare, problem, f"{where}: field `input.kernel`")
    kernel = kernel_in(text) or (extract_kernel(text) if "```" in text else None) or text
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


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: expected text, found {shown(value)}")
    return value


def _is_unicode(text: str) -> bool:
    """Tell whether a text can be written: JSON's escapes can say half a character. Python source that parses can be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
