"""Problems of a KernelBench checkout: `level1/19_ReLU.py` becomes the problem `level1_19_ReLU` of level 1.

The path may be the checkout itself, its `KernelBench` folder, or one level's folder.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem, check_problem_source
from tasks.problems.loaders.entry import Entry

_LEVEL = re.compile(r"level(\d+)")
_NUMBERED = re.compile(r"(\d+)_")


def load_checkout(path: Path) -> Iterator[Entry]:
    """Yield the problems in the order of level, number and name; InputError names the file that is none."""
    if not path.is_dir():
        raise InputError(f"{path}: expected the folder of a KernelBench checkout, found a file")
    for level, folder in _level_folders(path):
        for file in sorted(folder.glob("*.py"), key=_order):
            if file.name == "__init__.py":
                continue
            try:
                source = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"{file}: not readable as UTF-8 text: {error}") from error
            check_problem_source(source, str(file))
            problem = Problem(problem_id=f"level{level}_{file.stem}", source=source, level=level, name=file.stem)
            yield Entry(problem=problem, where=str(file))


def _level_folders(path: Path) -> list[tuple[int, Path]]:
    for parent in (path, path / "KernelBench"):
        if not parent.is_dir():
            continue
        folders = [(match, child) for child in parent.iterdir() if (match := _LEVEL.fullmatch(child.name))]
        levels = sorted((int(match[1]), child) for match, child in folders if child.is_dir())
        if levels:
            return levels
    if match := _LEVEL.fullmatch(path.resolve().name):
        return [(int(match[1]), path)]
    raise InputError(f"{path}: expected a KernelBench checkout with folders level1, level2, …; found none")


def _order(file: Path) -> tuple[int, str]:
    match = _NUMBERED.match(file.stem)
    return (int(match[1]) if match else 0, file.stem)
