"""Requests that are not understood are refused in one sentence, before anything is downloaded."""

import re
from pathlib import Path

import pytest

from extras.airgap import pip, request
from kernels_eval.errors import InputError

GOOD = {"python": "3.12", "host": "torch==2.11.0, triton", "part_size": "60MB", "glibc": "2.35"}


def test_a_request_is_what_the_words_say(tmp_path: Path):
    made = request.parse_request(tmp_path / "new" / "bundle", **GOOD)
    assert made.part_bytes == 60_000_000
    assert made.host_names == {"torch", "triton"}
    assert [request.exact_version(package) for package in made.host] == ["2.11.0", None]
    assert made.platforms[0] == "manylinux_2_35_x86_64"
    assert (tmp_path / "new" / "bundle").is_dir()


@pytest.mark.parametrize(
    ("text", "size"), [("10MB", 10**7), ("1.5 gb", 15 * 10**8), ("64MiB", 64 * 2**20), ("10000000", 10**7)]
)
def test_sizes(text: str, size: int):
    assert request.parse_size(text) == size


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"python": "3"}, "--python: found '3', expected one of 3.11, 3.12, 3.13"),
        ({"python": "3.12.1"}, "--python: found '3.12.1', expected one of"),
        ({"python": "3.9"}, "--python: found '3.9', expected one of"),
        ({"part_size": "many"}, "--part-size: found 'many', expected a number and MB or GB, e.g. 60MB"),
        ({"part_size": "60 parsec"}, "--part-size: found '60 parsec', expected a number"),
        ({"part_size": "9MB"}, "--part-size: found '9MB', expected 10MB or more"),
        ({"glibc": "musl"}, "--glibc: found 'musl', expected 2.17 or newer"),
        ({"host": "torch>=2"}, "--host-has: found 'torch>=2', expected a package, e.g. torch or torch==2.11.0"),
        ({"host": "torch==2.*"}, "--host-has: found 'torch==2.*', expected a package"),
        ({"host": "not a name"}, "--host-has: found 'not a name', expected a package"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, changed: dict[str, str], says: str):
    with pytest.raises(InputError, match=re.escape(says)):
        request.parse_request(tmp_path / "bundle", **(GOOD | changed))


def test_a_folder_with_other_files_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="found other files, expected an empty folder or a bundle that was begun"):
        request.usable_folder(tmp_path)
    (tmp_path / request.MANIFEST).touch()
    assert request.usable_folder(tmp_path) == tmp_path


def test_a_file_and_a_folder_that_cannot_be_written_to_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="found a file, expected a folder"):
        request.usable_folder(tmp_path / "file")
    monkeypatch.setattr(request.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="expected a folder that can be written to"):
        request.usable_folder(tmp_path / "new")


def test_too_little_disk_is_refused(tmp_path: Path):
    request.room_for(tmp_path, 1)
    with pytest.raises(InputError, match="MB of free disk, expected"):
        request.room_for(tmp_path, 10**18)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("WARNING: one\nERROR: first\nERROR: Cannot download a\n", "pip download failed: Cannot download a"),
        ("", "pip download failed: nothing"),
        ("/usr/bin/python: No module named pip\n", "this Python has no pip"),
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken\nERROR: No matching distribution found for x",
            "network",
        ),
    ],
)
def test_pips_failure_is_one_sentence(output: str, says: str):
    error = pip.failure_of("download", output)
    assert says in str(error)
    assert "\n" not in str(error)
