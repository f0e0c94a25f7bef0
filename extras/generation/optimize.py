"""Decorator: a module that runs a verified kernel where it was verified, and itself everywhere else.

    from extras.generation.optimize import optimize

    @optimize()
    class Fused(nn.Module): ...

    def get_inputs():
        return [torch.randn(1024, 16)]

The kernel comes from a file of `kernelmill generate`, or from the service (`kernelmill serve kernels`), which is asked
when the class is made. While there is none, for whatever reason, the class is as it was. Parameters, state and
checkpoints are the module's own in any case.

`extras.generation.fast_path` says which calls run the kernel. A kernel is a program that a language model wrote: the
judge ran it in a sandbox, this process does not.
"""

import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from extras.generation.fast_path import BoundKernel, FastPath
from extras.generation.kernel_source import KernelSource
from extras.generation.module_source import problem_source
from kernels_eval.errors import InputError, KernelmillError, first_line

logger = logging.getLogger("kernelmill.generation")
Module = TypeVar("Module", bound=nn.Module)
URL_VARIABLE = "KERNELMILL_KERNELS_URL"
"""Environment variable with the service's address; unset: http://127.0.0.1:18190."""


def optimize(
    *,
    get_inputs: Callable[[], Any] | None = None,
    get_init_inputs: Callable[[], Any] | None = None,
    file: str | Path | None = None,
    url: str | None = None,
    wait_s: float = 0.0,
    budget: int = 32,
    folder: str | Path | None = None,
) -> Callable[[type[Module]], type[Module]]:
    """Return a decorator of a class at the top level of a file.

    `get_inputs`, `get_init_inputs`: default: the functions of these names in the class's file. `file`: a file of
    `kernelmill generate`; then no service is asked. `wait_s`: time to wait for the service's search of at most `budget`
    answers when the class is made; 0: the search begins, and a later start of the program finds its result. `folder`:
    kernels that were found; default: `~/.cache/kernelmill/kernels`. Raises InputError if the class is no module.
    """
    address = url or os.environ.get(URL_VARIABLE) or "http://127.0.0.1:18190"
    kept = Path(folder) if folder is not None else Path.home() / ".cache" / "kernelmill" / "kernels"

    def decorate(module: type[Module]) -> type[Module]:
        if not issubclass(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]  # not all check types
            raise InputError(f"{module!r}: expected a subclass of torch.nn.Module")
        try:
            source = problem_source(module, get_inputs, get_init_inputs)
            found = KernelSource(address, kept, wait_s, budget).find(source, file)
            if found is not None:
                names = [("get_inputs", get_inputs), ("get_init_inputs", get_init_inputs)]
                inputs, init_inputs = (given or _later(module.__module__, name) for name, given in names)
                _patch(module, FastPath(found, inputs, init_inputs, uses_mode=".training" in source))
        except (KernelmillError, OSError) as error:
            logger.warning("%s: runs as it is: %s", module.__name__, first_line(error))
        return module

    return decorate


def _later(module: str, name: str) -> Callable[[], Any]:
    """Return a function of the class's file, which may stand below the class; no arguments if it has none."""
    return lambda: getattr(sys.modules[module], name, list)()


def _patch(module: type[nn.Module], path: FastPath) -> None:
    """Let instances take the fast path. In place: the class may name itself, as in `super(Fused, self)`."""
    bound: WeakKeyDictionary[nn.Module, BoundKernel] = WeakKeyDictionary()
    construct: Any = module.__init__
    forward: Any = module.forward

    def give_up(error: Exception) -> None:
        logger.warning("%s: runs as it is: the kernel failed: %s", module.__name__, first_line(error))

    @functools.wraps(construct)
    def constructed(self: nn.Module, *arguments: Any, **named: Any) -> None:
        construct(self, *arguments, **named)
        if type(self) is module and not named:
            try:
                kernel = path.bind(self, arguments)
            except Exception as error:  # noqa: BLE001 (whatever a kernel raises, the module goes on without it)
                give_up(error)
                return
            if kernel is not None:
                bound[self] = kernel

    @functools.wraps(forward)
    def fast(self: nn.Module, *arguments: Any, **named: Any) -> Any:
        kernel = bound.get(self)
        if kernel is not None and not named and kernel.serves(self, arguments):
            try:
                return kernel.run(self, arguments)
            except Exception as error:  # noqa: BLE001 (as above)
                give_up(error)
                del bound[self]
        return forward(self, *arguments, **named)

    setattr(module, "__init__", constructed)  # noqa: B010 (pyright takes an assignment for an override)
    setattr(module, "forward", fast)  # noqa: B010
