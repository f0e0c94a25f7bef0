"""Integrity of published artifacts: files are compared with the SHA-256 in the manifest before a stage reads them."""

from pathlib import Path

from tasks.pipeline.store import file_digest, read_manifest

_whole: dict[Path, tuple[int, int, str]] = {}
"""Files that this process has compared: time of change, size and digest."""


def damage_of(folder: Path) -> str | None:
    """Return one line on the first file of a published folder that is missing or changed; None if there is none.

    A file is read once a process, unless it changes. A folder without a manifest has nothing to be compared with.
    """
    for name, digest in (read_manifest(folder) or {"files": {}})["files"].items():
        file = folder / name
        if not file.is_file() or not _is_whole(file, digest):
            return f"{file}: damaged: not what was published, by the SHA-256 in the manifest"
    return None


def _is_whole(file: Path, digest: str) -> bool:
    state = file.stat()
    found = (state.st_mtime_ns, state.st_size, digest)
    if _whole.get(file) != found:
        if file_digest(file) != digest:
            return False
        _whole[file] = found
    return True
