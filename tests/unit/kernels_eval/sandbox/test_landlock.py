"""The filter of files, tried in a fork: what is not named cannot be opened, and one folder may be changed."""

import ctypes
import json
import os
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import kernels_eval
from kernels_eval.sandbox import landlock

PR_SET_NO_NEW_PRIVS = 38
LIBC = ctypes.CDLL(None, use_errno=True)
NEEDS_LANDLOCK = pytest.mark.skipif(not landlock.version(), reason="needs Landlock")


def restricted(work: Callable[[], Any], folder: str | None = None, *arguments: Sequence[str]) -> Any:
    """Return what `work` returns in a restricted fork, or the name of the exception that stopped it."""
    return after(lambda: landlock.restrict(folder, *arguments), work)


def after(restriction: Callable[[], bool], work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a fork with a restriction, or the name of the exception that stopped it."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            assert restriction()
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


@NEEDS_LANDLOCK
def test_only_named_files_can_be_read(tmp_path: Path) -> None:
    for name in ("named", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    def read() -> list[str]:
        return [
            _text(path) for path in (tmp_path / "named" / "file", tmp_path / "other" / "file", Path("/proc/1/status"))
        ]

    assert restricted(read) == ["PermissionError"] * 3
    assert restricted(read, None, [str(tmp_path / "named")]) == ["named", "PermissionError", "PermissionError"]
    assert restricted(read, None, [str(tmp_path / "gone")]) == ["PermissionError"] * 3


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        return type(error).__name__


@NEEDS_LANDLOCK
def test_one_folder_can_be_changed_and_what_is_readable_cannot(tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()

    def write(name: str) -> Callable[[], int]:
        return lambda: (tmp_path / name / "new").write_text("abc")

    own = str(tmp_path / "own")
    assert restricted(write("own"), own) == 3
    assert (tmp_path / "own" / "new").read_text() == "abc"
    assert restricted((tmp_path / "own" / "new").unlink, own) is None
    assert restricted(write("other"), own) == "PermissionError"
    assert restricted(write("other"), own, [str(tmp_path / "other")]) == "PermissionError"
    assert restricted((tmp_path / "own" / "folder").mkdir, None) == "PermissionError"


@NEEDS_LANDLOCK
def test_devices_are_named_too() -> None:
    def write(device: str) -> Callable[[], int]:
        return lambda: os.write(os.open(device, os.O_WRONLY), b"x")

    assert restricted(write("/dev/null")) == 1
    assert restricted(write("/dev/zero")) == "PermissionError"
    assert restricted(write("/dev/zero"), None, (), ["/dev/zero"]) == 1


@NEEDS_LANDLOCK
def test_what_python_needs_can_be_read() -> None:
    for module in (Path(sysconfig.get_paths()["stdlib"], "json", "__init__.py"), Path(pytest.__file__)):
        assert restricted(module.read_text) == module.read_text()


@pytest.mark.skipif(landlock.version() < 2, reason="needs Landlock's second version")
def test_files_are_hidden_and_all_else_stays_as_it_was(tmp_path: Path) -> None:
    for name in ("hidden", "beside", "folder/below"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "hidden")

    def look() -> list[Any]:
        (tmp_path / "beside").write_text("written")
        (tmp_path / "folder" / "new").write_text("moved")
        (tmp_path / "other").mkdir()  # not in a folder that was there when the rules were made
        seen = [_text(tmp_path / name) for name in ("hidden", "link", "beside", "folder/below")]
        (tmp_path / "folder" / "new").rename(tmp_path / "folder" / "newer")
        return [*seen, _text(tmp_path / "folder" / "newer"), _text(Path("/proc/self/comm")), _text(Path("/etc/passwd"))]

    seen = after(lambda: landlock.hide([str(tmp_path / "hidden"), str(tmp_path / "gone")]), look)
    assert seen[:5] == ["PermissionError", "PermissionError", "written", "folder/below", "moved"]
    assert seen[6] == Path("/etc/passwd").read_text()
    assert seen[5].strip()
    assert (tmp_path / "hidden").read_text() == "hidden"


@pytest.mark.skipif(landlock.version() < 2, reason="needs Landlock's second version")
def test_a_hidden_file_stays_hidden_where_devices_are_named(tmp_path: Path) -> None:
    (tmp_path / "device").write_text("x")
    device = str(tmp_path / "device")

    def hide_and_restrict() -> bool:
        return landlock.hide([device]) and landlock.restrict(None, (), [device])

    assert after(hide_and_restrict, (tmp_path / "device").read_text) == "PermissionError"


def test_nothing_to_hide_restricts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert landlock.hide([]) is False
    monkeypatch.setattr(landlock, "version", lambda: 1)
    assert landlock.hide(["/dev/null"]) is False


def test_readable_paths_are_python_packages_and_this_package_alone() -> None:
    found = landlock.readable()
    own = Path(kernels_eval.__file__).parent
    assert str(own) in found
    assert len(set(found)) == len(found)
    for path in (own.parent, own.parent / "tests", Path.home() / ".ssh", Path("/etc/shadow"), Path("/proc/1")):
        assert not any(path.is_relative_to(entry) for entry in found), path
    assert any(Path(os.__file__).is_relative_to(entry) for entry in found)
    assert any(Path(pytest.__file__).is_relative_to(entry) for entry in found)


def test_a_system_without_landlock_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCalls:
        def syscall(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(landlock, "_libc", NoCalls())
    assert landlock.version() == 0
    assert landlock.restrict() is False
