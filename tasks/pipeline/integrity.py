"""Integrity of published artifacts: files are compared with the SHA-256 in the manifest before a stage reads them."""

from fnmatch import fnmatch
from pathlib import Path

from tasks.pipeline.digests import digests_of, forget
from tasks.pipeline.store import MANIFEST, read_manifest

OPTIMIZER_FILES = ("optimizer/*", "critic/optimizer/*")
"""Folders in a checkpoint for data that only an optimizer reads (tasks.training.checkpoint)."""


def damage_of(folder: Path) -> str | None:
    """Return one line on the first file of a published folder that is missing or changed; None if there is none.

    A file is read once a process, unless it changes; not at all if this process has published it. A folder without a
    manifest has nothing to be compared with. A policy may be copied without its optimizer's state, which is larger than
    its weights: what needs the state looks if it is there.
    """
    return _damage_of(folder, 0)


def later_damage_of(folder: Path) -> str | None:
    """Do what `damage_of` does, but read only files that were written after the manifest, which is published last.

    Cheap where nothing changed. A disk that changes bits without a write is not noticed.
    """
    manifest = folder / MANIFEST
    return _damage_of(folder, manifest.stat().st_mtime_ns) if manifest.is_file() else None


def _damage_of(folder: Path, written_after_ns: int) -> str | None:
    listed: dict[str, str] = (read_manifest(folder) or {"files": {}})["files"]
    there = {name: digest for name, digest in listed.items() if (folder / name).is_file()}
    missing = next((name for name in listed if name not in there and not _is_left_out(folder, name)), None)
    if missing is not None:
        return f"{folder / missing}: missing: the manifest lists it"
    later = {name: digest for name, digest in there.items() if _written_ns(folder / name) > written_after_ns}
    found = digests_of([folder / name for name in later])
    for (name, digest), current in zip(later.items(), found, strict=True):
        if current != digest:
            forget(folder / name)  # whoever mends it may do so within a tick of the file system's clock
            return f"{folder / name}: damaged: not what was published, by the SHA-256 in the manifest"
    return None


def _is_left_out(folder: Path, name: str) -> bool:
    """True for a file of an optimizer's state if no such state is in the folder."""
    is_state = any(fnmatch(name, pattern) for pattern in OPTIMIZER_FILES)
    return is_state and not any((folder / pattern).parent.exists() for pattern in OPTIMIZER_FILES)


def _written_ns(file: Path) -> int:
    return file.stat().st_mtime_ns
