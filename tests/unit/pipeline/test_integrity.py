"""Damage of published artifacts: any changed byte is found and named, and a whole file is read once."""

import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.pipeline import digests, integrity
from tasks.pipeline.integrity import damage_of, later_damage_of
from tasks.pipeline.store import discard, publish


def put(folder: Path, **files: bytes) -> Path:
    with publish(folder) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)
    return folder


@given(content=st.binary(min_size=1), place=st.integers(0), bit=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_every_flipped_bit_is_found(tmp_path: Path, content: bytes, place: int, bit: int):
    folder = put(tmp_path / "artifact", weights=content, other=b"x")
    assert damage_of(folder) is None
    damaged = bytearray(content)
    damaged[place % len(content)] ^= 1 << bit
    (folder / "weights").write_bytes(damaged)
    assert str(folder / "weights") in (damage_of(folder) or "")
    (folder / "weights").write_bytes(content)
    assert damage_of(folder) is None


def test_a_missing_file_is_damage_a_discarded_one_is_not(tmp_path: Path):
    folder = put(tmp_path / "artifact", weights=b"w", optimizer=b"o")
    discard(folder, ["optimizer"])
    assert damage_of(folder) is None
    (folder / "weights").unlink()
    assert str(folder / "weights") in (damage_of(folder) or "")


def test_a_policy_may_be_copied_without_any_of_its_optimizers_states(tmp_path: Path):
    states = ("optimizer/rank-0", "optimizer/rank-1", "critic/optimizer/rank-0")
    with publish(tmp_path / "policy") as partial:
        for name in ("model.safetensors", *states):
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).write_bytes(name.encode())
    whole, partly, other = (
        shutil.copytree(tmp_path / "policy", tmp_path / name) for name in ("whole", "partly", "other")
    )
    for place in ("optimizer", "critic/optimizer"):
        shutil.rmtree(whole / place)
    assert damage_of(whole) is None
    (partly / "optimizer" / "rank-1").unlink()
    assert damage_of(partly) == f"{partly / 'optimizer' / 'rank-1'}: missing: the manifest lists it"
    shutil.rmtree(other / "critic")
    assert damage_of(other) == f"{other / 'critic' / 'optimizer' / 'rank-0'}: missing: the manifest lists it"


def test_a_folder_without_a_manifest_is_compared_with_nothing(tmp_path: Path):
    assert damage_of(tmp_path) is None


def test_a_whole_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = put(tmp_path / "artifact", one=b"1", two=b"2")
    read: list[str] = []
    digest = digests.file_digest

    def counted(file: Path) -> str:
        read.append(file.name)
        return digest(file)

    monkeypatch.setattr(digests, "file_digest", counted)
    assert damage_of(folder) is None
    assert read == []  # this process has read them to publish them
    digests.compared.clear()  # as in another process
    assert [damage_of(folder) for _ in range(3)] == [None] * 3
    assert sorted(read) == ["one", "two"]


def test_a_file_written_after_its_manifest_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = put(tmp_path / "artifact", weights=b"right", other=b"x")
    read: list[str] = []
    found = digests.digests_of

    def counted(files: list[Path]) -> list[str]:
        read.extend(file.name for file in files)
        return found(files)

    monkeypatch.setattr(integrity, "digests_of", counted)
    assert later_damage_of(folder) is None
    assert read == [], "nothing was written: nothing is read"
    time.sleep(0.01)
    (folder / "weights").write_bytes(b"wrong")
    assert "weights: damaged" in (later_damage_of(folder) or "")
    assert read == ["weights"]
    (folder / "weights").write_bytes(b"right")
    assert later_damage_of(folder) is None
    (folder / "other").unlink()
    assert "other: missing" in (later_damage_of(folder) or "")
    assert later_damage_of(tmp_path) is None, "not a published folder"
