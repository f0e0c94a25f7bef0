"""Names by which one program reaches into another that runs beside it, and built-in functions that refuse them.

A file that writes such a name is refused before it runs (kernels_eval.cpu.reach). One that makes the name while it runs
gets functions here that look at it.
"""

import ast
import builtins
import dataclasses
import functools
import re
import string
import types
from collections.abc import Callable
from typing import Any

REACHING = re.compile(
    r"kernels_eval|_python_dispatch|dispatch_mode|function_mode|_get_current_mode|__globals__|__closure__|__builtins__"
    r"|__subclasses__|__getattribute__|__loader__|__spec__|__self__|__func__|__code__|(?<!_)cell_contents"
    r"|__dict__|__getstate__|__reduce__|__reduce_ex__|_get_obj_state|__match_args__|type\.__setattr__"
    r"|get_field|getattr_static|resolve_name|\b(pkgutil|pydoc|runpy)\b"
    r"|getargvalues|getgeneratorlocals|getcoroutinelocals|walk_stack|walk_tb"
    r"|_bootstrap_external|_frozen_importlib|spec_from_file_location|spec_from_loader|module_from_spec|meta_path"
    r"|path_hooks|_getframe|_current_frames|pythonapi|py_object"
    r"|currentframe|getinnerframes|getouterframes|getclosurevars|getmembers|get_objects|get_referrers|get_referents"
    r"|\b(ctypes|_ctypes|sharedctypes|ctypeslib|cffi|_cffi_backend|libtriton|_interpreter)\b|TensorHandle"
    r"|[iI]nterpreter_?[bB]uilder|InterpretedFunction|GridExecutor"
    r"|__array_interface__|__array_struct__|stride_tricks|_construct_storage_from_data_pointer"
    r"|_pytree|settrace|setprofile|attrgetter|methodcaller|\b(f|tb|gi|cr|ag)_(back|frame|globals|locals|builtins)\b"
)
"""Names through which other code's objects are reached, or memory by its address."""
TABLES = (
    "atexit", "builtins", "copyreg", "ctypes", "gc", "importlib", "inspect", "json", "linecache", "pickle", "sys",
    "traceback", "weakref",
)  # fmt: skip
"""Modules of Python's library that lead to other code's objects, or that the judge's own side works with."""
_BY_NAME = ("getattr", "setattr", "delattr", "hasattr")
_OF_ALL = ("vars", "dir")
_READERS = (ast, dataclasses, string)
"""Modules of Python's library that read attributes by names which they are given: fields of a format, of a class."""


def guard_library() -> None:
    """Give modules of Python's library functions that refuse the names, as the candidate's file has them."""
    for module in _READERS:
        module.__dict__["getattr"] = _by_name(getattr)
    functools.__dict__["getattr"] = _for_wrappers


def guarded_builtins() -> dict[str, Any]:
    """Return Python's built-in names; those that take a name refuse one that reaches into other code."""
    return {
        **vars(builtins),
        **{name: _by_name(getattr(builtins, name)) for name in _BY_NAME},
        **{name: _of_own(name, getattr(builtins, name)) for name in _OF_ALL},
    }


def _by_name(function: Callable[..., Any]) -> Callable[..., Any]:
    def by_name(of: Any, name: Any, *value: Any) -> Any:
        if isinstance(name, str) and REACHING.search(name):
            raise AttributeError(f"{name}: reaches into other code")
        found = function(of, name, *value)
        if isinstance(found, types.ModuleType) and found.__name__ in TABLES:
            raise AttributeError(f"{name}: the module {found.__name__} of another package")
        return found

    return by_name


_own_by_name = _by_name(getattr)


def _for_wrappers(of: Any, name: Any, *value: Any) -> Any:
    """Return an attribute that `functools.wraps` takes over: of a `__dict__` what is harmless."""
    if name != "__dict__":
        return _own_by_name(of, name, *value)
    if not value:  # the wrapper's own, which is added to
        return of.__dict__
    if isinstance(of, types.ModuleType):
        raise AttributeError("the names of a module: reaches into other code")
    return {key: each for key, each in getattr(of, name, *value).items() if not REACHING.search(str(key))}


def _of_own(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def of_own(*of: Any) -> Any:
        owner = type(of[0]).__module__.partition(".")[0] if of else "kernels_eval"
        if owner in ("kernels_eval", "builtins") or isinstance(of[0], type):
            raise TypeError(f"{name}() without an object of the file's own: reaches into other code")
        return function(*of)

    return of_own
