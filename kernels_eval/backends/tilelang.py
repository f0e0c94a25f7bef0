"""TileLang: functions of T.prim_func or tilelang.jit, compiled by nvcc when host code asks for it or first calls them.

Checked with tilelang 0.1.15. A kernel of the function `add` is called `add_kernel`, further ones `add_kernel_1` and so
on. Calls go through `JITKernel.__call__`, on torch's current stream.
"""

import contextlib
import importlib
import os
import re
import shutil
import traceback
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from kernels_eval.backends import LaunchCompiledBackend, missing_package
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError, describe

_FUNCTION = re.compile(r"\bdef\s+(\w+)\s*\(")
_KERNEL = re.compile(r"__global__[^;{]*?\b(\w+)\s*\([^()]*\)\s*\{")
_FOLDER = re.compile(r"^\S*/")
_BY_NVCC = "\nCompilation error:\n"
_MAX_MESSAGE = 500


class TileLangBackend(LaunchCompiledBackend):
    """Kernels of TileLang's `T.Kernel`."""

    language = "TileLang"
    package = "tilelang"

    def unavailable(self, device: str, targets: Sequence[str]) -> str | None:
        """Ask for the package, and for nvcc, which compiles what TileLang generates."""
        home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
        missing = missing_package("tilelang", "tilelang")
        if missing is None and not (shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")):
            return "nvcc, with which TileLang compiles, was not found: install the CUDA toolkit, or set CUDA_HOME"
        return missing or super().unavailable(device, targets)

    def own_kernels(self, source: str) -> frozenset[str]:
        """Return the kernels of every function that the source defines, in strings too."""
        names = _FUNCTION.findall(source)
        return frozenset(name for function in names for name in (f"{function}_kernel", f"{function}_kernel_*"))

    def use_folder(self, folder: str) -> None:
        """Set TileLang's cache folder; it writes temporary files where TMPDIR says."""
        os.environ["TILELANG_CACHE_DIR"] = f"{folder}/tilelang"
        os.environ["TILELANG_PRINT_ON_COMPILATION"] = "0"

    @property
    def can_suppress(self) -> bool:
        """Calls go through one method."""
        return True

    @contextlib.contextmanager
    def suppressed(self) -> Generator[None]:
        """Allocate what a kernel returns, and launch nothing."""
        kernel: Any = importlib.import_module("tilelang.jit.kernel").JITKernel
        original = kernel.__call__
        kernel.__call__ = _allocate_only
        try:
            yield
        finally:
            kernel.__call__ = original

    @contextlib.contextmanager
    def compiling_for(self, architecture: str) -> Generator[list[dict[str, Any]]]:
        """Set the architecture that TileLang would ask the device for, and collect what is compiled."""
        found: list[dict[str, Any]] = []
        kernel: Any = importlib.import_module("tilelang.jit.kernel").JITKernel
        target: Any = importlib.import_module("tilelang.cuda.target")
        original = kernel.__init__

        def record(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            names: list[str] = _KERNEL.findall(str(self.get_kernel_source()))
            found.extend({"kernel": name} for name in names)
            if len(names) == 1:  # a cubin's figures are those of its largest kernel
                found[-1] |= _newest_resources(Path(os.environ["TILELANG_CACHE_DIR"]))

        target._detect_torch_cuda_arch = lambda: f"sm_{architecture}"
        kernel.__init__ = record
        try:
            with self.suppressed():
                yield found
        finally:
            kernel.__init__ = original

    def compile_failure(self, error: BaseException) -> CandidateError | None:
        """Return the failure for an exception that was raised while a function was traced, lowered or compiled."""
        if not _is_of_the_compiler(error):
            return None
        text = str(error)
        if _BY_NVCC in text:
            said = [_FOLDER.sub("", line) for line in text.split(_BY_NVCC)[1].splitlines() if "error:" in line]
            return CandidateError("compile_error", ErrorCategory.TILELANG_COMPILE, "; ".join(said)[:_MAX_MESSAGE])
        return CandidateError("compile_error", ErrorCategory.TILELANG_COMPILE, describe(error))


def _is_of_the_compiler(error: BaseException) -> bool:
    """True if some frame on the error's way is TileLang's, before any frame of a call of a compiled kernel."""
    for frame in traceback.extract_tb(error.__traceback__):
        _, inside, place = frame.filename.rpartition("/tilelang/")
        if place.startswith("jit/adapter/") or (frame.filename == __file__ and frame.name == _allocate_only.__name__):
            return False
        if not inside:
            continue
        if place != "jit/__init__.py" and not (place == "jit/kernel.py" and frame.name == "__call__"):
            return True
    return False


def _allocate_only(kernel: Any, *given: Any) -> Any:
    """Return new tensors as a compiled kernel would."""
    import torch

    compiler: Any = importlib.import_module("tilelang").tvm
    adapter: Any = kernel.adapter
    returned: list[int] = list(adapter.result_idx)
    taken = [index for index in range(len(adapter.params)) if index not in returned]
    if len(given) != len(taken):
        raise ValueError(f"the kernel takes {len(taken)} arguments, {len(given)} are given")
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    sizes: dict[Any, int] = {}
    for index, value in zip(taken, given, strict=True):
        shape = value.shape if isinstance(value, torch.Tensor) else ()
        sizes |= {dim: size for dim, size in zip(adapter.params[index].shape, shape, strict=False) if not _fixed(dim)}

    def size_of(dim: Any) -> int:
        if _fixed(dim):
            return dim
        return int(compiler.arith.Analyzer().simplify(compiler.tirx.stmt_functor.substitute(dim, sizes)))

    made = [
        torch.empty(
            [size_of(dim) for dim in adapter.params[index].shape],
            dtype=adapter.params[index].torch_dtype(),
            device=tensors[0].device if tensors else None,
        )
        for index in returned
    ]
    return made[0] if len(made) == 1 else made or None


def _fixed(dim: Any) -> bool:
    return isinstance(dim, int)


def _newest_resources(cache: Path) -> dict[str, Any]:
    """Read registers and spills from the cubin that was written last."""
    from kernels_eval.compile.triton import cubin_resources

    cubins = sorted(cache.rglob("kernel.cubin"), key=lambda path: path.stat().st_mtime_ns)
    return cubin_resources(cubins[-1].read_bytes()) if cubins else {}


BACKEND = TileLangBackend()
