"""The scratch folder: removed with its judge, or after it; trimmed while it lives."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kernels_eval.pool.scratch import PREFIX, Scratch, remove_left_behind, remove_old_files


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def made(path: Path, age_s: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_gone_when_closed(temporary: Path) -> None:
    scratch = Scratch()
    made(scratch.path / "deep" / "file")
    assert scratch.path.parent == temporary
    scratch.close()
    assert not scratch.path.exists()


def test_gone_for_good_when_closed_at_once(temporary: Path) -> None:
    # The process that removes the folder after a kill may start only now: it must not bring the folder back.
    for _ in range(50):
        scratch = Scratch()
        scratch.close()
        assert not scratch.path.exists()
    time.sleep(0.5)
    assert list(temporary.iterdir()) == []


def test_what_a_killed_judge_left_goes_and_what_a_living_one_uses_stays(temporary: Path) -> None:
    living = Scratch()
    dead = Scratch()
    made(dead.path / "triton" / "entry" / "file")
    dead._lock.close()  # as the system does where a process is killed
    just_begun = temporary / f"{PREFIX}begun"
    just_begun.mkdir()
    elsewhere = made(temporary / "elsewhere" / "file")
    (temporary / f"{PREFIX}link").symlink_to(elsewhere.parent)
    remove_left_behind(temporary)
    wait_until_gone(dead.path)  # its own process may hold the lock meanwhile, and be removing it
    assert living.path.exists()
    assert just_begun.exists()
    assert elsewhere.exists()
    os.utime(just_begun, (0, 0))
    another = Scratch()
    assert not just_begun.exists()
    assert living.path.exists()
    for scratch in (living, another):
        scratch.close()


def test_gone_after_a_kill_of_the_judge_and_its_children(temporary: Path) -> None:
    making = "import time; from kernels_eval.pool.scratch import Scratch; s = Scratch(); print(s.path, flush=True); time.sleep(60)"
    judge = subprocess.Popen(
        [sys.executable, "-c", making], stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(temporary)}
    )
    assert judge.stdout is not None
    folder = Path(judge.stdout.readline().strip())
    assert folder.parent == temporary
    assert folder.exists()
    for process in [*psutil.Process(judge.pid).children(recursive=True), judge]:
        process.kill()
    judge.wait()
    wait_until_gone(folder)


@pytest.mark.parametrize("keep_caches", [False, True])
def test_old_files_go_and_folders_in_use_stay(temporary: Path, keep_caches: bool) -> None:
    scratch = Scratch()
    old = [made(scratch.path / name, 1000) for name in ("tmpxft_1", "junk")]
    entry = made(scratch.path / "triton" / "old" / "kernel.cubin", 1000)
    kept = [made(scratch.path / name, 1000) for name in ("changed", "builds/a.so", "device-memory")]
    for folder in (entry.parent, entry.parent.parent, scratch.path / "builds"):
        os.utime(folder, (0, 0))
    outside = made(temporary / "outside", 1000)
    (scratch.path / "link").symlink_to(outside)
    seen = remove_old_files(scratch.path, {}, 1000.0, keep_caches)
    seen = remove_old_files(scratch.path, seen, 1299.0, keep_caches)
    assert all(path.exists() for path in [*old, entry, *kept, scratch.path / "link"])
    made(kept[0])
    kept += [made(scratch.path / name) for name in ("new", "triton/fresh/kernel.cubin")]
    seen = remove_old_files(scratch.path, seen, 1301.0, keep_caches)
    assert not any(path.exists() for path in old)
    assert entry.exists() == keep_caches
    assert not (scratch.path / "link").is_symlink()
    assert all(path.exists() for path in [*kept, outside, scratch.path / ".lock"])
    remove_old_files(scratch.path, seen, 1602.0, keep_caches)
    assert [path.exists() for path in kept] == [False, True, True, False, keep_caches]
    scratch.close()


class Clocks:
    """The clock that people set, and the one that nobody does, as they are said to be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jumped_s = self.passed_s = 0.0
        wall, steady = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: wall() + self.jumped_s + self.passed_s)
        monkeypatch.setattr(time, "monotonic", lambda: steady() + self.passed_s)


@pytest.mark.parametrize("jump_s", [400.0, 86400.0, -400.0, -86400.0])
def test_a_clock_that_jumps_removes_nothing_in_use_and_keeps_nothing_old(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    judges = [Scratch(), Scratch()]
    files = [made(judge.path / "tmp1" / "file") for judge in judges]
    clocks = Clocks(monkeypatch)
    clocks.passed_s = 61.0
    for judge in judges:
        judge.trim()
    clocks.jumped_s, clocks.passed_s = jump_s, 122.0
    third = Scratch()  # removes what judges have left behind
    for judge in judges:
        judge.trim()
    assert all(path.exists() for path in [*files, *(judge.path / ".lock" for judge in judges)])
    clocks.passed_s = 363.0
    for judge in judges:
        judge.trim()
    assert not any(file.parent.exists() for file in files)
    for judge in (*judges, third):
        judge.close()


@pytest.mark.parametrize("jump_s", [7200.0, -7200.0])
def test_the_rest_of_a_folder_goes_whatever_the_clock_did(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    rest = made(temporary / f"{PREFIX}rest" / "file").parent
    Clocks(monkeypatch).jumped_s = jump_s
    remove_left_behind(temporary)
    assert not rest.exists()
