"""A child that may start programs reaches its own folder and no other process: each attack is tried for real, in a fork."""

import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.sandbox import landlock, seccomp, unprivileged

PR_SET_NO_NEW_PRIVS = 38
LIBC = ctypes.CDLL(None, use_errno=True)
NEEDS_ALL = pytest.mark.skipif(
    os.geteuid() != 0 or landlock.version() < 6 or not seccomp.is_available(platform.machine()),
    reason="needs root, Landlock with scopes, and seccomp",
)


def confined(folder: Path, work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a confined fork, or the name of the exception that stopped it."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            unprivileged.confine(str(folder))
            try:
                answer: Any = work()
            except OSError as error:
                answer = type(error).__name__
            os.write(writer, json.dumps(answer).encode())
        except BaseException:  # noqa: BLE001 (told to the test, which fails on it)
            os.write(writer, json.dumps(traceback.format_exc()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        content = answers.read()
    os.waitpid(process, 0)
    return json.loads(content)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(unprivileged, "INTERPRETER", ())  # the tests' own may lie below /root
    for parent in (tmp_path, *tmp_path.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o711)  # pytest's folders are root's alone
    place = tmp_path / "own"
    place.mkdir(mode=0o700)
    return place


def _system_call(name: str, *arguments: int) -> str:
    function = getattr(LIBC, name)
    return "done" if function(*arguments) >= 0 else os.strerror(ctypes.get_errno())


@NEEDS_ALL
def test_its_own_folder_is_its_to_write_and_programs_run(folder: Path):
    def work() -> list[str]:
        Path("here.txt").write_text("x")  # the folder is the working directory
        ran = subprocess.run(
            ["sh", "-c", "echo y > there.txt && cat there.txt"], capture_output=True, text=True, check=False
        )
        with tempfile.NamedTemporaryFile("w", prefix="temporary", delete=False) as file:
            file.write("z")
        return [ran.stdout.strip(), os.environ["HOME"], os.environ["TMPDIR"]]

    tempfile.gettempdir()  # remembered from here on, as in the process that a candidate is forked from
    assert confined(folder, work) == ["y", str(folder), str(folder)]
    assert {path.name[:9] for path in folder.iterdir()} == {"here.txt", "there.txt", "temporary"}


@NEEDS_ALL
@pytest.mark.parametrize("place", ["beside", "/tmp", "/dev/shm", "/"])
def test_no_other_folder_can_be_written(folder: Path, place: str):
    other = folder.parent if place == "beside" else Path(place)
    other_mode = other.stat().st_mode
    target = other / f"torch-{os.getpid()}.py"
    assert confined(folder, lambda: target.write_text("x")) == "PermissionError"
    assert not target.exists()
    assert other.stat().st_mode == other_mode


@NEEDS_ALL
def test_files_of_the_judge_cannot_be_read(folder: Path):
    secret = folder.parent / "secret"
    secret.write_text("the seed")
    assert confined(folder, secret.read_text) == "PermissionError"


@NEEDS_ALL
@pytest.mark.parametrize("name", ["environ", "maps", "fd", "mem", "cwd"])
def test_another_process_shows_nothing(folder: Path, name: str):
    place = Path(f"/proc/{os.getpid()}/{name}")
    look = {"fd": lambda: len(list(place.iterdir())), "cwd": place.readlink}.get(name, place.read_bytes)
    assert confined(folder, lambda: str(look())) == "PermissionError"


@NEEDS_ALL
def test_no_other_process_can_be_signalled(folder: Path):
    victim = subprocess.Popen(["sleep", "60"])
    try:
        assert confined(folder, lambda: os.kill(victim.pid, 9)) == "PermissionError"
        assert confined(folder, lambda: os.kill(os.getppid(), 0)) == "PermissionError"
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@NEEDS_ALL
def test_two_children_are_strangers(folder: Path):
    """Neither the files nor the process of one candidate are within another's reach."""
    other = folder.parent / "other"
    other.mkdir(mode=0o700)
    confined(other, lambda: Path("mine").write_text("x"))
    assert confined(folder, lambda: (other / "mine").read_text()) == "PermissionError"
    owners = {(other / "mine").stat().st_uid, os.geteuid()}
    confined(folder, lambda: Path("mine").write_text("x"))
    assert (folder / "mine").stat().st_uid not in owners


@NEEDS_ALL
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("ptrace", (16, os.getppid(), 0, 0)),
        ("unshare", (0x10000000,)),
        ("setns", (0, 0)),
        ("mount", (0, 0, 0, 0, 0)),
        ("chroot", (0,)),
        ("pidfd_open", (os.getpid(), 0)),
    ],
)
def test_calls_that_reach_further_are_refused(folder: Path, call: str, arguments: tuple[int, ...]):
    if not hasattr(LIBC, call):
        pytest.skip(f"this C library has no {call}")
    assert confined(folder, lambda: _system_call(call, *arguments)) == "Operation not permitted"


@NEEDS_ALL
def test_rights_do_not_come_back(folder: Path):
    assert confined(folder, lambda: os.setuid(0)) == "PermissionError"
    assert confined(folder, lambda: os.chown(folder, 0, 0)) == "PermissionError"
    assert confined(
        folder, lambda: subprocess.run(["id", "-u"], capture_output=True, text=True, check=True).stdout.strip()
    ) not in ("0", "")


FORKS = "i=0; while [ $i -lt 2000 ]; do sleep 3 > /dev/null 2>&1 & i=$((i + 1)); echo $i; done"


@NEEDS_ALL
def test_processes_are_limited(folder: Path):
    def work() -> int:
        # In a small process: a fork of this one copies the page tables of a gigabyte.
        done = subprocess.run(["sh", "-c", FORKS], capture_output=True, text=True, check=False)
        return int(done.stdout.split()[-1])

    assert 0 < confined(folder, work) < 600


def test_the_layers_are_named(folder: Path):
    named = set(unprivileged.abilities(str(folder.parent)))
    assert named <= {"landlock", "unprivileged", "seccomp"}
    assert ("unprivileged" in named) == (os.geteuid() == 0)


@NEEDS_ALL
def test_an_interpreter_that_others_cannot_reach_keeps_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch):
    closed = folder.parent / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(unprivileged, "INTERPRETER", (str(closed / "lib"),))
    (closed / "lib").mkdir()
    assert "unprivileged" not in unprivileged.abilities(str(folder.parent))


@NEEDS_ALL
def test_below_a_folder_of_root_alone_the_user_stays_and_is_not_named(folder: Path):
    """Another user could not reach its own folder there."""
    folder.parent.chmod(0o700)
    assert "unprivileged" not in unprivileged.abilities(str(folder.parent))
    assert confined(folder, os.geteuid) == 0
    assert confined(folder, lambda: (folder.parent / "x").write_text("x")) == "PermissionError"


@NEEDS_ALL
def test_a_user_namespace_of_root_alone_keeps_the_user(folder: Path):
    """There is nobody to become: the other layers hold, and the missing one is not named."""
    code = (
        "import ctypes, os, sys, tempfile\n"
        "from kernels_eval.sandbox import unprivileged\n"
        "unprivileged.INTERPRETER = ()\n"
        "print('unprivileged' in unprivileged.abilities(os.path.dirname(sys.argv[1])))\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "unprivileged.confine(sys.argv[1])\n"
        "open('here', 'w').write('x')\n"
        "print(os.geteuid())\n"
    )
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "unshare failed" in ran.stderr:
        pytest.skip("no user namespaces here")
    assert ran.stdout.split() == ["False", "0"], ran.stderr
    assert (folder / "here").exists()


@NEEDS_ALL
@pytest.mark.parametrize("name", ["shmget", "semget", "msgget"])
def test_nothing_is_made_that_outlives_the_process(name: str, folder: Path) -> None:
    sizes = {"shmget": (4096, 0o1600), "semget": (1, 0o1600), "msgget": (0o1600,)}
    assert confined(folder, lambda: _system_call(name, 0, *sizes[name])) == "Operation not permitted"
