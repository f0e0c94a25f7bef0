"""SHA-256 of files: taken while a file is written or copied, and of the other files of a folder side by side.

A process remembers the files whose content it has hashed (`compared`), by time of change and size. Whoever publishes a
folder, or compares it with its manifest, reads only files that are not remembered. A rank writes a checkpoint in a
process of its own: it hands over what it remembers of the folder (`hand_over`), and the publisher takes it (`learn`).
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

DIGEST_CHARACTERS = 32
"""Hex digits of a file's SHA-256 that manifests have."""
Known = tuple[int, int, str]
"""Time of change (ns since 1970), size (bytes) and digest of a file."""
compared: dict[Path, Known] = {}
"""Files whose content this process has hashed, by absolute path."""
_READERS = 8
"""Files that are hashed at a time at most: one takes 0.7 to 2 GB/s of a core and as much of the disk."""
_BLOCK_BYTES = 8 * 2**20
T = TypeVar("T")
R = TypeVar("R")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path) -> str:
    """Return the first hex digits of a file's SHA-256, as manifests have them. Always reads the file."""
    return sha256_of(path)[:DIGEST_CHARACTERS]


def digests_of(files: Sequence[Path]) -> list[str]:
    """Return the digests of files in their order; reads those that this process does not know, several at a time."""
    return side_by_side(_digest_of, files)


def side_by_side(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return a function's results in the order of the items. It is one that reads files: threads do it together."""
    threads = min(len(items), _READERS, os.cpu_count() or 1)
    if threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


def copy_hashed(source: Path, target: Path) -> str:
    """Copy a file's bytes, not its mode, and return their SHA-256, 64 hex digits. The copy is not read again.

    Whoever publishes the folder of the copy knows its digest.
    """
    with source.open("rb") as file:
        return write_hashed(file, target)


def write_hashed(source: BinaryIO, target: Path) -> str:
    """Write what is left of a stream to a file, as `copy_hashed` does with a file's bytes."""
    with HashedFile(target) as copy:
        while block := source.read(_BLOCK_BYTES):
            copy.write(block)
    return copy.sha256


def _digest_of(file: Path) -> str:
    before = _state_of(file)
    known = compared.get(file.absolute())
    if known is not None and known[:2] == before:
        return known[2]
    digest = file_digest(file)
    compared[file.absolute()] = (*before, digest)
    return digest


def remember(file: Path, digest: str) -> None:
    """Note the digest of a file that nobody is writing any more; nothing if it is gone."""
    with suppress(OSError):
        compared[file.absolute()] = (*_state_of(file), digest)


def hand_over(folder: Path) -> dict[str, Known]:
    """Return what this process knows of the files below a folder, by their path in it, and drop it."""
    known = {str(file.relative_to(folder.absolute())): compared[file] for file in _known_below(folder)}
    forget(folder)
    return known


def learn(folder: Path, known: Mapping[str, Known]) -> None:
    """Take over what another process knows of the files below a folder. A file that differs by now is read anyway."""
    for name, found in known.items():
        compared[(folder / name).absolute()] = found


def forget(folder: Path) -> None:
    """Drop what this process knows of a file, or of the files below a folder."""
    for file in _known_below(folder):
        del compared[file]


def _known_below(folder: Path) -> list[Path]:
    root = folder.absolute()
    return [file for file in list(compared) if file.is_relative_to(root)]


def _state_of(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


class HashedFile:
    """A new file, hashed in a second thread while it is written. A context.

    The digest is noted when the context ends without an error. Bytes given to `write` may not change before the next
    `write` returns, or the context ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("wb", buffering=0)
        self._sha256 = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="sha256")
        self._pending: Future[None] | None = None

    def __enter__(self) -> "HashedFile":
        return self

    def write(self, data: bytes | memoryview) -> None:
        """Write all of these bytes. Returns when they are written; they may still be being hashed."""
        self.wait()
        self._pending = self._hasher.submit(self._sha256.update, data)
        rest = memoryview(data)
        while rest:  # the system writes 2 GiB at once at most
            rest = rest[self._stream.write(rest) :]

    @property
    def sha256(self) -> str:
        """SHA-256 of what is hashed so far, 64 hex digits; once the context has ended: of the file."""
        return self._sha256.hexdigest()

    def wait(self) -> None:
        """Wait until everything that was given is hashed: the bytes may change, or their memory may go."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._hasher.shutdown()
            self._stream.close()
        if kind is None:
            remember(self._path, self.sha256[:DIGEST_CHARACTERS])
