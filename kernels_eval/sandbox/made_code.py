"""Candidate's process: an audit hook reads what Python compiles, unpickles or imports while a candidate runs.

The worker reads a candidate's file (kernels_eval.cpu.reach). Python's library and others have many functions that carry
out a text, find an object by its name, or take code as bytes: `timeit`, `typing.get_type_hints`, pickles. What they are
given may be made at run time, and the worker cannot read it. So a hook that nothing can remove reads it here.
"""

import dis
import sys
import types
from collections.abc import Iterator
from typing import Any

from kernels_eval.sandbox.guarded_names import REACHING

_OWN = "kernels_eval"
_BY_NAME = frozenset(
    {"__import__", "getattr", "setattr", "delattr", "exec", "eval", "compile", "vars", "globals", "locals", "open"}
)
"""Functions by which a text does what its own names do not show."""
_HOLDERS = ("builtins", "__import__")
"""Attributes by which a text gets these functions, and one of them that other modules have too."""
_LOADS = (
    "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF",
)  # fmt: skip
_INSTALLED = "/site-packages/"
_IMPORTER = "<frozen importlib"
_LOADER = "candidate_source.py"


class MadeCodeError(Exception):
    """Raised where a candidate has code carried out that its file does not show."""


def guard_made_code() -> None:
    """Install the hook in this process, and forget the judge's modules. Call before the candidate is loaded.

    The judge's code that is loaded goes on; it imports nothing of its own from now on.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == _OWN]:
        del sys.modules[name]
    sys.addaudithook(_look)


def _look(event: str, given: tuple[Any, ...]) -> None:
    """Raise MadeCodeError for an event that a candidate's file must not cause. Python calls it for each."""
    if event == "exec":
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if not _is_of_a_module(caller) and not _is_of_an_import(caller):
            _check(given[0])
    elif event == "import":
        if str(given[0]).partition(".")[0] == _OWN:
            raise MadeCodeError(f"{given[0]}: reaches into other code")
    elif event == "pickle.find_class":
        raise MadeCodeError(f"a pickle that names {given[0]}.{given[1]}")
    elif event in ("marshal.loads", "code.__new__", "function.__new__"):
        caller = sys._getframe(1).f_code.co_filename  # pyright: ignore[reportPrivateUsage]
        if caller == "kernel.py" or (event == "marshal.loads" and not caller.startswith(_IMPORTER)):
            raise MadeCodeError(f"{event}: code that is no text of the file")


def _is_of_a_module(caller: types.FrameType) -> bool:
    """True where Python executes a module's file, or the judge the candidate's."""
    name = caller.f_code.co_filename
    return name.startswith(_IMPORTER) or name.endswith(_LOADER)


def _is_of_an_import(caller: types.FrameType) -> bool:
    """True where an installed package executes a text of its own while one of its modules is imported.

    All functions from there to the module's body are the package's: a candidate may have put others in their place.
    """
    package = _package_of(caller)
    frame: types.FrameType | None = caller
    while package and frame is not None and _package_of(frame) == package:
        frame, inner = frame.f_back, frame
        if inner.f_code.co_name == "<module>" and frame is not None:
            return frame.f_code.co_filename.startswith(_IMPORTER)
    return False


def _package_of(frame: types.FrameType) -> str:
    """Return the folder of the installed package whose file a frame executes; "" for other files."""
    return frame.f_code.co_filename.partition(_INSTALLED)[2].partition("/")[0]


def _check(code: Any) -> None:
    """Raise MadeCodeError for code of a text that imports, or has names that may lead to other code."""
    for each in _within(code):
        instructions = list(dis.get_instructions(each))
        if any(instruction.opname == "IMPORT_NAME" for instruction in instructions):
            raise MadeCodeError("a text that is executed imports a module")
        for name in (*each.co_names, *(value for value in each.co_consts if isinstance(value, str))):
            if name in _HOLDERS or REACHING.search(name):
                raise MadeCodeError(f"a text that is executed uses {name}")
        # not attributes: data classes have texts with the fields' names, and a field may be called `open`
        for name in (each.argval for each in instructions if each.opname in _LOADS):
            if name in _BY_NAME:
                raise MadeCodeError(f"a text that is executed uses {name}")


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions in it."""
    coming = [code]
    while coming:
        each = coming.pop()
        yield each
        coming += [value for value in each.co_consts if isinstance(value, types.CodeType)]
