"""Stand-in for matplotlib, whose import writes to a cache folder that a candidate does not have, and takes seconds.

Kernel files import it for a benchmark that is not run. Every member is an object without effect, and so is every
result of a call.
"""

import importlib.machinery
import sys
import types
from typing import Any

NAME = "matplotlib"


class _Nothing:
    """Object without effect, like each of its attributes and each result of a call."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *_: Any, **__: Any) -> "_Nothing":
        return _Nothing()

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Plots(types.ModuleType):
    """matplotlib, or one of its modules."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Finder:
    """Finds each module of matplotlib, and no other."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != NAME:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Plots(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def install() -> None:
    """Let this process, which runs one candidate, find the stand-in in place of matplotlib."""
    sys.meta_path.insert(0, _Finder())  # pyright: ignore[reportArgumentType]
