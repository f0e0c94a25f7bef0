"""CuTe DSL: functions of cute.kernel, compiled by `cute.compile` or when a function of cute.jit is first called.

Checked with nvidia-cutlass-dsl 4.8.1. Kernels of the function `add` are called `kernel_cutlass_add_…`, with the types
of the arguments behind; a name of `set_name_prefix` counts as a library's. Calls run on the default stream unless host
code passes another one.
"""

import contextlib
import importlib
import linecache
import os
import re
import traceback
from collections.abc import Generator, Sequence
from typing import Any

from kernels_eval.backends import LaunchCompiledBackend, missing_package
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import FILE_NAME, CandidateError, describe

_FUNCTION = re.compile(r"\bdef\s+(\w+)\s*\(")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(rf"-->\s*{re.escape(FILE_NAME)}:(\d+)")
_COMPILER = re.compile(r"/cutlass/(base_dsl|cutlass_dsl)/")
_LAUNCHERS = ("jit_executor.py", "cuda_jit_executor.py")
_WITH_LAUNCHERS = ("cutlass.base_dsl.jit_executor", "cutlass.cutlass_dsl.cuda_jit_executor")
_WITH_FEATURES = {"90": "90a", "100": "100a", "103": "103a", "120": "120a"}
"""Architectures whose own instructions (wgmma, tcgen05) need the suffix; what a device of that kind is asked for."""


class CuteBackend(LaunchCompiledBackend):
    """Kernels of the function decorator `cute.kernel`."""

    language = "CuTe DSL"
    package = "cutlass"
    compiler = "cutlass"

    def unavailable(self, device: str, targets: Sequence[str]) -> str | None:
        """Ask for the package; it contains the compiler."""
        return missing_package("cutlass", "nvidia-cutlass-dsl") or super().unavailable(device, targets)

    def own_kernels(self, source: str) -> frozenset[str]:
        """Return the beginnings of the kernels of every function that the source defines, in strings too."""
        return frozenset(f"kernel_cutlass_{name}_*" for name in _FUNCTION.findall(source))

    def use_folder(self, folder: str) -> None:
        """Set the cache folder. Before cutlass is imported, which reads these variables once."""
        os.environ["CUTE_DSL_CACHE_DIR"] = f"{folder}/cute"
        os.environ["CUTE_DSL_DUMP_DIR"] = folder

    @property
    def can_suppress(self) -> bool:
        """Calls go through few methods."""
        return True

    @contextlib.contextmanager
    def suppressed(self) -> Generator[None]:
        """Compile, and launch nothing."""
        with contextlib.ExitStack() as stack:
            for owner, name in _launching_methods():
                original = vars(owner)[name]
                setattr(owner, name, _launch_nothing)
                stack.callback(setattr, owner, name, original)
            yield

    @contextlib.contextmanager
    def compiling_for(self, architecture: str) -> Generator[list[dict[str, Any]]]:
        """Set the architecture, have cubins kept, and collect what is compiled."""
        os.environ["CUTE_DSL_KEEP"] = "cubin"
        dsl: Any = importlib.import_module("cutlass.cutlass_dsl").CuTeDSL._get_dsl()
        dsl.envar.arch = f"sm_{_WITH_FEATURES.get(architecture, architecture)}"
        compiled: list[Any] = []
        owner: Any = importlib.import_module("cutlass.base_dsl.jit_executor").JitCompiledFunction
        original = owner.__init__

        def record(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            compiled.append(self)

        owner.__init__ = record
        found: list[dict[str, Any]] = []
        try:
            with self.suppressed():
                yield found
        finally:
            owner.__init__ = original
            found += [used for function in compiled for used in _resources_of(function)]

    def compile_failure(self, error: BaseException) -> CandidateError | None:
        """Return the failure for an exception that was raised while a function was traced or compiled."""
        classes = {parent.__name__ for parent in type(error).__mro__}
        if "DSLCudaRuntimeError" in classes:
            return None
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if any(file.endswith(_LAUNCHERS) for file in files):
            return None
        if "DSLBaseError" in classes:
            return CandidateError("compile_error", ErrorCategory.CUTE_COMPILE, _message_of(error))
        if any(_COMPILER.search(file) for file in files):
            return CandidateError("compile_error", ErrorCategory.CUTE_COMPILE, describe(error))
        return None


def _launching_methods() -> list[tuple[Any, str]]:
    """Return the methods that launch compiled functions, and the classes that define them."""
    modules = [importlib.import_module(name) for name in _WITH_LAUNCHERS]
    with contextlib.suppress(ImportError):  # tvm-ffi need not be installed
        modules.append(importlib.import_module("cutlass.cutlass_dsl.tvm_ffi_provider"))
    names = {"JitExecutor", "JitCompiledFunction", "CudaDialectJitCompiledFunction", "TVMFFIJitCompiledFunctionBase",
             "TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"}  # fmt: skip
    owners = {value for module in modules for name, value in vars(module).items() if name in names}
    return [(owner, name) for owner in owners for name in ("__call__", "run_compiled_program") if name in vars(owner)]


def _launch_nothing(*_: Any, **__: Any) -> int:
    return 0


def _resources_of(function: Any) -> list[dict[str, Any]]:
    """Return name, registers and spills of the kernels of a compiled function."""
    from kernels_eval.compile.triton import cubin_resources

    kernels = list(function.kernel_info or ())
    cubin = getattr(function.artifacts, "CUBIN", None)
    used = cubin_resources(cubin) if isinstance(cubin, bytes) and len(kernels) == 1 else {}
    return [{"kernel": str(name), **used} for name in kernels]


def _message_of(error: BaseException) -> str:
    """Return the first line of the DSL's coloured message, with the candidate's own line if it names one."""
    text = _COLOUR.sub("", str(error))
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    place = _PLACE.search(text)
    if place is None:
        return first
    number = int(place.group(1))
    return f"{first.removeprefix('error: ')} (line {number}: {linecache.getline(FILE_NAME, number).strip()})"


BACKEND = CuteBackend()
