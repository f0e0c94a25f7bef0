"""Doors: settings whose value names code. One resolver for all of them.

A name is one of ours, one that an installed package declares as an entry point of the door's group, or a dotted path
`package.module:name`. The path leads into an installed package or into the current folder, which every process that
resolves names can import from; installed packages come first. To a cache key the source behind a name counts too.
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kernels_eval.errors import InputError, first_line
from kernels_eval.frozen import NamesCode
from kernels_eval.sources import combined, digests_behind

GROUP = "kernelmill."
"""Entry points of the door `reward` are in the group `kernelmill.reward`."""
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
FORM = "package.module:name"
_CALLED = re.compile(r"a function \((\w+(?:, \w+)*)\)")
"""Beginning of a signature that says with what a name is called."""


class Door(NamesCode):
    """A setting that takes a name of ours, an entry point's, or a dotted path: `reward: Annotated[str, REWARD]`."""

    def __init__(
        self,
        name: str,
        ours: Mapping[str, str] | Callable[[], Mapping[str, str]],
        signature: str,
        accepts: Callable[[Any], bool] = callable,
        other_values: tuple[str, ...] = (),
    ) -> None:
        """`ours`: dotted paths by our names. `signature`: what a name stands for, for messages. `accepts`: tests it.

        `other_values`: values of the setting that name nothing to load, such as `auto`.
        """
        self.name = name
        self.signature = signature
        called = _CALLED.match(signature)
        self._parameters = () if called is None else tuple(called[1].split(", "))
        self._accepts = accepts
        self._other_values = other_values
        self._ours = ours

    @property
    def ours(self) -> Mapping[str, str]:
        """Dotted paths by our names."""
        return self._ours() if callable(self._ours) else self._ours

    @property
    def names(self) -> tuple[str, ...]:
        """Known names, sorted: ours and those of installed packages."""
        return tuple(sorted({*self.ours, *self._other_values, *_plugins(self.name)}))

    @property
    def expectation(self) -> str:
        """Words for a message: the known names and the dotted form."""
        known = f"one of {', '.join(self.names)}, or " if self.names else ""
        return f"{known}{FORM} of your own"

    def knows(self, name: str) -> bool:
        """True for a known name, and for a dotted path, whether it leads anywhere or not."""
        return name in self.names or DOTTED.fullmatch(name) is not None

    def path_of(self, name: str) -> str:
        """Return the dotted path that a name stands for. Raises InputError if it is neither known nor a path."""
        found = self.ours.get(name) or _plugins(self.name).get(name)
        if found is None and DOTTED.fullmatch(name) is None:
            raise InputError(f"{self.name}: expected {self.expectation}, found {name!r}")
        return found or name

    def load(self, name: str) -> Any:
        """Return what a name stands for, imported. Raises InputError, which says what is missing where."""
        path = self.path_of(name)
        found = _imported(self.name, path, self.signature)
        if not self._accepts(found) or not (name in self.ours or takes(found, self._parameters)):
            raise InputError(f"{self.name}: {path}: expected {self.signature}, found {_described(found)}")
        return found

    def verify(self, value: str) -> None:
        """Import what a value names if it is not ours; before anything expensive starts. Raises InputError."""
        if not self.is_ours(value):
            self.load(value)

    def source_of(self, value: str) -> str:
        """Return the digest of the source behind a name, with all that it imports of the same project."""
        return "" if value in self._other_values else source_digest(self.path_of(value))

    def is_ours(self, value: str) -> bool:
        """True if the source behind a value belongs to this package."""
        return value in self.ours or value in self._other_values

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a field take known names and dotted paths. Nothing is imported for it."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str | None) -> str | None:
        if value is not None and not self.knows(value):
            raise ValueError(self.expectation)
        return value


def takes(found: Any, parameters: Sequence[str]) -> bool:
    """True if a function can be called with these positional arguments, or its signature is not known."""
    if not parameters:
        return True
    try:
        inspect.signature(found).bind(*parameters)
    except TypeError:
        return False
    except ValueError:  # of some built-in functions
        return True
    return True


def files_of(package: str, attribute: str) -> Callable[[], dict[str, str]]:
    """Return a function that names the modules of a package: for a door where each file registers itself.

    A module `NAME.py` stands for `package.NAME:attribute`.
    """

    def names() -> dict[str, str]:
        folders = [Path(folder) for folder in importlib.import_module(package).__path__]
        modules = {path.stem for folder in folders for path in folder.glob("*.py") if path.stem != "__init__"}
        return {module: f"{package}.{module}:{attribute}" for module in sorted(modules)}

    return names


def source_digest(path: str) -> str:
    """Return 16 hex digits for the module of a dotted path and what it imports of its package, or of the same folder.

    Raises InputError if there is no such module.
    """
    here = make_here_importable()
    module = path.partition(":")[0]
    top = module.partition(".")[0]
    try:
        found = digests_behind(module, lambda name: name == top or _lies_in(name, here))
    except ModuleNotFoundError as error:
        raise InputError(f"{path}: there is no Python source of a module {module} ({_places()})") from error
    return combined({name: digest for name, (_, digest) in found.items()})


def make_here_importable() -> Path:
    """Let this process import from the current folder, after all that is installed. Return the folder."""
    here = Path.cwd()
    if "" not in sys.path and str(here) not in sys.path:
        sys.path.append(str(here))
        importlib.invalidate_caches()
    return here


def sources_here() -> list[Path]:
    """Return the modules and packages of the current folder that this process has imported, for Ray to ship."""
    here = Path.cwd()
    found: set[Path] = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name == "__main__" or file is None:
            continue
        own = Path(file).parent if Path(file).name == "__init__.py" else Path(file)
        if own.parent == here:
            found.add(own)
    return sorted(found)


@functools.cache
def _plugins(door: str) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP + door)}


def _imported(door: str, path: str, signature: str) -> Any:
    make_here_importable()
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InputError(f"{door}: {path}: there is no module {missing} ({_places()})") from error
        raise InputError(f"{door}: {path}: its module needs {missing}, which is not installed") from error
    except Exception as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{door}: {path}: its module cannot be imported: {what}") from error
    if not hasattr(module, attribute):
        defined = ", ".join(_defined(module)) or "nothing"
        raise InputError(
            f"{door}: {path}: expected {signature}; {module.__file__} has no {attribute!r}, it defines {defined}"
        )
    return getattr(module, attribute)


def _described(found: Any) -> str:
    if isinstance(found, FunctionType):
        return f"a function ({', '.join(inspect.signature(found).parameters)})"
    return f"an object of type {type(found).__name__}"


def _defined(module: Any) -> Iterator[str]:
    for name, value in vars(module).items():
        is_code = isinstance(value, FunctionType | BuiltinFunctionType | type)
        is_imported = value.__module__ != module.__name__ if is_code else isinstance(value, ModuleType)
        if not name.startswith("_") and not is_imported:
            yield name


def _lies_in(top: str, folder: Path) -> bool:
    return (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file()


def _places() -> str:
    return f"looked in the installed packages and in {Path.cwd()}"
