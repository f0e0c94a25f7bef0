"""Packages: complete, the same each time, written in one step, and refused by name if a byte differs."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extras.packaging import package as module
from extras.packaging.inputs import PackageInputs
from extras.packaging.package import Package, check_package, settings_in, write_package
from kernels_eval.errors import InputError
from tasks.pipeline import digests
from tasks.pipeline.store import published_digest

POLICY = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
OURS = {"README.md", "LICENSE", "kernelmill.yaml", "prompt.txt"}


@pytest.fixture
def folder(inputs: PackageInputs, tmp_path: Path) -> Path:
    write_package(inputs, tmp_path / "package")
    return tmp_path / "package"


def test_every_file_is_there_and_named_with_its_sha256(folder: Path, inputs: PackageInputs):
    stored = json.loads((folder / "package.json").read_text())
    assert set(stored["files"]) == POLICY | OURS
    assert {file.name for file in folder.iterdir()} == POLICY | OURS | {"package.json", "manifest.json"}
    for name, digest in stored["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert (stored["run_id"], stored["weight_version"]) == (inputs.run_id, 2)
    assert stored["digests"]["policy"] == inputs.policy.digest
    assert set(stored["digests"]) > {"problems", "sft_data", "evaluation sampled 0", "evaluation greedy 2"}
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert (folder / "prompt.txt").read_text() == "{source}\n"
    assert check_package(folder) == Package.model_validate(stored)


def test_weights_are_read_once_to_be_copied(inputs: PackageInputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    original = digests.sha256_of
    monkeypatch.setattr(digests, "sha256_of", lambda file: (read.append(file.name), original(file))[1])
    write_package(inputs, tmp_path / "package")
    assert "README.md" in read
    assert not POLICY & set(read)


def test_the_same_policy_gives_the_same_package(inputs: PackageInputs, folder: Path, tmp_path: Path):
    write_package(inputs, tmp_path / "again" / "package")
    assert published_digest(tmp_path / "again" / "package") == published_digest(folder)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_byte_is_found_and_its_file_named(folder: Path, data: st.DataObject):
    files = sorted(POLICY | OURS | {"package.json"})
    name = data.draw(st.sampled_from(files))
    original = (folder / name).read_bytes()
    place = data.draw(st.integers(0, len(original) - 1))
    changed = bytes([original[place] ^ data.draw(st.integers(1, 255))])
    (folder / name).write_bytes(original[:place] + changed + original[place + 1 :])
    with pytest.raises(InputError, match=rf"/{name}: damaged"):
        check_package(folder)
    (folder / name).write_bytes(original)
    check_package(folder)


@pytest.mark.parametrize("name", sorted(POLICY | OURS | {"package.json", "manifest.json"}))
def test_a_missing_file_is_named(folder: Path, name: str):
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"/{name}: (damaged|missing)"):
        check_package(folder)


def test_an_added_file_is_named_but_not_a_hidden_one(folder: Path):
    (folder / ".gitattributes").touch()
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").touch()
    check_package(folder)
    (folder / "adapter_config.json").write_text("{}")  # transformers would load it
    with pytest.raises(InputError, match=r"/adapter_config\.json: is no part of the package"):
        check_package(folder)


def test_a_digest_that_was_changed_in_both_places_but_one_is_found(folder: Path):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "config.json").write_text("{}")
    manifest["files"]["config.json"] = hashlib.sha256(b"{}").hexdigest()[:32]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"config\.json: package\.json and manifest\.json have different digests"):
        check_package(folder)


def test_a_folder_that_is_no_package(tmp_path: Path):
    (tmp_path / "package.json").write_text("{}")  # of something else
    assert settings_in(tmp_path) is None
    with pytest.raises(InputError, match="expected a package"):
        check_package(tmp_path)


def test_a_package_of_a_later_format_is_refused(folder: Path):
    stored = json.loads((folder / "package.json").read_text())
    (folder / "package.json").write_text(json.dumps({**stored, "format": 2}))
    (folder / "manifest.json").write_text(json.dumps({"digest": "d", "files": {}}))
    with pytest.raises(InputError, match=r"package\.json: not that of a package: format"):
        check_package(folder)


def test_after_a_failure_nothing_is_left(inputs: PackageInputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "place"
    (place / "empty").mkdir(parents=True)

    def fails(_: Path) -> str:
        raise OSError(28, "No space left on device", "model.safetensors")

    with monkeypatch.context() as patch:
        patch.setattr(module, "sha256_of", fails)
        for name in ("new", "empty"):
            with pytest.raises(OSError, match="No space left"):
                write_package(inputs, place / name)
    assert [path.name for path in place.iterdir()] == ["empty"]
    assert not any((place / "empty").iterdir())
    (inputs.policy.path / "tokenizer.json").write_text("changed")
    with pytest.raises(InputError, match=r"tokenizer\.json: damaged"):
        write_package(inputs, place / "new")
    assert [path.name for path in place.iterdir()] == ["empty"]


def test_content_that_came_while_files_were_copied_is_not_replaced(
    inputs: PackageInputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place, copy = tmp_path / "package", module.copy_policy

    def copy_while_another_writes(source: Path, destination: Path) -> dict[str, str]:
        place.mkdir()
        (place / "mine.txt").write_text("precious")
        return copy(source, destination)

    monkeypatch.setattr(module, "copy_policy", copy_while_another_writes)
    with pytest.raises(InputError, match="has content"):
        write_package(inputs, place)
    assert [(file.name, file.read_text()) for file in place.iterdir()] == [("mine.txt", "precious")]


def test_a_link_to_an_empty_folder_is_followed(inputs: PackageInputs, tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_package(inputs, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    check_package(tmp_path / "real")


def test_a_system_message_is_a_file_of_its_own(inputs: PackageInputs, tmp_path: Path):
    episode = inputs.rollout.episode.model_copy(update={"system_message": "You write {{ language }}.\n"})
    rollout = inputs.rollout.model_copy(update={"episode": episode})
    write_package(inputs.model_copy(update={"rollout": rollout}), tmp_path / "package")
    assert (tmp_path / "package" / "system.txt").read_text() == "You write Triton."
    assert '"system.txt").read_text(' in (tmp_path / "package" / "README.md").read_text()
    check_package(tmp_path / "package")
