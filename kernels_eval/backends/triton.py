"""Triton: compiled at the first launch, in the candidate's process; interpreted on a machine without a GPU."""

import contextlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

from kernels_eval.backends import Backend, follow_host_code
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError

_FUNCTION = re.compile(r"\bdef\s+(\w+)\s*\(")
_COMPILER_ERRORS = frozenset(
    {
        "CompilationError",
        "CompileTimeAssertionFailure",
        "UnsupportedLanguageConstruct",
        "OutOfResources",
        "PTXASError",
    }
)
"""Classes of Triton, by name: they lie in modules that Triton imports itself when it compiles."""
_CACHE = "TRITON_CACHE_DIR"
_LIST = "__grp__"
_MOST_FILES, _MOST_BYTES = 1024, 64 << 20
"""Of a cache that is taken over: a kernel has eight files of 100 KB in all."""


class TritonBackend(Backend):
    """Kernels decorated with `triton.jit`."""

    interprets = True
    warms = True

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile what the host code would launch on a GPU, into a cache in the request's folder. Launch nothing.

        The cache is found by the contents of kernels, types and constants: another launch is compiled where it is made.
        """
        from kernels_eval.interpreter.triton_patches.names import launches_compiled
        from kernels_eval.tracing.fake_cuda import VirtualDriver

        os.environ[_CACHE] = str(_cache_in(request["folder"]))
        architecture = request["targets"][0].removeprefix("cuda:")
        with launches_compiled(VirtualDriver(int(architecture))):
            note = follow_host_code(self, request, architecture)
        return {"resources": [], "libraries": {}, "note": note}

    def install(self, build: dict[str, Any]) -> None:
        """Copy what was compiled ahead into this candidate's own cache."""
        if build.get("cache"):
            take_over(_cache_in(build["cache"]), Path(os.environ[_CACHE]))

    def own_kernels(self, source: str) -> frozenset[str]:
        """Return every function that the source defines, in strings too: a kernel has the name of its function."""
        return frozenset(_FUNCTION.findall(source))

    @property
    def can_suppress(self) -> bool:
        """Launches go through one method."""
        return True

    @contextlib.contextmanager
    def suppressed(self) -> Generator[None]:
        """Launch nothing."""
        from kernels_eval.interpreter.triton_patches.names import launches_suppressed

        with launches_suppressed():
            yield

    def compile_failure(self, error: BaseException) -> CandidateError | None:
        """Return the compiler's message with the kernel's own line."""
        if type(error).__name__ not in _COMPILER_ERRORS:
            return None
        from kernels_eval.compile.triton import compiler_message

        return CandidateError("compile_error", ErrorCategory.TRITON_COMPILE, compiler_message(error))

    def configurations(self, module: Any) -> int:
        """Return the number of all autotuned kernels together."""
        from kernels_eval.interpreter.triton_patches.names import configurations

        return sum(map(configurations, list(module.__dict__.values())))

    def resources(self, module: Any) -> list[dict[str, Any]]:
        """Read registers and spills from each cubin that this process compiled."""
        from kernels_eval.compile.triton import cubin_resources
        from kernels_eval.interpreter.triton_patches.names import compiled_kernels

        found: list[dict[str, Any]] = []
        for name, kernel in (pair for value in list(module.__dict__.values()) for pair in compiled_kernels(value)):
            binary = kernel.asm.get("cubin") if hasattr(kernel.asm, "get") else None
            if isinstance(binary, bytes):
                target = getattr(kernel.metadata, "target", None)
                used = {
                    "kernel": name,
                    "architecture": f"cuda:{getattr(target, 'arch', '')}",
                    "shared_bytes": int(getattr(kernel.metadata, "shared", 0)),
                    **cubin_resources(binary),
                }
                if used not in found:
                    found.append(used)
        return found


def _cache_in(folder: str) -> Path:
    return Path(folder) / "triton"


def take_over(cache: Path, own: Path) -> None:
    """Copy a cache of compiled kernels, as far as it goes: what is missing is compiled at launch.

    A cache has one folder for each kernel, whose list of files (`__grp__…`) comes last: without it there is no kernel.
    The candidate's host code wrote here: links, pipes and more than kernels take are left.
    """
    taken = 0
    with contextlib.suppress(OSError):
        paths = list(itertools.islice(cache.glob("*/*"), _MOST_FILES))
        for path in sorted(paths, key=lambda each: each.name.startswith(_LIST)):
            found = path.lstat()
            taken += found.st_size
            if taken > _MOST_BYTES or not stat.S_ISREG(found.st_mode) or path.parent.is_symlink():
                return
            target = own / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            shutil.copyfile(path, partial)
            partial.replace(target)


BACKEND = TritonBackend()
