"""Integrity of published artifacts: files are compared with the SHA-256 in the manifest before a stage reads them."""

from pathlib import Path

from tasks.pipeline.store import compared, file_digest, read_manifest, state_of


def damage_of(folder: Path) -> str | None:
    """Return one line on the first file of a published folder that is missing or changed; None if there is none.

    A file is read once a process, unless it changes; not at all if this process has published it. A folder without a
    manifest has nothing to be compared with.
    """
    for name, digest in (read_manifest(folder) or {"files": {}})["files"].items():
        file = folder / name
        if not file.is_file() or not _is_whole(file, digest):
            return f"{file}: damaged: not what was published, by the SHA-256 in the manifest"
    return None


def _is_whole(file: Path, digest: str) -> bool:
    found = state_of(file, digest)
    if compared.get(file.absolute()) != found:
        if file_digest(file) != digest:
            return False
        compared[file.absolute()] = found
    return True
