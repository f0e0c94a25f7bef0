"""Candidate's process: an audit hook reads what Python compiles, unpickles or imports while a candidate runs.

The worker reads a candidate's file (kernels_eval.cpu.reach). Python's library and others have many functions that carry
out a text, find an object by its name, or take code as bytes: `timeit`, `typing.get_type_hints`, pickles. What they are
given may be made at run time, and the worker cannot read it. So a hook that nothing can remove reads it here.

Nor may a candidate's own code use `ctypes` or `cffi`, which write anywhere in its process. Packages that it imports may
use `ctypes`.
"""

import builtins
import dis
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.sandbox.guarded_names import REACHING, TABLES, guard_library, guarded_builtins

_NOT_IMPORTED = ("kernels_eval", "cffi", "_cffi_backend")
_BY_ADDRESS = "reaches memory by its address"
_BY_NAME = frozenset(
    {"__import__", "getattr", "setattr", "delattr", "exec", "eval", "compile", "vars", "globals", "locals", "open"}
)
"""Functions by which a text does what its own names do not show."""
_DOES = {"IMPORT_NAME": "imports a module", "MATCH_CLASS": "reads attributes by a pattern"}
_COLLECTED = ("numpy", "numpy.fft", "numpy.linalg")
"""Modules that texts of SciPy import: they lead nowhere else."""
_LOADS_A_NAME = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF")
_LOADS_A_MEMBER = ("LOAD_ATTR", "LOAD_METHOD")
_importlib: Any = importlib
_BOOTSTRAP, _FILES = _importlib._bootstrap, _importlib._bootstrap_external
_RUNS_FILES = _BOOTSTRAP._call_with_frames_removed.__code__
_OF_A_LOADER = _FILES._LoaderBasics.exec_module.__code__
_READS_BYTECODE = _FILES._compile_bytecode.__code__
_RUNS_WITHOUT_LOADER = (load_source.__code__, _importlib.machinery.FrozenImporter.exec_module.__code__)
"""The judge's function that executes the candidate's file, and Python's for modules inside its program."""
_CARRY_OUT = set[types.CodeType]()
"""Of the functions that stand for `exec` and `eval`."""
_LOADERS = (importlib.machinery.SourceFileLoader, importlib.machinery.SourcelessFileLoader)


class MadeCodeError(Exception):
    """Raised where a candidate has code carried out that its file does not show, or accesses memory by its address."""


class _OfOthers(types.ModuleType):
    """A module whose members a candidate's own code cannot get, whatever name it has the module by."""

    def __getattribute__(self, name: str) -> Any:
        if not _is_of_others(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            raise MadeCodeError(f"ctypes.{name}: {_BY_ADDRESS}")
        return super().__getattribute__(name)


def guard_made_code() -> None:
    """Install the hook in this process, and forget the judge's modules. Call before the candidate is loaded.

    The judge's code that is loaded goes on; it imports nothing of its own from now on.
    """
    guard_library()
    for function in (exec, eval):
        setattr(builtins, function.__name__, _with_guarded_names(function))
    for name in [name for name in sys.modules if name.partition(".")[0] in _NOT_IMPORTED]:
        del sys.modules[name]
    for name in ("ctypes", "_ctypes"):
        if name in sys.modules:
            sys.modules[name].__class__ = _OfOthers
    sys.addaudithook(_look)


def _with_guarded_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `exec` or `eval` that leaves the guarded built-in names in a namespace, where Python leaves its own."""
    names = guarded_builtins()

    def carry_out(code: Any, of: Any = None, /, *local: Any, **more: Any) -> Any:
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if of is None:
            of, local = caller.f_globals, local if local and local[0] is not None else (caller.f_locals,)
        elif isinstance(of, dict) and not _is_of_a_module(caller):
            dict.setdefault(cast("dict[str, Any]", of), "__builtins__", dict(names))
        return function(code, of, *local, **more)

    _CARRY_OUT.add(carry_out.__code__)
    return carry_out


def _look(event: str, given: tuple[Any, ...]) -> None:
    """Raise MadeCodeError for an event that a candidate's file must not cause. Python calls it for each."""
    if event == "exec":
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        caller = caller.f_back if caller.f_code in _CARRY_OUT else caller
        if caller is None or not _is_of_a_module(caller):
            _check(given[0])
    elif event == "function.__new__":
        _check(given[0])
    elif event == "object.__setattr__":
        if isinstance(given[2], types.CodeType):
            _check(given[2])
    elif event == "import":
        if str(given[0]).partition(".")[0] in _NOT_IMPORTED:
            raise MadeCodeError(f"{given[0]}: reaches into other code")
    elif event.startswith("ctypes."):
        if not _is_of_an_import():
            raise MadeCodeError(f"{event}: {_BY_ADDRESS}")
    elif event == "pickle.find_class":
        raise MadeCodeError(f"a pickle that names {given[0]}.{given[1]}")
    elif event == "marshal.loads":
        if sys._getframe(1).f_code is not _READS_BYTECODE:  # pyright: ignore[reportPrivateUsage]
            raise MadeCodeError(f"{event}: code that is no text of the file")
    elif event == "code.__new__":
        caller = sys._getframe(1).f_code  # pyright: ignore[reportPrivateUsage]
        if caller is not types.coroutine.__code__:
            raise MadeCodeError(f"{event}: code that is no text of the file")


def _is_of_a_module(caller: types.FrameType) -> bool:
    """True where Python's own loader executes a module's file, or the judge the candidate's.

    By the functions themselves: code that a candidate has compiled may bear any file's name.
    """
    if caller.f_code in _RUNS_WITHOUT_LOADER:
        return True
    loading = caller.f_back
    if caller.f_code is not _RUNS_FILES or loading is None or loading.f_code is not _OF_A_LOADER:
        return False
    loader = loading.f_locals["self"]
    return type(loader) in _LOADERS and vars(loader).keys() <= {"name", "path"} and _ways() == _WAYS


def _is_of_others(caller: types.FrameType) -> bool:
    """True for code that has Python's own built-in functions: the candidate's, and its texts', has guarded ones."""
    return caller.f_builtins is builtins.__dict__


def _is_of_an_import() -> bool:
    """True where the file of a module causes the event while Python's loader executes it, and no candidate's code."""
    frame: types.FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and _is_of_others(frame) and frame.f_code not in _RUNS_WITHOUT_LOADER:
        if _is_of_a_module(frame):
            return True
        frame = frame.f_back
    return False


def _ways() -> list[dict[str, Any]]:
    """Return what the classes of Python's loaders consist of, which a candidate may replace."""
    return [dict(vars(each)) for loader in _LOADERS for each in loader.__mro__ if each is not object]


_WAYS = _ways()


def _check(code: Any) -> None:
    """Raise MadeCodeError for code of a text that imports, reads by a pattern, or has names that lead to other code."""
    for each in _within(code):
        for instruction in dis.get_instructions(each):
            name = instruction.opname
            if name in _DOES and instruction.argval not in _COLLECTED:
                raise MadeCodeError(f"a text that is executed {_DOES[name]}")
            reads = _BY_NAME if name in _LOADS_A_NAME else TABLES if name in _LOADS_A_MEMBER else ()
            if instruction.argval in reads:
                raise MadeCodeError(f"a text that is executed uses {instruction.argval}")
        for name in (*each.co_names, *_texts(each.co_consts)):
            if REACHING.search(name):
                raise MadeCodeError(f"a text that is executed uses {name}")


def _texts(values: Any) -> Iterator[str]:
    """Yield the texts among constants, and in the tuples and sets among them."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            yield from _texts(value)


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions in it."""
    coming = [code]
    while coming:
        each = coming.pop()
        yield each
        coming += [value for value in each.co_consts if isinstance(value, types.CodeType)]
