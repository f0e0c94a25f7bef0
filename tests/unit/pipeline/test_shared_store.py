"""The store that machines share, on a folder, and on a real S3 server where its packages are installed."""

import json
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from tasks.pipeline.cache import StageOutcome, is_stored, keep
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.shared_store import SharedStore
from tasks.pipeline.store import PARTS, publish, published_digest

ON_S3 = pytest.param("s3", marks=pytest.mark.long)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """Start an S3 server on this machine; `pip install s3fs 'moto[server]'`."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["file", ON_S3])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/shared/store"
        return
    endpoint = request.getfixturevalue("s3_server")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("NO_PROXY", "*")
    import s3fs  # pyright: ignore[reportMissingImports]

    s3fs.S3FileSystem.clear_instance_cache()
    files: Any = s3fs.S3FileSystem()
    files.mkdir("bucket")
    yield "s3://bucket/of/ours"
    files.rm("bucket", recursive=True)


def files_at(url: str) -> dict[str, bytes]:
    """Content by name, below the URL."""
    import fsspec

    files, root = fsspec.url_to_fs(url)
    files.invalidate_cache()
    return {name.partition(f"{root}/")[2]: files.cat_file(name) for name in files.find(root)}


def put(url: str, name: str, content: bytes) -> None:
    import fsspec

    files, root = fsspec.url_to_fs(url)
    files.pipe_file(f"{root}/{name}", content)


def made(runs_dir: Path, name: str = "one", text: str = "weights", parts: tuple[str, ...] = ()) -> StageOutcome:
    """Publish an artifact in a folder of runs, and return the outcome of its stage."""
    folder = runs_dir / "store" / "update" / name
    with publish(folder, {PARTS: [f"../{part}" for part in parts]} if parts else {}) as partial:
        (partial / "optimizer").mkdir()
        (partial / "optimizer" / "state").write_bytes(b"s" * 20_000_000 if text == "large" else b"state")
        (partial / "model").write_text(text)
    reference = CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=3)
    return StageOutcome(reference=reference.stored_in(runs_dir), seconds=1.5)


def sent(url: str, runs_dir: Path, outcome: StageOutcome, key: str = "key") -> None:
    store = SharedStore(url, runs_dir)
    store.offer(key, outcome)
    store.finish()


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("text", ["weights", "large"])
def test_what_one_machine_has_made_another_has_to_the_byte(url: str, tmp_path: Path, text: str):
    here, there = tmp_path / "here", tmp_path / "there"
    outcome = made(here, text=text)
    sent(url, here, outcome)
    store = SharedStore(url, there)
    assert store.fetch("key") == outcome
    assert content_of(there / "store") == content_of(here / "store")
    keep(there / "results", "key", outcome)
    assert is_stored(there / "results", "key", there)
    assert store.fetch("another") is None


def test_parts_of_a_team_come_with_it(url: str, tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    made(here, "member")
    sent(url, here, made(here, "team", "team", parts=("member",)))
    assert SharedStore(url, there).fetch("key") is not None
    assert content_of(there / "store") == content_of(here / "store")


def test_the_first_writers_result_stays_and_equal_files_are_there_once(url: str, tmp_path: Path):
    outcomes = {name: made(tmp_path / name, text=name) for name in ("a", "b", "c")}
    ready = threading.Barrier(3)

    def write(name: str) -> None:
        store = SharedStore(url, tmp_path / name)
        ready.wait()
        store.offer("key", outcomes[name])
        store.finish()

    writers = [threading.Thread(target=write, args=[name]) for name in outcomes]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    before = files_at(url)
    winner = SharedStore(url, tmp_path / "reader").fetch("key")
    assert winner in outcomes.values()
    states = [content for content in before.values() if content == b"state"]
    assert len(states) == 1
    sent(url, tmp_path / "c", made(tmp_path / "c", text="later"))
    assert SharedStore(url, tmp_path / "reader").fetch("key") == winner
    assert files_at(url) == before, "a result that is there is not sent again, nor its files"


def test_a_writer_that_comes_between_look_and_put_does_not_replace(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    first = made(tmp_path / "a", text="first")
    sent(url, tmp_path / "a", first)
    late = SharedStore(url, tmp_path / "b")
    files, looks = late._files, list[str]()  # pyright: ignore[reportPrivateUsage]
    exists = files.exists

    def not_yet(name: str) -> bool:
        looks.append(name)
        return len(looks) > 1 and exists(name)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "kernelmill.store"):
        patch.setattr(files, "exists", not_yet)
        late.offer("key", made(tmp_path / "b", text="second"))
        late.finish()
    assert looks[0].endswith("results/key")
    assert [record for record in caplog.records if record.name == "kernelmill.store"] == []
    assert SharedStore(url, tmp_path / "reader").fetch("key") == first


def test_files_without_a_result_are_nothing_and_half_a_file_is_sent_again(url: str, tmp_path: Path):
    outcome = made(tmp_path / "here")
    sent(url, tmp_path / "here", outcome)
    digest = next(name for name, content in files_at(url).items() if content == b"weights")
    import fsspec

    files, root = fsspec.url_to_fs(url)
    files.rm(f"{root}/results/key")
    put(url, digest, b"wei")
    assert SharedStore(url, tmp_path / "there").fetch("key") is None
    sent(url, tmp_path / "here", outcome)
    assert SharedStore(url, tmp_path / "there").fetch("key") == outcome


def test_a_damaged_file_is_refused_and_leaves_nothing(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sent(url, tmp_path / "here", made(tmp_path / "here"))
    digest = next(name for name, content in files_at(url).items() if content == b"weights")
    put(url, digest, b"Weights")
    with caplog.at_level(logging.WARNING, "kernelmill.store"):
        assert SharedStore(url, tmp_path / "there").fetch("key") is None
    assert "model: damaged" in caplog.text
    assert content_of(tmp_path / "there") == {}


def test_a_result_that_leads_out_of_the_folder_is_refused(tmp_path: Path):
    url = f"file://{tmp_path}/shared"
    sent(url, tmp_path / "here", made(tmp_path / "here"))
    stored = json.loads(files_at(url)["results/key"])
    files = stored["artifacts"][0]["manifest"]["files"]
    wrong = [
        [{"uri": "../outside", "manifest": {"files": files}}],
        [{"uri": "/outside", "manifest": {"files": files}}],
        [{"uri": "store/x", "manifest": {"files": {"../../../outside": files["model"]}}}],
    ]
    for artifacts in wrong:
        put(url, "results/key", json.dumps({**stored, "artifacts": artifacts}).encode())
        assert SharedStore(url, tmp_path / "inner" / "there").fetch("key") is None
    put(url, "results/key", b"{}")
    assert SharedStore(url, tmp_path / "inner" / "there").fetch("key") is None
    assert content_of(tmp_path / "inner") == {}
    assert not (tmp_path / "outside").exists()


def test_what_was_damaged_or_removed_here_is_not_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    url = f"file://{tmp_path}/shared"
    outcome = made(tmp_path / "here")
    (tmp_path / "here" / outcome.reference.uri / "model").write_text("WEIGHTS")
    with caplog.at_level(logging.WARNING, "kernelmill.store"):
        sent(url, tmp_path / "here", outcome)
        shutil.rmtree(tmp_path / "here")
        sent(url, tmp_path / "here", outcome)
    assert "damaged" in caplog.text
    assert "found none" in caplog.text
    assert files_at(url).keys() == {"results/format.json"}


@pytest.mark.parametrize(
    "error", [RuntimeError("loop is closed"), KeyError("ETag"), OSError("no route"), MemoryError()]
)
def test_an_error_of_any_kind_is_told_and_what_follows_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
):
    url, here = f"file://{tmp_path}/shared", tmp_path / "here"
    outcomes = {name: made(here, name, text=name) for name in ("one", "two", "three")}
    store = SharedStore(url, here)
    files = store._files  # pyright: ignore[reportPrivateUsage]
    put_file = files.put_file

    def refuses_two(source: str, place: str) -> None:
        if "/two/" in source:
            raise error
        put_file(source, place)

    monkeypatch.setattr(files, "put_file", refuses_two)
    with caplog.at_level(logging.WARNING, "kernelmill.store"):
        for name, outcome in outcomes.items():
            store.offer(name, outcome)
        store.finish()
    first, last = (record for record in caplog.records if record.name == "kernelmill.store")
    assert f"store/update/two was not stored: {str(error) or 'MemoryError'}" in first.getMessage()
    assert (first.exc_info is None) == isinstance(error, OSError), "an error that nobody expects has its place"
    assert last.getMessage() == f"{url}: not stored, so other machines make it again: store/update/two"
    another = SharedStore(url, tmp_path / "there")
    assert [another.fetch(name) for name in outcomes] == [outcomes["one"], None, outcomes["three"]]


@pytest.mark.parametrize("wrong", ["nowhere://x/y", "file:///dev/null/x"])
def test_a_store_that_is_none_is_refused_before_anything_else(wrong: str, tmp_path: Path):
    with pytest.raises(InputError, match=rf"store: {wrong}"):
        SharedStore(wrong, tmp_path)


@pytest.mark.long
def test_a_bucket_that_is_not_there_is_refused(s3_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(InputError, match=r"store: s3://nobody/x: cannot be written to"):
        SharedStore("s3://nobody/x", tmp_path)
