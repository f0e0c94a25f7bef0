"""Problems in folders of modules: a KernelBench checkout, folders by category, a folder a problem with `reference.py`.

A module is a problem of its own; where a folder has a `reference.py`, that is the problem and the folder its name. The
name of a folder above, `level1` or `level_1`, gives the level; the other folders below the path give the family, as in
MultiKernelBench (`reference/activation/elu.py` is of the family `activation`).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem, check_problem_source
from tasks.problems.row import Entry, derived_id

_LEVEL = re.compile(r"level_?(\d{1,9})")
_NUMBER = re.compile(r"(?:\D*_)?(\d+)(?:_|$)")
_REFERENCE = "reference.py"
_BELOW = ("", "KernelBench", "reference")
"""Folders of checkouts that hold the problems; the first is the path itself."""


def load_modules(path: Path) -> Iterator[Entry | InputError]:
    """Yield the problems below a path, and for a file that is none the InputError that names it.

    `level1/19_ReLU.py` and `level_1/19_ReLU/reference.py` become `level1_19_ReLU`, `activation/elu.py` becomes
    `activation_elu`. Order: level, family, number, name. Raises InputError if there are no modules.
    """
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder of KernelBench's modules, found a file")
    top = module_folder(path)
    if top is None:
        raise InputError(
            f"{path}: expected a KernelBench checkout with folders level1, level2, …, or modules in folders by "
            "category; found none"
        )
    for level, family, _, _, file in sorted(_placed(top)):
        yield _entry(file, level, family)


def module_folder(path: Path) -> Path | None:
    """Return the folder, of those that a checkout has, whose modules are read; None if there are no modules."""
    parents = [parent for name in _BELOW if (parent := path / name).is_dir()]
    for parent in parents:
        if level_of(parent.resolve().name) or any(level_of(child.name) for child in parent.iterdir() if child.is_dir()):
            return parent
    return next((parent for parent in reversed(parents) if _modules(parent)), None)


def level_of(name: str) -> int | None:
    """Return the level that a folder's name gives, as `level1` or `level_1` do; None for any other name."""
    match = _LEVEL.fullmatch(name)
    return int(match[1]) if match else None


def _placed(top: Path) -> Iterator[tuple[int, str, int, str, Path]]:
    """Yield (level, family, number, name, file) of each module; level 0: no folder gives one."""
    above = level_of(top.resolve().name)
    has_levels = any(level_of(child.name) for child in top.iterdir() if child.is_dir())
    for file in _modules(top):
        folders = file.relative_to(top).parts[: -2 if _is_reference(file, top) else -1]
        levels = [level for name in folders if (level := level_of(name))]
        if has_levels and not levels:
            continue  # scripts of a checkout, beside the folders of its levels
        family = "_".join(name for name in folders if not level_of(name))
        name = _name(file, top)
        number = _NUMBER.match(name)
        yield (levels or [above or 0])[-1], family, int(number[1]) if number else 0, name, file


def _modules(top: Path) -> list[Path]:
    found = [file for file in top.rglob("*.py") if file.name != "__init__.py"]
    visible = [file for file in found if not any(part[0] == "." for part in file.relative_to(top).parts)]
    references = {file.parent for file in visible if file.name == _REFERENCE and file.parent != top}
    return [file for file in visible if file.parent not in references or file.name == _REFERENCE]


def _is_reference(file: Path, top: Path) -> bool:
    return file.name == _REFERENCE and file.parent != top


def _name(file: Path, top: Path) -> str:
    return file.parent.name if _is_reference(file, top) else file.stem


def _entry(file: Path, level: int, family: str) -> Entry | InputError:
    name = file.parent.name if file.name == _REFERENCE else file.stem
    try:
        source = file.read_text(encoding="utf-8-sig")
        check_problem_source(source, str(file))
    except (OSError, UnicodeDecodeError) as error:
        return InputError(f"{file}: not readable as UTF-8 text: {error}")
    except InputError as error:
        return error
    parts = [f"level{level}" if level else "", family, name]
    problem_id = derived_id("_".join(part for part in parts if part))
    return Entry(
        problem=Problem(problem_id=problem_id, source=source, level=level or 1, name=name, family=family),
        where=str(file),
    )
