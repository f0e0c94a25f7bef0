"""Triton: compiled at the first launch, in the candidate's process; interpreted on a machine without a GPU."""

import contextlib
import re
from collections.abc import Generator
from typing import Any

from kernels_eval.backends import Backend
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


class TritonBackend(Backend):
    """Kernels decorated with `triton.jit`."""

    interprets = True

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


BACKEND = TritonBackend()
