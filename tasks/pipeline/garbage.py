"""What of a store no run needs any more: artifacts that no run refers to, resume points of finished stages, leftovers of killed stages.

`find_garbage` is told what is to be kept; whatever is younger than an age is kept too, since a run that is going on notes a
stage's artifact only after the stage has published it.
"""

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks.pipeline.store import read_manifest

PARTIAL_PREFIX = ".partial-"


@dataclass(frozen=True)
class Garbage:
    """A folder or file that can go."""

    path: Path
    reason: str
    bytes: int


def find_garbage(runs_dir: Path, kept: Iterable[Path], older_than_s: float) -> list[Garbage]:
    """Return what can be removed below a folder of runs, largest first. `kept`: folders of artifacts that runs refer to."""
    keep = {path.resolve() for path in kept}
    now = time.time()

    def is_old(path: Path) -> bool:
        try:
            return now - path.stat().st_mtime >= older_than_s
        except FileNotFoundError:
            return False

    found: list[Garbage] = []
    for artifact in sorted((runs_dir / "store").glob("*/*")):
        if artifact.name.startswith(PARTIAL_PREFIX):
            if is_old(artifact):
                found.append(_garbage(artifact, "left by a stage that was killed"))
        elif artifact.resolve() not in keep and is_old(artifact):
            reason = "no run refers to it" if read_manifest(artifact) else "was never published"
            found.append(_garbage(artifact, reason))
            for pages in (runs_dir / "data_docs" / artifact.parent.name / artifact.name,):
                if pages.is_dir():
                    found.append(_garbage(pages, "checks of an artifact that no run refers to"))
    for work in sorted((runs_dir / "work").glob("*/*")):
        if (runs_dir / "store" / work.parent.name / work.name).is_dir() and is_old(work):
            found.append(_garbage(work, "resume points of a finished stage"))
    for partial in sorted((runs_dir / "trajectories").glob(f"*/{PARTIAL_PREFIX}*")):
        if is_old(partial):
            found.append(_garbage(partial, "left by a stage that was killed"))
    removed = {garbage.path.resolve() for garbage in found}
    for record in sorted((runs_dir / "prefect" / "results").glob("*")):
        if record.is_file() and is_old(record) and _refers_to(record, removed):
            found.append(_garbage(record, "cache record of an artifact that goes"))
    return sorted(found, key=lambda garbage: (-garbage.bytes, str(garbage.path)))


def remove(garbage: Iterable[Garbage]) -> int:
    """Remove it; return the bytes that are free now. What cannot be removed stays."""
    freed = 0
    for item in garbage:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)
        freed += item.bytes if not item.path.exists() else 0
    return freed


def _garbage(path: Path, reason: str) -> Garbage:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return Garbage(path, reason, sum(file.lstat().st_size for file in files))


def _refers_to(record: Path, removed: set[Path]) -> bool:
    """True where a cache record's artifact is among what is removed, or is gone."""
    try:
        content = json.loads(record.read_bytes())
        result = content["result"]
        stored = json.loads(result) if isinstance(result, str) else result
        uri = Path(stored["data"]["reference"]["uri"] if "data" in stored else stored["reference"]["uri"])
    except (ValueError, KeyError, TypeError):
        return False
    return uri.resolve() in removed
