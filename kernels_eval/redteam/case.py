"""One red-team case: a file with a problem, a candidate and the verdict that is expected. Imports nothing heavy.

A case is a Python file: a docstring, the problem (`Model`, `get_inputs`, `get_init_inputs`), the line
`# --- candidate ---` and the candidate (`ModelNew` and its kernels), each part with its own imports. The docstring's
first line is the name of the case, a phrase on what it tests. Its last paragraph has one field a line:

    expect: refused           statuses the verdict may have, joined by ` or `; `refused`: any status of a wrong kernel
    settings: policy=mixed    optional: settings of the judge for this case, separated by commas
    most_speedup: 2.95        optional: a verdict that states a larger speed-up is a miss
"""

import ast
import re
from pathlib import Path

from kernels_eval.config import JudgeConfig, with_settings
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import check_problem_source, split_source
from kernels_eval.verdict import Status

HONEST = "honest"
REFUSED = (Status.INCORRECT, Status.REJECTED, Status.RUNTIME_ERROR, Status.COMPILE_ERROR, Status.TIMEOUT)
_FIELDS = ("expect", "settings", "most_speedup")
_SETTINGS_LINE = re.compile(r"^settings:(.*)$", re.MULTILINE)


class Case(FrozenModel):
    """A candidate for a problem, and the verdict that is expected."""

    name: str
    kind: str
    """Class of the hack (the title of its folder's README.md), or `honest`."""
    path: Path
    problem: str
    kernel: str
    expected: tuple[Status, ...]
    """Statuses that the verdict may have."""
    settings: dict[str, str]
    """Settings of the judge for this case alone."""
    most_speedup: float | None
    """The largest speed-up that the verdict may state."""

    @property
    def is_honest(self) -> bool:
        """True if the kernel has to be found correct."""
        return self.kind == HONEST

    @property
    def group(self) -> str:
        """Class of the hack, or the folder of the honest kernel: cases are counted by it."""
        return self.path.parent.name if self.is_honest else self.kind


def read_case(path: Path, kind: str) -> Case:
    """Read a case file; raises InputError, naming file and field, if it is malformed."""
    where = str(path)
    problem, kernel = split_source(path.read_text(encoding="utf-8"), where)
    check_problem_source(problem, where)
    name, fields = _header(problem, where)
    return Case(
        name=name,
        kind=kind,
        path=path,
        problem=problem,
        kernel=kernel,
        expected=_statuses(fields.get("expect", ""), where),
        settings=read_settings(problem, where),
        most_speedup=_speedup(fields.get("most_speedup"), where),
    )


def read_settings(problem: str, where: str) -> dict[str, str]:
    """Return the settings that a problem's docstring states; raises InputError if the judge refuses them."""
    line = _SETTINGS_LINE.search(_docstring(problem))
    parts = [part.partition("=") for part in line[1].split(",")] if line else []
    settings = {name.strip(): value.strip() for name, _, value in parts}
    try:
        with_settings(JudgeConfig(), None, settings)
    except InputError as error:
        raise InputError(f"{where}: settings: {error}") from error
    return settings


def _header(problem: str, where: str) -> tuple[str, dict[str, str]]:
    """Return the name of the case and its fields."""
    name, *rest = _docstring(problem).split("\n\n")
    if not rest:
        raise InputError(f"{where}: docstring: expected a name, an empty line and `expect: …`, found {name!r}")
    fields: dict[str, str] = {}
    for line in rest[-1].splitlines():
        field, _, value = line.partition(":")
        if field not in _FIELDS or field in fields:
            raise InputError(f"{where}: docstring: expected {', '.join(_FIELDS)}, once each, found {line!r}")
        fields[field] = value.strip()
    return name, fields


def _statuses(text: str, where: str) -> tuple[Status, ...]:
    words = text.split(" or ")
    if not {"refused", *Status}.issuperset(words):
        raise InputError(f"{where}: expect: expected refused or statuses of a verdict, found {text!r}")
    return tuple(status for word in words for status in (REFUSED if word == "refused" else (Status(word),)))


def _speedup(text: str | None, where: str) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise InputError(f"{where}: most_speedup: expected a number, found {text!r}") from error


def _docstring(source: str) -> str:
    return ast.get_docstring(ast.parse(source)) or ""
