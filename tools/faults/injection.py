"""Faults as they are done to a run: signals to its processes, a disk without room, damaged files, another clock.

All processes of the run are descendants of this one, or were adopted by it (`adopt_orphans`).
"""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from schedule import Fault, Kind

_PR_SET_CHILD_SUBREAPER = 36
DISK_MIB = 2600
"""A little more than a run wants to find free."""
TARGETS = {
    Kind.RANK_KILLED: "ray::Rank",
    Kind.RANK_STOPPED: "ray::Rank",
    Kind.ROLLOUT_KILLED: "ray::Rollout",
    Kind.ENGINE_KILLED: "sglang_server.py",
    Kind.JUDGE_KILLED: "kernels_eval.pool.",
    Kind.JUDGE_SLOW: "kernels_eval.pool.",
    Kind.RAYLET_KILLED: "raylet/raylet",
    Kind.CONTROL_KILLED: "gcs/gcs_server",
    Kind.PREFECT_KILLED: "prefect server start",
}
"""Part of the command line of the processes that a fault concerns."""
LOSING_NODE = {Kind.NODE_LOST, Kind.STORE_LOST, Kind.STORE_GARBLED}


def adopt_orphans() -> None:
    """Become the parent of what outlives its own: judges start theirs in an environment where no mark would show."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def processes(spared: Iterable[int] = ()) -> list[psutil.Process]:
    """Return the living descendants of this process, but for `spared` and theirs. Ended ones are waited for."""
    found: list[psutil.Process] = []
    own = {child.pid for child in psutil.Process().children()}
    kept = set(spared)
    for process in list(kept):
        with suppress(psutil.Error):
            kept |= {child.pid for child in psutil.Process(process).children(recursive=True)}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, ChildProcessError):
            if process.pid in kept:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
            elif process.pid in own and process.pid not in _POPEN:
                os.waitpid(process.pid, os.WNOHANG)
    return found


_POPEN: set[int] = set()
"""Processes that a Popen of this program waits for."""


def start(command: Sequence[str], log: Path, environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command whose output is added to a file."""
    with log.open("ab") as out:
        started = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder)
    _POPEN.add(started.pid)
    return started


def kill_all(spared: Iterable[int]) -> None:
    """Kill every process of the run, until none is left."""
    while left := processes(spared):
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)


def called(part: str, spared: Iterable[int] = ()) -> list[psutil.Process]:
    """Return the processes of the run with these words in their command line, the oldest first."""
    found: list[psutil.Process] = []
    for process in processes(spared):
        with suppress(psutil.Error):
            if part in " ".join(process.cmdline()):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


class Disk:
    """Folder of runs in a small file system, which can be made to have no room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
        self.mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Take away what is free. Nothing is written: the file system shrinks to what lies in it."""
        self._resize(f"{-(-self.used // 4096) * 4}k")

    def free(self) -> None:
        """Give the room back."""
        self._resize(f"{DISK_MIB}m")

    @property
    def used(self) -> int:
        """Bytes that lie in it."""
        return shutil.disk_usage(self.folder).used

    def remove(self) -> None:
        """End the file system, with all that lies in it."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.folder)], check=True, capture_output=True)


@dataclass(frozen=True)
class Switches:
    """Files by which processes of a run hear of a fault."""

    nan: Path
    """While it is there, the next gradient is poisoned (injected/sitecustomize.py)."""
    clock: Path
    """Seconds by which the clock is wrong, as libfaketime reads them."""


class Injector:
    """Faults of one run. Each is given once by `inject`; `settle` ends what lasts."""

    def __init__(self, disk: Disk, driver: subprocess.Popen[bytes], spared: Sequence[int], files: Switches) -> None:
        self._disk, self._driver, self._spared, self._files = disk, driver, spared, files
        self._ends: list[tuple[float, Callable[[], None]]] = []

    def inject(self, fault: Fault) -> str | None:
        """Do this fault; return what it hit, None if nothing is there yet that it could hit."""
        if fault.kind in TARGETS:
            return self._to_process(fault)
        if fault.kind in LOSING_NODE:
            kill_all(self._spared)
            return "all processes"
        if fault.kind == Kind.DRIVER_KILLED:
            self._driver.kill()
        elif fault.kind == Kind.DRIVER_TERMINATED:
            self._driver.terminate()
        elif fault.kind == Kind.DISK_FULL:
            self._disk.fill()
            self._until(fault.hold_s, self._disk.free)
        elif fault.kind == Kind.GRADIENT_NAN:
            self._files.nan.touch()
        elif fault.kind == Kind.CLOCK_JUMPED:
            self._files.clock.write_text(f"{fault.hold_s:+.1f}\n")
        return "driver" if "driver" in fault.kind else str(fault.kind)

    def settle(self, now: bool = False) -> None:
        """End what has lasted long enough; `now`: all of it."""
        for moment, end in list(self._ends):
            if now or time.monotonic() >= moment:
                end()
                self._ends.remove((moment, end))

    def _until(self, seconds: float, end: Callable[[], None]) -> None:
        self._ends.append((time.monotonic() + seconds, end))

    def _to_process(self, fault: Fault) -> str | None:
        found = called(TARGETS[fault.kind], self._spared)
        if not found:
            return None
        chosen = found if fault.kind == Kind.JUDGE_SLOW else [found[int(fault.pick * len(found))]]
        said = " ".join(chosen[0].cmdline())[-60:] if fault.kind != Kind.JUDGE_SLOW else f"{len(chosen)} processes"
        lasting = fault.kind in (Kind.JUDGE_SLOW, Kind.RANK_STOPPED)
        for process in chosen:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP if lasting else signal.SIGKILL)
        if lasting:
            self._until(fault.hold_s, lambda: _go_on(chosen))
        return said


def _go_on(stopped: Sequence[psutil.Process]) -> None:
    for process in stopped:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)


def damage(runs: Path, fault: Fault) -> str:
    """Damage what a run has published so far; return what was done to which file."""
    files = sorted(path for path in runs.glob("store/**/*") if path.is_file())
    if not files:
        return "nothing published"
    chosen = files[int(fault.pick * len(files))]
    way = int(fault.hold_s * 10) % 3
    named = chosen.relative_to(runs)
    if fault.kind == Kind.STORE_GARBLED:
        content = bytearray(chosen.read_bytes())
        if way == 0 or not content:
            chosen.write_bytes(bytes(content[: len(content) // 2]))
            return f"half of {named}"
        content[int(fault.pick * len(content))] ^= 0x41
        chosen.write_bytes(bytes(content))
        return f"a byte of {named}"
    if way == 0:
        chosen.unlink()
        return f"{named} removed"
    if way == 1:
        shutil.rmtree(chosen.parent)
        return f"{named.parent} removed"
    kept = sorted((runs / "prefect" / "results").iterdir())
    result = kept[int(fault.pick * len(kept))]
    result.unlink()
    return f"{result.relative_to(runs)} removed"
