"""The warm processes of one judge: started when first needed, and again when they died."""

import threading
from pathlib import Path

from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.zygote import DEVICE_WAY, Zygote

_WAYS = {"cpu": "interpret", "cuda": DEVICE_WAY}
"""Device -> the zygote that workers come from."""


class Zygotes:
    """Zygotes by what they are for. Safe for threads."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._known: dict[str, Zygote] = {}
        self._lock = threading.Lock()
        self._closed = False

    def judging(self, device: str) -> Zygote:
        """The one that candidates run in."""
        return self._get(_WAYS[device])

    def building(self) -> Zygote:
        """The one that builds."""
        return self._get("build")

    def compiling(self) -> Zygote:
        """The one that compiles."""
        return self._get("compile")

    def _get(self, way: str) -> Zygote:
        with self._lock:
            if self._closed:
                raise InfrastructureError("the judge is closed")
            zygote = self._known.get(way)
            if zygote is None or not zygote.is_alive:
                zygote = self._known[way] = Zygote(way, self._scratch)
            return zygote

    def kill(self, process: int) -> None:
        """Kill a worker that no longer answers."""
        for way in _WAYS.values():
            if way in self._known:
                self._known[way].kill(process)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._closed = True
            for zygote in self._known.values():
                zygote.close()
