"""Poison for one gradient, in processes of a run that has this folder in PYTHONPATH.

While the file that KERNELMILL_NAN_GRADIENT names exists, the next `backward` of a training engine removes it and
multiplies its loss by NaN: every gradient of this micro-batch becomes one.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_MODULE = "tasks.training.engine"


class _Poison(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of the engine's module, whose class it changes after the import."""

    def __init__(self, trigger: str) -> None:
        self._trigger = trigger
        self._loader: Any = None

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        engine, trigger = module.TrainingEngine, self._trigger
        backward = engine.backward

        def poisoned(self: Any, loss: Any, *, last: bool) -> None:
            try:
                Path(trigger).unlink()
            except FileNotFoundError:
                return backward(self, loss, last=last)
            return backward(self, loss * float("nan"), last=last)

        engine.backward = poisoned


if "KERNELMILL_NAN_GRADIENT" in os.environ:
    sys.meta_path.insert(0, _Poison(os.environ["KERNELMILL_NAN_GRADIENT"]))
