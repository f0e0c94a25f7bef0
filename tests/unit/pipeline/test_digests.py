"""Digests of files: those taken while writing are hashlib's own, known files are not read again, changed ones are."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.pipeline import digests
from tasks.pipeline.digests import HashedFile, copy_hashed, digests_of, forget, hand_over, learn
from tasks.pipeline.integrity import damage_of
from tasks.pipeline.store import digest_of, publish, read_manifest


def of_hashlib(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of files that are read for their digest from now on."""
    names: list[str] = []
    original = digests.file_digest
    monkeypatch.setattr(digests, "file_digest", lambda file: (names.append(file.name), original(file))[1])
    return names


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(pieces=st.lists(st.binary(max_size=5000), max_size=6))
def test_a_digest_taken_while_writing_is_that_of_the_file(tmp_path: Path, pieces: list[bytes]):
    file = tmp_path / "file"
    with HashedFile(file) as stream:
        for piece in pieces:
            stream.write(piece)
    assert file.read_bytes() == b"".join(pieces)
    assert hand_over(tmp_path)["file"][1:] == (file.stat().st_size, of_hashlib(file))


def test_a_manifest_has_hashlibs_digests_whoever_took_them(tmp_path: Path, read: list[str]):
    random.seed(1)
    with publish(tmp_path / "x") as folder:
        (folder / "inner").mkdir()
        with HashedFile(folder / "inner" / "streamed") as stream:
            for size in (1, 3_000_000, 0, 100_000):
                stream.write(memoryview(random.randbytes(size)))
        for number in range(9):
            (folder / f"plain-{number}").write_bytes(random.randbytes(number * 10_000))
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    expected = {
        str(file.relative_to(tmp_path / "x")): of_hashlib(file)
        for file in sorted((tmp_path / "x").rglob("*"))
        if file.is_file() and file.name != "manifest.json"
    }
    assert manifest["files"] == expected
    assert manifest["digest"] == digest_of(expected)
    assert sorted(read) == [f"plain-{number}" for number in range(9)], "what was hashed while written is not read"
    assert damage_of(tmp_path / "x") is None
    assert len(read) == 9


def test_a_file_that_was_changed_after_it_was_hashed_is_read_again(tmp_path: Path, read: list[str]):
    with publish(tmp_path / "x") as folder:
        for name in ("longer", "touched", "same"):
            with HashedFile(folder / name) as stream:
                stream.write(b"before")
        (folder / "longer").write_bytes(b"before and after")
        (folder / "touched").write_bytes(b"behind")
        os.utime(folder / "touched", (1, 1))
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert manifest["files"] == {name: of_hashlib(tmp_path / "x" / name) for name in ("longer", "touched", "same")}
    assert sorted(read) == ["longer", "touched"]


def test_another_process_hands_over_what_it_has_hashed(tmp_path: Path, read: list[str]):
    script = (
        "import json, sys; from pathlib import Path; from tasks.pipeline.digests import HashedFile, hand_over\n"
        "folder = Path(sys.argv[1])\n"
        "with HashedFile(folder / 'weights') as file: file.write(b'w' * 100000)\n"
        "print(json.dumps(hand_over(folder))); assert hand_over(folder) == {}"
    )
    with publish(tmp_path / "x") as folder:
        written = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True)
        learn(folder, {name: tuple(known) for name, known in json.loads(written.stdout).items()})
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert manifest["files"] == {"weights": of_hashlib(tmp_path / "x" / "weights")}
    assert read == []


def test_a_copy_is_the_file_and_is_not_read_to_be_published(tmp_path: Path, read: list[str]):
    random.seed(3)
    (tmp_path / "original").write_bytes(random.randbytes(20_000_001))
    with publish(tmp_path / "x") as folder:
        found = copy_hashed(tmp_path / "original", folder / "copy")
    assert read == []
    assert (tmp_path / "x" / "copy").read_bytes() == (tmp_path / "original").read_bytes()
    assert found == hashlib.sha256((tmp_path / "original").read_bytes()).hexdigest()
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert manifest["files"] == {"copy": found[:32]}


def test_bytes_may_change_after_they_were_waited_for(tmp_path: Path):
    piece = bytearray(b"a" * 3_000_000)
    with HashedFile(tmp_path / "file") as stream:
        for letter in (b"a", b"b", b"c"):
            piece[:] = letter * len(piece)
            stream.write(memoryview(piece))
            stream.wait()
    assert hand_over(tmp_path)["file"][2] == of_hashlib(tmp_path / "file")


def test_a_file_that_is_left_half_is_not_known(tmp_path: Path):
    def fail() -> None:
        with HashedFile(tmp_path / "half") as stream:
            stream.write(b"half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        fail()
    assert hand_over(tmp_path) == {}


def test_files_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(digests.os, "cpu_count", lambda: 4)
    both = threading.Barrier(2, timeout=20)  # broken, if one file is read after the other

    def waiting(file: Path) -> str:
        both.wait()
        return file.name

    monkeypatch.setattr(digests, "file_digest", waiting)
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"x")
    assert digests_of([tmp_path / "one", tmp_path / "two"]) == ["one", "two"]
    forget(tmp_path)
