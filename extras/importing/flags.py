"""Settings in a launch script or YAML file of another trainer, by name. Nothing is executed.

Of a shell script: `--name value` and `--name=value` in arrays (`GRPO_ARGS=( … )`) and after `python`, and hydra's
`a.b.c=value`. Variables that the script itself sets are filled in, `${NAME:-default}` too. What depends on anything
else (the environment, a command's output, a sourced file) is not known.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kernels_eval.errors import InputError

_MOST_BYTES = 2**20
_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_HYDRA = re.compile(r"^[+~]{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?-([^{}]*))?\}|([A-Za-z_]\w*))")
_NEGATIVE = re.compile(r"^-[\d.]")
_PROGRAM = re.compile(r"(?:^|/)(?:python[\d.]*|torchrun|accelerate|trl|deepspeed)$")
_SEPARATORS = {"\n", ";", "&&", "||", "|", "&"}


class Found(NamedTuple):
    """Settings of a file."""

    values: dict[str, Any]
    """By foreign name: a text, a list of texts, or of YAML any scalar or list. A flag without a value is `""`."""
    unknown: dict[str, str]
    """Names whose value is not known from the file alone, with the reason."""


def read_settings(file: Path) -> Found:
    """Return the settings of a script or YAML file. Raises InputError if it is neither, or has none."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file}: expected a script or YAML file of at most {_MOST_BYTES} bytes")
        content = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: expected a script or YAML file of UTF-8 text") from error
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    found = _of_yaml(file, content) if file.suffix in (".yaml", ".yml") else _of_script(file, content)
    if not found.values and not found.unknown:
        raise InputError(f"{file}: expected flags such as --lr 1e-6, algorithm.gamma=1 or YAML settings, found none")
    return found


def _of_yaml(file: Path, content: str) -> Found:
    try:
        loaded = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise InputError(f"{file}: expected a mapping of settings, found {type(loaded).__name__}")
    values, unknown = dict[str, Any](), dict[str, str]()
    for name, value in _flat(loaded):
        if isinstance(value, str) and "${" in value:
            unknown[name] = "its value refers to another setting"
        elif value is not None:
            values[name] = value
    return Found(values, unknown)


def _flat(values: dict[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and depth < 20:
            yield from _flat(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _of_script(file: Path, content: str) -> Found:
    variables = dict[str, str]()
    values, unknown = dict[str, Any](), dict[str, str]()

    def note(name: str, given: list[str]) -> None:
        filled = [_filled(part, variables) for part in given]
        missing = next((part for part in filled if "$" in part or "`" in part), None)
        values.pop(name, None)
        unknown.pop(name, None)
        if missing is not None:
            named = [found[1] or found[3] for found in _VARIABLE.finditer(missing)]
            needed = ", ".join(named) or "the output of a command"
            unknown[name] = f"its value needs {needed}, which the file does not set"
        else:
            values[name] = filled[0] if len(filled) == 1 else filled if filled else ""

    is_array = is_program = False
    is_new_line = True
    name, given = "", list[str]()
    for word in _words(file, content):
        ends = word in _SEPARATORS or word == ")" or (word.startswith("-") and not _NEGATIVE.match(word))
        # A new line ends no flag of an array.
        if name and ends and not (word == "\n" and is_array):
            note(name, given)
            name, given = "", []
        if word == ")":
            is_array = False
        elif word in _SEPARATORS:
            is_program = False
        elif word.endswith("=(") or word == "=(":
            is_array = True
        elif not is_array and not is_program and (assigned := _ASSIGNED.match(word)):
            variables[assigned[1]] = _filled(assigned[2], variables)
        elif not is_array and _PROGRAM.search(word):
            is_program = True
        elif (is_array or is_program or is_new_line) and word.startswith("--") and len(word) > 2:
            name, equals, value = word.removeprefix("--").partition("=")
            given = [value] if equals else []
            is_program = not is_array  # a line may have flags alone
        elif (is_array or is_program) and (hydra := _HYDRA.match(word)):
            note(hydra[1], [hydra[2]])
        elif name and not word.endswith(("[@]}", "[*]}")):  # an array's flags are read where it is set
            given.append(word)
        is_new_line = word in _SEPARATORS
    if name:
        note(name, given)
    return Found(values, unknown)


def _words(file: Path, content: str) -> Iterator[str]:
    """Yield the words of a script without comments; a line's end is a word, and so is an array's end."""
    lexer = shlex.shlex(re.sub(r"\\\r?\n", " ", content), posix=True, punctuation_chars="\n;")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    try:
        for word in lexer:
            if set(word) <= {"\n", ";"}:
                yield "\n"
            elif word != ")" and word.endswith(")") and "(" not in word:
                yield word.removesuffix(")")
                yield ")"
            elif (begin := word.partition("=("))[1] and begin[0].isidentifier() and begin[2]:
                yield f"{begin[0]}=("
                yield begin[2].removesuffix(")")
                if begin[2].endswith(")"):
                    yield ")"
            else:
                yield word
    except ValueError as error:
        raise InputError(f"{file}: not a shell script: {str(error).lower()}") from error


def _filled(word: str, variables: dict[str, str]) -> str:
    """Return a word with the values of the variables that are known."""

    def value(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        return variables.get(name, found[0] if default is None else default)

    return _VARIABLE.sub(value, word)
