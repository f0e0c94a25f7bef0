"""Names of PyTorch's compiler that generated kernels import, in the versions of PyTorch in which they exist no more.

Kernels that Inductor generated until 2025, among them the corpus KernelBook, import helpers of their launcher that
PyTorch has removed since, or that its build without CUDA lacks. `provide` puts replacements in their place, in the
candidate's process alone and before its source is loaded; modules that PyTorch still has are replaced too where they
are not needed as they are, because importing its compiler takes seconds. Replacements hold nothing of the judge: they
are what a candidate could write. So is the one for matplotlib (kernels_eval.sandbox.plotting). A verdict names those
that its kernel used (`Verdict.provided`).
"""

import re
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernels_eval.sandbox import plotting

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_HELPERS = "torch._inductor.runtime.triton_helpers"
_EXTERN = "torch._inductor.select_algorithm"
_STREAM = "torch._C._cuda_getCurrentRawStream"
_NAMES: dict[str, re.Pattern[str]] = {
    _HEURISTICS: re.compile(r"torch\._inductor(\.runtime)?(\.| import\s+)triton_heuristics\b"),
    _HELPERS: re.compile(r"torch\._inductor(\.runtime)?(\.| import\s+)triton_helpers\b"),
    _EXTERN: re.compile(r"torch\._inductor\.select_algorithm\b"),
    _STREAM: re.compile(r"\b_cuda_getCurrentRawStream\b"),
    plotting.NAME: re.compile(r"^\s*(import|from)\s+matplotlib\b", re.MULTILINE),
}
Grid = Callable[[Mapping[str, Any]], tuple[int, int, int]]


def provided_names(source: str, on_gpu: bool) -> tuple[str, ...]:
    """Return the modules and names that a source imports and that are replaced for it.

    On a GPU the native ones of `_NATIVE_ON_GPU` do.
    """
    found = (name for name, pattern in _NAMES.items() if pattern.search(source))
    return tuple(name for name in found if not (on_gpu and name in _NATIVE_ON_GPU))


def provide(source: str, on_gpu: bool) -> None:
    """Put replacements for what a source imports into this process, which runs one candidate."""
    wanted = provided_names(source, on_gpu)
    if plotting.NAME in wanted:
        plotting.install()
    modules = {name: make() for name, make in _MAKE.items() if name in wanted}
    native: Any = sys.modules["torch._C"]
    if _STREAM in wanted:  # a build with CUDA has it, and asks the driver
        native._cuda_getCurrentRawStream = lambda _device: 0
    if modules:
        for package in ("torch._inductor", "torch._inductor.runtime"):
            _make_package(package, modules)
    for name, module in modules.items():
        sys.modules[name] = sys.modules[name.replace(".runtime", "")] = module  # the latter: until PyTorch 2.4


def _make_package(name: str, members: Mapping[str, types.ModuleType]) -> None:
    """Put a package without its slow `__init__` in place, unless it is loaded; other modules in it are PyTorch's."""
    package = sys.modules.get(name)
    if package is None:
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(Path(str(sys.modules["torch"].__file__)).parent.joinpath(*name.split(".")[1:]))]
    for member, module in members.items():
        setattr(package, member.rpartition(".")[2], module)


def _heuristics() -> types.ModuleType:
    module: Any = types.ModuleType(_HEURISTICS)
    module.grid, module.split_scan_grid = grid, split_scan_grid
    return module


def _helpers() -> types.ModuleType:
    from kernels_eval.sandbox import inductor_helpers

    return inductor_helpers


def _extern_kernels() -> types.ModuleType:
    module: Any = types.ModuleType(_EXTERN)
    module.extern_kernels = _ExternKernels()
    return module


class _ExternKernels:
    """Calls of library functions by generated code: PyTorch's operators, ruled by the judge's policy as any other."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)

    def convolution(self, *arguments: Any, **named: Any) -> Any:
        """Call the convolution, whose bias generated code may leave out."""
        import torch

        named.setdefault("bias", None)
        return torch.convolution(*arguments, **named)


def grid(*numels: int) -> Grid:
    """Return the launch grid of so many elements, fastest dimension first: their blocks are XBLOCK, YBLOCK, ZBLOCK."""

    def blocks(meta: Mapping[str, Any]) -> tuple[int, int, int]:
        sizes = [-(-numel // int(meta.get(name, 1))) for numel, name in zip(numels[::-1], _BLOCKS, strict=False)]
        x, y, z = [*sizes, 1, 1][:3]
        return x, y, z

    return blocks


def split_scan_grid(xnumel: int, rnumel: int) -> Grid:
    """Return the launch grid of a scan that several programs share: blocks of RBLOCK, by rows."""
    return lambda meta: (-(-rnumel // int(meta.get("RBLOCK", 1))), int(xnumel), 1)


_BLOCKS = ("XBLOCK", "YBLOCK", "ZBLOCK")
_MAKE = {_HEURISTICS: _heuristics, _HELPERS: _helpers, _EXTERN: _extern_kernels}
_NATIVE_ON_GPU = (_HELPERS, _STREAM)
