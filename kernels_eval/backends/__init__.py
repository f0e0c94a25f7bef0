"""Languages that kernels are written in: one module each, found by its name.

A module `kernels_eval/backends/NAME.py` that defines `BACKEND`, an instance of `Backend`, is the back end `NAME`; nothing else
needs to be told of it. Importing this package is light: a back end's module is imported where it is first used, and must not
import torch or triton at its top.
"""

import contextlib
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Generator
from functools import cache
from typing import Any

from kernels_eval.errors import InputError


class Backend(ABC):
    """What differs between languages. Methods say in which process they run."""

    interprets: bool = False
    """Judged without a GPU too, by Triton's interpreter."""
    builds: bool = False
    """Has to be built by a program before it can run: `build` is called in a confined process of its own."""

    @abstractmethod
    def own_kernels(self, source: str) -> frozenset[str]:
        """Return the names of the kernels that a candidate's source defines, as a profiler shows them. In the judge's process."""

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build what the source asks for; CandidateError where it does not compile. In a confined process without a GPU.

        Request: `source`, `arguments` (of the constructor), `targets` (`cuda:90`), `folder` (to leave files in), `runs` (False:
        there is no GPU to run on, compiling is all). Returns JSON: `resources` (fields of Resources), and what `install`
        needs. Only for a back end that `builds`.
        """
        raise NotImplementedError

    def install(self, build: dict[str, Any]) -> None:
        """Make ready for loading the source, given what `build` returned. In the candidate's process."""
        return

    @contextlib.contextmanager
    def suppressed(self) -> Generator[None]:
        """Make the candidate's kernels do nothing, to see whether the result depends on them. In the candidate's process."""
        yield

    @property
    def can_suppress(self) -> bool:
        """True where `suppressed` has an effect."""
        return False

    def resources(self, module: Any) -> list[dict[str, Any]]:
        """Return what compiled kernels use (fields of Resources), after a call. In the candidate's process."""
        return []


@cache
def backend_names() -> tuple[str, ...]:
    """Names of all back ends."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def backend_named(name: str) -> Backend:
    """Return a back end; InputError where there is none of that name."""
    if name not in backend_names():
        raise InputError(f"backend: expected one of {', '.join(backend_names())}, found {name!r}")
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend
