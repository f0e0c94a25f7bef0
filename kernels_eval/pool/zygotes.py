"""The warm processes of one judge: started when first needed, and again when they died."""

import threading
from pathlib import Path

from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.zygote import DEVICE_WAY, Template

_WAYS = {"cpu": "interpret", "cuda": DEVICE_WAY}
"""Device -> the template that workers come from."""


class Templates:
    """Templates by what they are for. Safe for threads."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._known: dict[str, Template] = {}
        self._lock = threading.Lock()
        self._closed = False

    def judging(self, device: str) -> Template:
        """The one that candidates run in."""
        return self._get(_WAYS[device])

    def building(self) -> Template:
        """The one that builds."""
        return self._get("build")

    def compiling(self) -> Template:
        """The one that compiles."""
        return self._get("compile")

    def _get(self, way: str) -> Template:
        with self._lock:
            if self._closed:
                raise InfrastructureError("the judge is closed")
            template = self._known.get(way)
            if template is None or not template.is_alive:
                template = self._known[way] = Template(way, self._scratch)
            return template

    def kill(self, process: int) -> None:
        """Kill a worker that no longer answers."""
        for way in _WAYS.values():
            if way in self._known:
                self._known[way].kill(process)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._closed = True
            for template in self._known.values():
                template.close()
