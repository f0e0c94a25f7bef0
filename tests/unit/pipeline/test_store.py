"""The artifact store under kills, races and damage: a reader sees a whole artifact or none."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kernels_eval.errors import InputError
from tasks.pipeline import store
from tasks.pipeline.references import (
    ArtifactRef,
    CheckpointRef,
    EvaluationRef,
    ProblemSetRef,
    SftDataRef,
    TrajectoryBatchRef,
)
from tasks.pipeline.store import (
    MANIFEST,
    digest_of,
    discard,
    is_available,
    measured,
    publish,
    published_digest,
    read_manifest,
    write_atomically,
)


def put(destination: Path, text: str = "content", metadata=None) -> str:
    with publish(destination, metadata) as folder:
        fill(folder, text)
    return published_digest(destination)


def fill(folder: Path, text: str) -> None:
    (folder / "inner").mkdir()
    (folder / "a.txt").write_text(text)
    (folder / "inner" / "b.txt").write_text(text)


def partials(folder: Path) -> list[Path]:
    return list(folder.glob(".partial-*"))


def test_published_whole_with_a_manifest_of_every_file(tmp_path):
    metadata = {"early": 1}
    with publish(tmp_path / "x", metadata) as folder:
        (folder / "a.txt").write_text("a")
        metadata["late"] = 2
        assert not (tmp_path / "x").exists()
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert list(manifest["files"]) == ["a.txt"]
    assert manifest["metadata"] == {"early": 1, "late": 2}
    assert partials(tmp_path) == []


def test_the_digest_names_content_and_file_names_alone(tmp_path):
    one = put(tmp_path / "one", metadata={"seconds": 1})
    assert one == put(tmp_path / "two", metadata={"seconds": 2})
    assert one != put(tmp_path / "three", "other content")
    with publish(tmp_path / "four") as folder:
        (folder / "inner").mkdir()
        (folder / "b.txt").write_text("content")
        (folder / "inner" / "b.txt").write_text("content")
    assert one != published_digest(tmp_path / "four")


def test_a_file_that_holds_measurements_counts_by_what_its_stage_says(tmp_path):
    def put_measured(name: str, text: str, **files: str) -> str:
        contents = {"seconds.txt": measured, "table.txt": lambda file: file.read_text().split()[0], "absent": measured}
        with publish(tmp_path / name, contents=contents) as folder:
            (folder / "seconds.txt").write_text(text)
            for file, content in files.items():
                (folder / f"{file}.txt").write_text(content)
        return published_digest(tmp_path / name)

    one = put_measured("one", "1.5", table="same 3")
    assert one == put_measured("two", "2.5", table="same 4")
    assert one != put_measured("three", "1.5", table="other 3")
    assert one != put_measured("four", "1.5", table="same 3", further="x")
    ours, theirs = (read_manifest(tmp_path / name) for name in ("one", "two"))
    assert ours is not None
    assert theirs is not None
    assert ours["files"] != theirs["files"], "the manifest has the SHA-256 of the bytes all the same"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_nothing_and_what_was_there(error, tmp_path):
    before = put(tmp_path / "x")

    def write_half() -> None:
        with publish(tmp_path / "x") as folder:
            (folder / "a.txt").write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert published_digest(tmp_path / "x") == before
    assert partials(tmp_path) == []


def test_publishing_again_replaces(tmp_path):
    put(tmp_path / "x", "old")
    with publish(tmp_path / "x") as folder:
        (folder / "only.txt").write_text("new")
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [MANIFEST, "only.txt"]
    assert partials(tmp_path) == []


def test_a_killed_writer_leaves_no_artifact_and_its_rest_is_removed_a_day_later(tmp_path):
    script = f"""
        import time
        from pathlib import Path
        from tasks.pipeline.store import publish
        with publish(Path({str(tmp_path / "x")!r})) as folder:
            (folder / "a.txt").write_text("half")
            print("writing", flush=True)
            time.sleep(60)
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert not (tmp_path / "x").exists()
    (rest,) = partials(tmp_path)
    put(tmp_path / "y")
    assert rest.exists(), "a rest that is young may belong to a living writer"
    long_ago = time.time() - 25 * 3600
    os.utime(rest, (long_ago, long_ago))
    put(tmp_path / "x")
    assert partials(tmp_path) == []


def _put_often(destination: Path, text: str, times: int) -> None:
    for _ in range(times):
        with publish(destination) as folder:
            fill(folder, text)


def test_writers_and_readers_of_one_destination_never_see_half(tmp_path):
    """Four processes publish the same key again and again; whatever is there is whole."""
    destination = tmp_path / "x"
    expected = put(tmp_path / "expected")
    processes = [
        multiprocessing.get_context("spawn").Process(target=_put_often, args=(destination, "content", 15))
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    seen = 0
    while any(process.is_alive() for process in processes):
        manifest = read_manifest(destination)
        if manifest is not None:
            assert manifest["digest"] == expected
            seen += 1
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert seen > 0
    assert published_digest(destination) == expected
    assert partials(tmp_path) == []


def test_different_destinations_at_once_lose_none(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(lambda number: put(tmp_path / "store" / str(number), str(number)), range(40)))
    assert len(set(digests)) == 40
    assert all(published_digest(tmp_path / "store" / str(number)) == digest for number, digest in enumerate(digests))


def test_availability_follows_the_files(tmp_path):
    reference = ArtifactRef(uri=str(tmp_path / "x"), digest=put(tmp_path / "x"))
    assert is_available(reference)
    assert not is_available(reference.model_copy(update={"digest": "0" * 16}))
    (tmp_path / "x" / "inner" / "b.txt").unlink()
    assert not is_available(reference)
    assert not is_available(ArtifactRef(uri=str(tmp_path / "gone"), digest="0" * 16))


def test_what_is_discarded_is_gone_and_the_artifact_is_there(tmp_path):
    reference = ArtifactRef(uri=str(tmp_path / "x"), digest=put(tmp_path / "x"))
    for _ in range(2):  # the second time there is nothing to do
        discard(tmp_path / "x", ("inner/*", "nowhere/*"))
        assert is_available(reference)
        assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == ["a.txt", MANIFEST]
        manifest = read_manifest(tmp_path / "x")
        assert (list(manifest["files"]), manifest["discarded"]) == (["a.txt"], ["inner/b.txt"])
    (tmp_path / "plain").mkdir()
    fill(tmp_path / "plain", "of nobody")
    discard(tmp_path / "plain", ("*",))
    assert (tmp_path / "plain" / "a.txt").exists()


def test_a_kill_between_manifest_and_removal_is_made_good_by_the_next_time(tmp_path, monkeypatch):
    reference = ArtifactRef(uri=str(tmp_path / "x"), digest=put(tmp_path / "x"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            discard(tmp_path / "x", ("inner/*",))
    assert (tmp_path / "x" / "inner" / "b.txt").exists()
    assert is_available(reference)
    discard(tmp_path / "x", ("inner/*",))
    assert not (tmp_path / "x" / "inner" / "b.txt").exists()
    assert read_manifest(tmp_path / "x")["discarded"] == ["inner/b.txt"]


def test_a_folder_without_a_manifest_is_no_artifact(tmp_path):
    (tmp_path / "x").mkdir()
    assert read_manifest(tmp_path / "x") is None
    with pytest.raises(InputError, match=r"x: expected a published artifact with a manifest\.json, found none"):
        published_digest(tmp_path / "x")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"3",
        b"{}",
        b'{"digest": "0"}',
        b'{"digest": 1, "files": {}}',
        b"[" * 100_000,
        b'{"digest": "0", "files": {}, "metadata": []}',
    ],
)
def test_a_damaged_manifest_is_an_input_error(content, tmp_path):
    put(tmp_path / "x")
    (tmp_path / "x" / MANIFEST).write_bytes(content)
    with pytest.raises(InputError, match=r"manifest\.json: not a manifest.*delete the folder"):
        read_manifest(tmp_path / "x")


def test_text_is_replaced_whole(tmp_path):
    """A reader that looks all the time sees one of the two texts, each in full."""
    path = tmp_path / "deep" / "file.txt"
    texts = ["a" * 200_000, "b" * 100_000]
    write_atomically(path, texts[0])
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [write_atomically(path, texts[number % 2]) for number in range(30)])
        while not writing.done():
            assert path.read_text() in texts
        writing.result()
    assert partials(path.parent) == []


def test_a_failed_write_keeps_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert partials(tmp_path) == []


def test_a_text_in_the_place_of_a_folder_leaves_nothing(tmp_path):
    (tmp_path / "file.txt").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "file.txt", "new")
    assert partials(tmp_path) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=5), st.randoms())
def test_a_digest_does_not_depend_on_order(value, random):
    items = list(value.items())
    random.shuffle(items)
    assert digest_of(dict(items)) == digest_of(value) == digest_of(json.loads(json.dumps(value)))


@given(json_values, json_values)
def test_different_values_have_different_digests(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest_of(one) == digest_of(other)) == same


REFERENCES = [
    ProblemSetRef(uri="/a", digest="d", train=1, heldout=2),
    SftDataRef(uri="/a", digest="d", pairs=1, verified=False),
    CheckpointRef(uri="/a", digest="d", weight_version=3),
    TrajectoryBatchRef(uri="/a", digest="d", run_id="r", iteration=0, trajectories=1, turns=2),
    EvaluationRef(uri="/a", digest="d", policy_digest="p"),
]


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda reference: type(reference).__name__)
def test_references_are_small_frozen_and_survive_json(reference):
    assert TypeAdapter(type(reference)).validate_json(reference.model_dump_json()) == reference
    assert len(reference.model_dump_json()) < 200
    assert hash(reference) == hash(reference.model_copy())
    with pytest.raises(ValidationError):
        reference.digest = "other"
    with pytest.raises(ValidationError):
        type(reference)(**reference.model_dump(), payload=[1])
