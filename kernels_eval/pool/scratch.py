"""Scratch folder: home, temporary files and compiler cache of the judge's processes. Removed with the judge, however
it ended.

A lock on `.lock` in the folder marks it as in use, also for judges in other containers. A process that belongs to
nobody waits for the lock and removes the folder: whoever ends the judge's processes, as Ray does with all children of a
worker, does not end that one. If it was killed too, the next judge to start removes the folder.

No clock that somebody may set decides what of a living judge goes: its folder has its name only while the lock is held,
and its files are old once this process has seen them unchanged for long enough.
"""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kernels_eval.sandbox.folders import remove_folder

PREFIX = "kernels-eval-"
_LOCK = ".lock"
_UNLOCKED_LIFETIME_S = 3600.0
"""Of what has the name but no lock: the rest of a folder that was being removed, or a folder of other programs."""
_KEPT = frozenset({_LOCK, "builds", "device.lock", "device.door", "device-memory"})
_CACHES = ("triton", "torchinductor_")
"""Folders of caches: their contents are removed, they stay."""
_FILE_LIFETIME_S = 300.0
"""Longer than any compilation takes. Outcomes are cached elsewhere (kernels_eval.compile.one_shot)."""
_TRIM_EVERY_S = 60.0
_REMOVE = 'for again in 1 2 3 4 5; do rm -rf "$0" && exit; sleep 1; done'
"""Again: processes that are just ending may still write into the folder."""


class Seen(NamedTuple):
    """A file or folder as it was when it was first seen so."""

    inode: int
    changed_ns: int
    """Its own note of when it changed, which is compared with itself alone."""
    since_s: float
    """When it was seen, by `time.monotonic`."""


class Scratch:
    """The scratch folder of one judge."""

    def __init__(self, keep_caches: bool = False) -> None:
        """`keep_caches`: keep the compiler's cache, which candidates on a GPU read."""
        remove_left_behind(Path(tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        # Candidates that compile have users of their own: they find what was built, and list nothing.
        made.chmod(0o711)
        self._lock = (made / _LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Named only now: another judge that starts would remove a folder whose lock is not held.
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))
        _remove_when_unlocked(self.path)
        self._keep_caches = keep_caches
        self._trimming = threading.Lock()
        self._trimmed = time.monotonic()
        self._seen: dict[Path, Seen] = {}

    def trim(self) -> None:
        """Remove old temporary files, at most once a minute: a server that runs for months must not fill the disk."""
        if time.monotonic() - self._trimmed < _TRIM_EVERY_S or not self._trimming.acquire(blocking=False):
            return
        try:
            self._trimmed = time.monotonic()
            self._seen = remove_old_files(self.path, self._seen, self._trimmed, self._keep_caches)
        finally:
            self._trimming.release()

    def close(self) -> None:
        """Remove the folder."""
        remove_folder(self.path)
        self._lock.close()


def _remove_when_unlocked(folder: Path) -> None:
    """Start a process, not as a child, that removes a folder as soon as nobody holds its lock."""
    # Opened here: `flock PATH` would create the file anew in a folder that is just being removed.
    with contextlib.suppress(FileNotFoundError), (folder / _LOCK).open() as lock:  # no shell: the next judge does it
        subprocess.run(
            ["sh", "-c", f"{{ flock {lock.fileno()} && {_REMOVE}; }} &", folder],
            env={"PATH": os.environ.get("PATH", os.defpath)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[lock.fileno()],
            start_new_session=True,
            check=False,
        )


def remove_old_files(folder: Path, seen: Mapping[Path, Seen], now_s: float, keep_caches: bool) -> dict[Path, Seen]:
    """Remove entries that have been seen unchanged for `_FILE_LIFETIME_S`, except for folders that are in use.

    `seen`: what the call before has returned. `now_s`: by `time.monotonic`. Returns the entries that are left.
    """
    left: dict[Path, Seen] = {}
    for path in _may_go(folder, keep_caches):
        with contextlib.suppress(OSError):  # another process may be removing it too
            found = path.lstat()
            entry, before = Seen(found.st_ino, found.st_mtime_ns, now_s), seen.get(path)
            if before is not None and before[:2] == entry[:2]:
                entry = before
            if now_s - entry.since_s <= _FILE_LIFETIME_S:
                left[path] = entry
            else:
                remove_folder(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return left


def _may_go(folder: Path, keep_caches: bool) -> Iterator[Path]:
    """Yield the entries that may be removed: temporary files and folders, and entries of caches."""
    for path in _entries(folder):
        if path.name.startswith(_CACHES):
            yield from [] if keep_caches else _entries(path)
        elif path.name not in _KEPT:
            yield path


def remove_left_behind(parent: Path) -> None:
    """Remove scratch folders whose judge is gone."""
    for folder in parent.glob(f"{PREFIX}*"):
        # Suppressed: in use (the lock is held), or removed by another judge meanwhile.
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            if not (folder / _LOCK).exists():
                if abs(time.time() - folder.stat().st_mtime) > _UNLOCKED_LIFETIME_S:  # the clock may have been set back
                    remove_folder(folder)
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
