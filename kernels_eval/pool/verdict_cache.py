"""Verdict cache, in the caller's process: addressed by content, in memory and optionally in a folder that outlives it.

Key: problem (normalised), kernel source, every setting that a verdict depends on, and the versions of the judge,
Triton and PyTorch. `<cache_dir>/<first two hex digits>/<key>.json` holds one verdict, written whole or not at all.
Faults are not kept.
"""

import contextlib
import hashlib
import json
import os
import threading
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cachetools import LRUCache
from pydantic import ValidationError

from kernels_eval.config import JudgeConfig
from kernels_eval.frozen import decisive_part, with_foreign_source
from kernels_eval.problem import Problem
from kernels_eval.verdict import JUDGE_VERSION, Verdict

_VERDICT_BYTES = 2000
"""Memory of a verdict beside its message and resources (measured: 1700, and the cache's share)."""
_RESOURCES_BYTES = 800


def verdict_key(problem: Problem, kernel_source: str, config: JudgeConfig, hardware: str = "") -> str:
    """Return the key of one verdict, 32 hex digits. `hardware`: the GPU that kernels are timed on, or empty."""
    parts = [
        JUDGE_VERSION,
        *_library_versions(),
        problem.digest,
        kernel_source,
        json.dumps(decisive_part(config, of_code=with_foreign_source), sort_keys=True),
        hardware,
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


@cache
def _library_versions() -> tuple[str, ...]:
    """Return the versions of the packages that verdicts depend on, from their metadata: they are not imported."""
    return tuple(f"{name} {_version(name)}" for name in ("triton", "torch"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


class VerdictCache:
    """Verdicts by key. Safe for threads, and for processes that share the folder."""

    def __init__(self, folder: Path | None, max_mb: float = 64) -> None:
        """`max_mb`: approximate memory for verdicts; the least recently used are dropped."""
        self._folder = folder
        self._verdicts: LRUCache[str, Verdict] = LRUCache(max_mb * 2**20, getsizeof=_size_of)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of verdicts in memory."""
        return len(self._verdicts)

    def get(self, key: str) -> Verdict | None:
        """Return the verdict, or None; a damaged file counts as none."""
        with self._lock:
            verdict = self._verdicts.get(key)
        if verdict is not None or self._folder is None:
            return verdict
        try:
            verdict = Verdict.model_validate_json(self._path(key).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        self._remember(key, verdict)
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict, unless it is a fault."""
        if verdict.is_fault:
            return
        self._remember(key, verdict)
        if self._folder is None:
            return
        path = self._path(key)
        partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        with contextlib.suppress(OSError):  # a full or read-only disk costs the cache, not the verdict
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(verdict.model_dump_json(), encoding="utf-8")
            partial.replace(path)

    def _remember(self, key: str, verdict: Verdict) -> None:
        with self._lock, contextlib.suppress(ValueError):  # one verdict is larger than the whole cache
            self._verdicts[key] = verdict

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.json"


def _size_of(verdict: Verdict) -> int:
    """Return the approximate bytes of memory."""
    return _VERDICT_BYTES + len(verdict.error_message or "") + _RESOURCES_BYTES * len(verdict.resources)
