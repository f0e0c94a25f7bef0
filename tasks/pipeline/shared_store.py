"""Store that machines share, behind a URL that fsspec opens (`s3://bucket/folder`): stages' results with their files.

    URL/files/<digest>       content of a file, by the digest that manifests have of it
    URL/results/<key>        result of a stage: its reference, its seconds, and the manifests of its artifacts, as JSON

A file's name is its content: writers are not in each other's way, and what is there is not sent again. A result is
written last, by a conditional put: the first writer's stays, and no reader sees one without its files. A file is
compared with its digest when it is fetched. Stages read and write the folder of runs, which is the local copy.

Sent is in a thread of its own, in order; a store that cannot be reached stops no stage. Nothing is removed from it.
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import fsspec
from fsspec.exceptions import FSTimeoutError
from pydantic import ValidationError

from kernels_eval.errors import InputError, first_line
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.cache import StageOutcome
from tasks.pipeline.digests import side_by_side, write_hashed
from tasks.pipeline.integrity import damage_of
from tasks.pipeline.store import parts_of, put_in_place, read_manifest

_LOGGER = logging.getLogger("kernelmill.store")


def _faults() -> tuple[type[Exception], ...]:
    """Return the errors by which a store that cannot be reached, or refuses, shows itself."""
    try:
        from botocore.exceptions import BotoCoreError  # pyright: ignore[reportMissingImports]  # of S3, an extra
    except ImportError:
        return OSError, FSTimeoutError
    return OSError, FSTimeoutError, BotoCoreError


_FAULTS = _faults()


class StoredArtifact(FrozenModel):
    """A published folder of a result."""

    uri: str
    """Path relative to the folder of runs."""
    manifest: dict[str, Any]


class StoredResult(FrozenModel):
    """Content of `results/<key>`."""

    outcome: StageOutcome
    artifacts: tuple[StoredArtifact, ...]


class SharedStore:
    """The store; stages of one run put into it what they made, and take from it what others made."""

    def __init__(self, url: str, runs_dir: Path) -> None:
        """Connect, and write `results/format.json`: a store that cannot be written to is found before any work is done.

        Raises InputError then, and if the URL is none or its library is missing.
        """
        folders = {"auto_mkdir": True} if url.startswith("file://") else {}
        try:
            self._files, self._root = fsspec.url_to_fs(url, **folders)
            self._files.pipe_file(f"{self._root}/results/format.json", b'{"format": 1}\n')
        except ImportError as error:
            raise InputError(f"store: {url}: {first_line(error)} (extra `s3`)") from error
        except (ValueError, *_FAULTS) as error:
            raise InputError(f"store: {url}: cannot be written to: {first_line(error)}") from error
        self._url, self._runs_dir = url, runs_dir
        self._unsent: list[str] = []
        self._waiting: SimpleQueue[tuple[str, StageOutcome] | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._work, name="shared-store", daemon=True)
        self._sender.start()

    def fetch(self, key: str) -> StageOutcome | None:
        """Bring a stage's result with its artifacts into the folder of runs, and return it; None if there is none."""
        try:
            stored = StoredResult.model_validate_json(self._files.cat_file(f"{self._root}/results/{key}"))
            for artifact in stored.artifacts:
                self._fetch_artifact(artifact)
        except FileNotFoundError:
            return None
        except ValidationError as error:
            _LOGGER.warning("%s/results/%s: not a result: %s; it is made here", self._url, key, first_line(error))
            return None
        except (InputError, *_FAULTS) as error:
            _LOGGER.warning("%s: %s; it is made here", self._url, first_line(error))
            return None
        return stored.outcome

    def offer(self, key: str, outcome: StageOutcome) -> None:
        """Have a stage's result sent, with its artifacts, unless it is there. Returns at once.

        `outcome`: its reference relative to the folder of runs. One that lies elsewhere is not sent.
        """
        self._waiting.put((key, outcome))

    def finish(self) -> None:
        """Wait until everything has been sent; log the names of what could not be."""
        self._waiting.put(None)
        self._sender.join()
        if self._unsent:
            _LOGGER.warning("%s: not stored, so other machines make it again: %s", self._url, ", ".join(self._unsent))

    def _work(self) -> None:
        while (offered := self._waiting.get()) is not None:
            try:
                self._send(*offered)
            except Exception as error:  # of whatever kind: a dead thread would send nothing more, and say nothing
                name = offered[1].reference.uri
                trace = None if isinstance(error, (InputError, *_FAULTS)) else error
                _LOGGER.warning("%s: %s was not stored: %s", self._url, name, first_line(error), exc_info=trace)
                self._unsent.append(name)

    def _send(self, key: str, outcome: StageOutcome) -> None:
        place = f"{self._root}/results/{key}"
        folder = self._runs_dir / outcome.reference.uri
        if Path(outcome.reference.uri).is_absolute() or self._files.exists(place):
            return
        artifacts = tuple(self._send_artifact(each) for each in (*parts_of(folder), folder))
        text = StoredResult(outcome=outcome, artifacts=artifacts).model_dump_json(indent=1)
        try:
            self._files.pipe_file(place, text.encode(), mode="create")
        except OSError:  # which one differs between file systems
            if not self._files.exists(place):  # otherwise another writer was first
                raise

    def _send_artifact(self, folder: Path) -> StoredArtifact:
        manifest, damage = read_manifest(folder), damage_of(folder)
        if manifest is None or damage is not None:
            raise InputError(damage or f"{folder}: expected a published artifact, found none")
        entries = [(folder / name, digest) for name, digest in manifest["files"].items() if (folder / name).is_file()]
        if len(entries) < len(manifest["files"]):
            raise InputError(f"{folder}: some of its files were left out")
        side_by_side(self._send_file, entries)
        return StoredArtifact(uri=str(folder.relative_to(self._runs_dir)), manifest=manifest)

    def _send_file(self, entry: tuple[Path, str]) -> None:
        file, digest = entry
        place = f"{self._root}/files/{digest}"
        if not (self._files.exists(place) and self._files.size(place) == file.stat().st_size):
            self._files.put_file(str(file), place)

    def _fetch_artifact(self, stored: StoredArtifact) -> None:
        folder, files = self._runs_dir / stored.uri, stored.manifest["files"]
        _check_inside(self._runs_dir, [stored.uri])
        _check_inside(folder, list(files))
        here = read_manifest(folder)
        if here is not None and here["files"] == files and damage_of(folder) is None:
            return
        with put_in_place(folder, stored.manifest) as partial:
            side_by_side(lambda entry: self._fetch_file(partial / entry[0], entry[1]), list(files.items()))

    def _fetch_file(self, target: Path, digest: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._files.open(f"{self._root}/files/{digest}", "rb") as source:
            write_hashed(source, target)


def _check_inside(folder: Path, names: Sequence[str]) -> None:
    """Raise InputError if a path that the store gave leads out of the folder."""
    for name in names:
        if not (folder / name).resolve().is_relative_to(folder.resolve()) or Path(name).is_absolute():
            raise InputError(f"{name}: expected a path inside {folder}")
