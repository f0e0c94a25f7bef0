"""Code version of a stage, and content digest of files: parts of cache keys.

The version is a digest over the stage's module and every module of this project that it imports, directly or not, also
inside functions, with the data files beside them (JSON, YAML). Comments, layout and docstrings do not count. Sources
are parsed, not imported: a cache hit needs no torch. Not covered: versions of libraries, modules named in strings only.
What a setting names counts with the setting (kernels_eval.doors).
"""

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from kernels_eval.sources import combined, digests_behind, file_digest

_OUR_PACKAGES = ("extras", "tasks", "kernels_eval")
_NOT_DECISIVE = {
    *(f"tasks.pipeline.{name}" for name in ("stage", "cache", "store", "integrity", "code_version", "verdicts")),
    *("tasks.cluster.workers", "tasks.cluster.placement"),
}
"""Modules that move results and never decide them."""

_LARGE_BYTES = 64 * 2**20


@functools.cache
def code_version(module: str) -> str:
    """Return 16 hex digits for the code behind `module`, e.g. `tasks.update.train`."""
    found = digests_behind(module, _OUR_PACKAGES.__contains__, _NOT_DECISIVE.__contains__)
    digests = {name: digest for name, (_, digest) in found.items()}
    for folder in {path.parent for path, _ in found.values()}:
        digests |= {f"{folder.name}/{path.relative_to(folder)}": file_digest(path) for path in _data_files(folder)}
    return combined(digests)


def content_digest(path: Path) -> str:
    """Return 16 hex digits for a file, or for every file in a folder (but version control's), by name and content.

    Of a file above 64 MiB (weights) its size and time of change stand for the content.
    """
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        name = file.relative_to(path) if file != path else Path(file.name)
        if ".git" in name.parts:
            continue
        state = file.stat()
        content = f"{state.st_size} {state.st_mtime_ns}" if state.st_size > _LARGE_BYTES else file_digest(file)
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the data files of a stage's folder; the top folder of a package holds the stages, not data."""
    if (folder / "__init__.py").is_file() and folder.name not in _OUR_PACKAGES:
        for pattern in ("*.json", "*.yaml"):
            yield from folder.rglob(pattern)
