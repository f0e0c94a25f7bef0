"""Output paths are checked before a command works, and Ctrl-C ends one that does not listen."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.checks.output import check_output
from flows.cli.main import run
from kernels_eval.errors import InputError


@pytest.mark.parametrize("folder", [True, False])
def test_a_path_that_can_be_written_is_left_as_it_was(folder: bool, tmp_path: Path):
    check_output("--out", tmp_path / "new", folder=folder)
    check_output("--out", tmp_path / "new" / "deep" / "er", folder=folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("place", ["file/below", "file/further/below", "/proc/nowhere/below", "x" * 300])
def test_a_path_that_cannot_is_refused(place: str, folder: bool, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"^--out: cannot write .*"):
        check_output("--out", tmp_path / place, folder=folder)


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="expected the path of a folder, found a file"):
        check_output("--out", tmp_path / "file", folder=True)
    with pytest.raises(InputError, match="expected the path of a file, found a folder"):
        check_output("--out", tmp_path)


def test_a_file_that_is_read_is_not_replaced(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(InputError, match="expected another file than the one that is read"):
        check_output("--out", tmp_path / "link", read=[tmp_path / "file"])
    check_output("--out", tmp_path / "new", read=[tmp_path / "file"])


WRITING = pytest.mark.parametrize(
    "arguments",
    [
        ["data", "export", "nowhere", "FILE/x"],
        ["data", "compact", "nowhere", "FILE/x"],
        ["data", "analyze", "nowhere", "--output", "FILE/x.json"],
        ["data", "rescore", "nowhere", "--reward", "kevin", "--output", "FILE/x"],
        ["judge", "score", "--batch", "nowhere", "--out", "FILE/x"],
        ["train", "--set", "runs_dir=FILE/x"],
        ["train", "--trajectory-logs", "FILE/x"],
        ["serve", "prefect", "--runs-dir", "FILE/x"],
    ],
)


@WRITING
def test_every_command_that_writes_says_so_in_a_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").touch()
    assert run([argument.replace("FILE", str(tmp_path / "file")) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


def test_a_command_that_swallows_ctrl_c_ends_all_the_same(tmp_path: Path):
    program = """
import time
from flows.cli import main
def deaf(_arguments):
    while True:
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
main.run = deaf
main.main()
"""
    command = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    assert command.stdout.readline() == "ready\n"
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=120)  # it would sleep for ever
    assert (command.returncode, said) == (130, "stopped; the same command continues from here\n")


@pytest.fixture(params=["size=16k", "ro"])
def unwritable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, full or read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "none", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@WRITING
def test_a_full_and_a_read_only_disk_are_refused_in_a_line(
    arguments: list[str], unwritable: Path, capsys: pytest.CaptureFixture[str]
):
    if "prefect" in arguments:
        pytest.skip("its folder has to be there")
    assert run([argument.replace("FILE", str(unwritable)) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "No space left on device" in line or "Read-only file system" in line or "MiB" in line or "GiB" in line
