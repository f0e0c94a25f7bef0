"""Interpreter process: contents of storages before a launch, put back to run it again."""

from collections.abc import Iterable

from kernels_eval.interpreter.memory_accesses import Storage


class KeptContent:
    """Copies of the bytes and origins of storages."""

    def __init__(self, storages: Iterable[Storage]) -> None:
        self._kept = [
            (storage, storage.memory.clone(), None if storage.origins is None else storage.origins.copy())
            for storage in storages
        ]

    def put_back(self) -> None:
        """Let the storages hold what they held. Can be called several times."""
        for storage, memory, origins in self._kept:
            storage.memory.copy_(memory)
            storage.origins = None if origins is None else origins.copy()
