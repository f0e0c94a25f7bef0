"""Triton: compiled at the first launch, in the candidate's process; interpreted on a machine without a GPU."""

import contextlib
import re
from collections.abc import Generator, Iterator
from typing import Any

from kernels_eval.backends import Backend

_FUNCTION = re.compile(r"\bdef\s+(\w+)\s*\(")


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
        from triton.runtime.jit import JITFunction

        function: Any = JITFunction
        run = function.run
        function.run = lambda self, *args, **kwargs: None
        try:
            yield
        finally:
            function.run = run

    def resources(self, module: Any) -> list[dict[str, Any]]:
        """Read registers and spills from each cubin that this process compiled."""
        from kernels_eval.compile.triton import cubin_resources

        found: list[dict[str, Any]] = []
        for name, kernel in _compiled(module.__dict__):
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


def _compiled(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Compiled kernels of the functions in a namespace, out of autotuners and heuristics."""
    from triton.runtime.jit import JITFunction

    for value in list(namespace.values()):
        while value is not None and not isinstance(value, JITFunction) and hasattr(value, "fn"):
            value = value.fn
        if isinstance(value, JITFunction):
            caches: dict[Any, Any] = getattr(value, "device_caches", {})
            for cached in caches.values():
                for kernel in dict(cached[0]).values():
                    if hasattr(kernel, "asm"):
                        yield value.fn.__name__, kernel


BACKEND = TritonBackend()
