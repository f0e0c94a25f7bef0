"""The artifact store: a stage publishes its result with one atomic step; garbage of it is found and removed.

A stage writes into a temporary folder beside its destination; `manifest.json` (content digest, SHA-256 of each file,
metadata) is written last, then the folder is renamed. A folder without a manifest does not exist for a reader; a killed
stage leaves at most a `.partial-*` folder, which the next publication removes.

The content digest covers what a result is, not what was measured while it was made: a file that holds seconds or drawn
errors counts by the digest that its stage gives for it (`Contents`).

`find_garbage` lists artifacts that no run refers to, resume points of finished stages, leftovers of killed stages and
verdicts of a judge with other code.
Runs note an artifact after it was published; hence everything younger than an age is kept.
"""

import errno
import hashlib
import json
import os
import random
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.expectations import refusal
from tasks.pipeline.digests import digests_of, forget, remember
from tasks.pipeline.references import ArtifactRef
from tasks.pipeline.verdicts import outdated_folders

MANIFEST = "manifest.json"
PARTS = "parts"  # metadata of an artifact that stands for others: their folders, relative to its own
_PARTIAL_PREFIX = ".partial-"
_PARTIAL_LIFETIME_S = 24 * 3600.0
_RENAMES = 100
Record = TypeVar("Record", bound=BaseModel)
Contents = Mapping[str, Callable[[Path], str]]
"""By name of a file whose bytes are not its content: a function that returns the digest of what it holds."""


def measured(_: Path) -> str:
    """Return the digest of a file that holds measurements only: its name counts, its bytes do not."""
    return "measured"


def digest_of(value: Any) -> str:
    """Return 16 hex digits of SHA-256 over the value's canonical JSON (sorted keys)."""
    text = json.dumps(value, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_atomically(path: Path, text: str) -> None:
    """Write a text file atomically: a reader sees the old or the new content. A failed attempt leaves nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{_PARTIAL_PREFIX}{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):  # a disk that became read-only; the first error counts
            partial.unlink(missing_ok=True)
        raise


@contextmanager
def publish(
    destination: Path, metadata: dict[str, Any] | None = None, contents: Contents | None = None
) -> Generator[Path]:
    """Yield a temporary folder to fill; on success it becomes `destination`, on an error nothing is left.

    `metadata` is mutable: entries that the block adds are stored in the manifest as well. `contents`: digests of files
    that do not count by their bytes. If another writer has published the same destination meanwhile, its folder is
    replaced: equal keys mean equal content.
    """
    started = time.time()
    with _in_one_step(destination) as partial:
        yield partial
        paths = _files(partial)
        names = [str(path.relative_to(partial)) for path in paths]
        files = dict(zip(names, digests_of(paths), strict=True))
        content = {name: of(partial / name) for name, of in (contents or {}).items() if name in files}
        manifest = {
            "digest": digest_of(files | content),
            "files": files,
            "seconds": round(time.time() - started, 3),
            "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "metadata": metadata or {},
        }
        _write_manifest(partial, manifest)
    _remember_files(destination, files)


@contextmanager
def put_in_place(destination: Path, manifest: Mapping[str, Any]) -> Generator[Path]:
    """Yield a temporary folder to fill with the files of a manifest; it becomes `destination`, with this manifest.

    Raises InputError, and nothing is left, if a file is missing or not what the manifest says.
    """
    files: dict[str, str] = dict(manifest["files"])
    with _in_one_step(destination) as partial:
        yield partial
        there = [name for name in files if (partial / name).is_file()]
        found = dict(zip(there, digests_of([partial / name for name in there]), strict=True))
        wrong = next((name for name, digest in files.items() if found.get(name) != digest), None)
        if wrong is not None:
            raise InputError(f"{destination / wrong}: damaged: not what was published, by the SHA-256 in the manifest")
        _write_manifest(partial, manifest)
    _remember_files(destination, files)


@contextmanager
def _in_one_step(destination: Path) -> Generator[Path]:
    """Yield a temporary folder beside `destination`, which it becomes if the block ends without an error."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale_partials(destination.parent)
    partial = destination.parent / f"{_PARTIAL_PREFIX}{destination.name}-{uuid.uuid4().hex[:8]}"
    partial.mkdir()
    try:
        yield partial
        _replace_folder(partial, destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        forget(partial)


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))


def _remember_files(folder: Path, files: Mapping[str, str]) -> None:
    """Note the digests of files just published: the stage that reads them next, up to 100 GiB, need not do it twice."""
    for name, digest in files.items():
        remember(folder / name, digest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a published folder, or None if there is none."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not (isinstance(manifest["digest"], str) and isinstance(manifest["files"], dict)):
            raise TypeError("expected a text `digest` and a mapping `files`")
        if not isinstance(manifest.get("metadata", {}), dict):
            raise TypeError("expected a mapping `metadata`")
        return manifest
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{folder / MANIFEST}: not a manifest: {error}; delete the folder to have it made again"
        ) from error


def read_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata in the manifest of a published folder; empty if there is none."""
    return (read_manifest(folder) or {}).get("metadata", {})


def recorded(artifact: ArtifactRef, key: str, kind: type[Record], name: str) -> Record | None:
    """Return `metadata.<key>` of an artifact's manifest; None if there is none. Errors call it `name`."""
    found = read_metadata(artifact.path).get(key)
    try:
        return None if found is None else kind.model_validate(found)
    except ValidationError as error:
        raise InputError(f"{artifact.path}: manifest: metadata.{key}: not {name}: {refusal(error)}") from error


def parts_of(folder: Path) -> list[Path]:
    """Return the folders of the artifacts that a published one stands for; none for any other."""
    return [Path(os.path.normpath(folder / part)) for part in read_metadata(folder).get(PARTS, ())]


def published_digest(folder: Path) -> str:
    """Return the content digest of a published folder. Raises InputError if it is not one."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder}: expected a published artifact with a {MANIFEST}, found none")
    return str(manifest["digest"])


def discard(folder: Path, patterns: Sequence[str]) -> None:
    """Remove the files of a published folder that match one of the glob patterns.

    The artifact stays available under its digest, which names what was published. The manifest lists the removed files
    (`discarded`) and is written first: a reader never misses a file that the manifest names.
    """
    gone = [file for pattern in patterns for file in folder.glob(pattern) if file.is_file()]
    manifest = read_manifest(folder) if gone else None
    if manifest is None:
        return
    names = {str(file.relative_to(folder)) for file in gone}
    manifest["files"] = {name: digest for name, digest in manifest["files"].items() if name not in names}
    manifest["discarded"] = sorted(names | set(manifest.get("discarded", ())))
    _write_manifest(folder, manifest)
    for file in gone:
        file.unlink(missing_ok=True)


def is_available(reference: ArtifactRef) -> bool:
    """True if the artifact of a reference is still there, with the same content digest and all of its files."""
    manifest = read_manifest(reference.path)
    return (
        manifest is not None
        and manifest["digest"] == reference.digest
        and all((reference.path / name).exists() for name in manifest["files"])
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _replace_folder(source: Path, destination: Path) -> None:
    """Rename `source` to `destination`; an existing folder is moved aside first and then removed."""
    for _ in range(_RENAMES):
        try:
            source.rename(destination)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            aside = destination.parent / f"{_PARTIAL_PREFIX}old-{destination.name}-{uuid.uuid4().hex[:8]}"
            try:
                destination.rename(aside)
            except FileNotFoundError:  # another writer has moved it
                time.sleep(random.uniform(0, 0.01))
                continue
            shutil.rmtree(aside, ignore_errors=True)
    raise InfrastructureError(f"{destination}: could not be published: other writers keep replacing it")


def _remove_stale_partials(folder: Path) -> None:
    for path in folder.glob(f"{_PARTIAL_PREFIX}*"):
        try:
            if time.time() - path.stat().st_mtime > _PARTIAL_LIFETIME_S:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        except FileNotFoundError:
            continue


@dataclass(frozen=True)
class Garbage:
    """A folder or file that can be removed."""

    path: Path
    reason: str
    bytes: int


def find_garbage(runs_dir: Path, kept: Iterable[Path], older_than_s: float) -> list[Garbage]:
    """Return what can be removed below a folder of runs, largest first. `kept`: artifacts that runs refer to."""
    keep = {path.resolve() for path in kept}
    now = time.time()

    def is_old(path: Path) -> bool:
        try:
            return now - path.stat().st_mtime >= older_than_s
        except FileNotFoundError:
            return False

    found: list[Garbage] = []
    for artifact in sorted((runs_dir / "store").glob("*/*")):
        if artifact.name.startswith(_PARTIAL_PREFIX):
            if is_old(artifact):
                found.append(_garbage(artifact, "left by a stage that was killed"))
        elif artifact.resolve() not in keep and is_old(artifact):
            reason = "no run refers to it" if read_manifest(artifact) else "was never published"
            found.append(_garbage(artifact, reason))
            pages = runs_dir / "data_docs" / artifact.parent.name / artifact.name
            if pages.is_dir():
                found.append(_garbage(pages, "checks of an artifact that no run refers to"))
    for work in sorted((runs_dir / "work").glob("*/*")):
        if (runs_dir / "store" / work.parent.name / work.name).is_dir() and is_old(work):
            found.append(_garbage(work, "resume points of a finished stage"))
    for partial in sorted((runs_dir / "trajectories").glob(f"*/{_PARTIAL_PREFIX}*")):
        if is_old(partial):
            found.append(_garbage(partial, "left by a stage that was killed"))
    for folder in outdated_folders(runs_dir):
        if is_old(folder):
            found.append(_garbage(folder, "verdicts of a judge with other code"))
    removed = {garbage.path.resolve() for garbage in found}
    for record in sorted((runs_dir / "prefect" / "results").glob("*")):
        if record.is_file() and is_old(record) and _refers_to(record, runs_dir, removed):
            found.append(_garbage(record, "cache record of an artifact that goes"))
    return sorted(found, key=lambda garbage: (-garbage.bytes, str(garbage.path)))


def remove(garbage: Iterable[Garbage]) -> tuple[int, list[Path]]:
    """Remove these folders and files; return the bytes freed, and what could not be removed."""
    freed, kept = 0, list[Path]()
    for item in garbage:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            with suppress(OSError):
                item.path.unlink(missing_ok=True)
        if item.path.exists():
            kept.append(item.path)
        else:
            freed += item.bytes
    return freed, kept


def _garbage(path: Path, reason: str) -> Garbage:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return Garbage(path, reason, sum(file.lstat().st_size for file in files))


def _refers_to(record: Path, runs_dir: Path, removed: set[Path]) -> bool:
    """True if the artifact of a cache record is among the removed ones."""
    try:
        content = json.loads(record.read_bytes())
        result = content["result"]
        stored = json.loads(result) if isinstance(result, str) else result
        uri = stored["data"]["reference"]["uri"] if "data" in stored else stored["reference"]["uri"]
    except (ValueError, KeyError, TypeError):
        return False
    return (runs_dir / uri).resolve() in removed
