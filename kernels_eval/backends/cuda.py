"""CUDA C++: modules that call `torch.utils.cpp_extension.load_inline`, as KernelBench's do.

Building runs the module in a one-shot process, with a `load_inline` that only records its arguments. On a machine with
a GPU each extension is then built in full; without one its device code is compiled for each target, which gives errors
and resources, and nothing runs. In the candidate's process `load_inline` returns what was built, and refuses anything
else.
"""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from kernels_eval.backends import Backend
from kernels_eval.compile.extension import Extension
from kernels_eval.compile.nvcc import build_library, compile_device_code, parse_resources
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError, load_source

GLOBAL_FUNCTION = re.compile(
    r"__global__\s+(?:[\w:]+(?:\s*\([^)]*\))?\s+)*?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)


NOTHING_BUILT = (
    "nothing is built with load_inline while the source is loaded or ModelNew is constructed: call it there, "
    "not in forward"
)


class CudaBackend(Backend):
    """Kernels marked `__global__`."""

    builds = True
    package = "torch.utils.cpp_extension"

    def own_kernels(self, source: str) -> frozenset[str]:
        """Return every function that is marked as a kernel."""
        return frozenset(GLOBAL_FUNCTION.findall(source))

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the module with a `load_inline` that records its arguments, then compile the recorded extensions."""
        extensions = recorded_extensions(request)
        folder = Path(request["folder"])
        resources: list[dict[str, Any]] = []
        libraries: dict[str, dict[str, str]] = {}
        for extension in extensions:
            place = folder / extension.digest
            place.mkdir(parents=True, exist_ok=True)
            if request["runs"]:
                library, log = build_library(extension, place, request["targets"])
                libraries[extension.digest] = {"name": extension.name, "path": str(library)}
                resources += parse_resources(log)
            else:
                for target in request["targets"]:
                    resources += parse_resources(compile_device_code(extension, place, target))
        return {"resources": resources, "libraries": libraries}

    def install(self, build: dict[str, Any]) -> None:
        """Make `load_inline` load what was built."""
        libraries: dict[str, dict[str, str]] = build.get("libraries", {})

        def load(*args: Any, **kwargs: Any) -> Any:
            built = libraries.get(Extension.of(*args, **kwargs).digest)
            if built is None:
                raise CandidateError(
                    "compile_error",
                    ErrorCategory.EXTENSION_CHANGED,
                    "load_inline was called with other sources than when it was built",
                )
            return _import(built["name"], Path(built["path"]))

        _replace_load_inline(load)


def recorded_extensions(request: dict[str, Any]) -> list[Extension]:
    """Return what a source asks `load_inline` for while it is loaded, or while its model is built."""
    extensions: list[Extension] = []

    def record(*args: Any, **kwargs: Any) -> Any:
        extensions.append(extension := Extension.of(*args, **kwargs))
        return _Promised(extension.name)

    _replace_load_inline(record)
    module = load_source(request["source"])
    model_class = getattr(module, "ModelNew", None)
    if not isinstance(model_class, type):
        raise CandidateError("compile_error", ErrorCategory.MISSING_MODEL, "the source defines no class ModelNew")
    if not extensions:  # some build where the model is built
        _try_to_construct(model_class, request["arguments"])
    if not extensions:
        raise CandidateError("compile_error", ErrorCategory.NO_EXTENSION, NOTHING_BUILT)
    return extensions


class _Promised:
    """Placeholder of an extension that is not built yet: any function can be looked up, none can be called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"{self._name}.{name} was called while the source was loaded")

        return call


def _replace_load_inline(function: Any) -> None:
    import torch.cuda
    import torch.utils.cpp_extension as extensions

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("sources are given with load_inline, in no file and not to NVRTC")

    extensions.load_inline = function
    extensions.load = refuse
    torch.cuda._compile_kernel = refuse  # pyright: ignore[reportPrivateUsage]


def _try_to_construct(model_class: type, arguments: list[Any]) -> None:
    try:
        model_class(*arguments)
    except Exception:  # noqa: BLE001 (the constructor's errors are reported when the candidate runs)
        return


def _import(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no extension")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


BACKEND = CudaBackend()
