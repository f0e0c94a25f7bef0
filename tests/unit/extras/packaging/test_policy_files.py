"""The files of a policy: what only training reads stays, and nothing damaged is copied."""

import hashlib
import stat
from pathlib import Path

import polars as pl
import pytest

from extras.packaging.policy_files import OF_TRAINING, copy_policy
from kernels_eval.errors import InputError
from tasks.agents.team import members_of, publish_team
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import publish, published_digest


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    with publish(tmp_path / "policy") as folder:
        for name in (
            "config.json", "model.safetensors", "tokenizer.json", "additional_chat_templates/tool.jinja", "rows.json",
            "optimizer/state.safetensors", "critic/model.safetensors", "critic/optimizer/x", "adapter/base.json",
            "metrics.parquet",
        ):  # fmt: skip
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        (folder / "model.safetensors").chmod(0o600)
    return tmp_path / "policy"


def test_what_runs_the_policy_is_copied_with_its_digests(policy: Path, tmp_path: Path):
    copied = copy_policy(policy, tmp_path / "copy")
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "additional_chat_templates/tool.jinja"}
    found = {str(file.relative_to(tmp_path / "copy")) for file in (tmp_path / "copy").rglob("*") if file.is_file()}
    assert found == copied.keys() == wanted
    assert copied == {name: hashlib.sha256(name.encode()).hexdigest() for name in wanted}


def test_copies_share_nothing_with_the_original_and_others_may_read_them(policy: Path, tmp_path: Path):
    copy_policy(policy, tmp_path / "copy")
    original, copy = (folder / "model.safetensors" for folder in (policy, tmp_path / "copy"))
    assert original.stat().st_ino != copy.stat().st_ino
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(copy.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_changed_or_missing_file_is_named(policy: Path, tmp_path: Path):
    (policy / "tokenizer.json").write_text("tokenizer.jsoN")
    with pytest.raises(InputError, match=r"policy/tokenizer\.json: damaged"):
        copy_policy(policy, tmp_path / "copy")
    (policy / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"policy/tokenizer\.json: missing"):
        copy_policy(policy, tmp_path / "other")
    with pytest.raises(InputError, match="expected a published policy"):
        copy_policy(tmp_path / "copy", tmp_path / "third")


def test_of_a_team_each_members_folder_is_copied(policy: Path, tmp_path: Path):
    pl.DataFrame({"step": [0]}).write_parquet(policy / "metrics.parquet")
    member = CheckpointRef(uri=str(policy), digest=published_digest(policy), weight_version=2)
    publish_team({"generator": member, "optimizer": member}, tmp_path / "team", 2)
    copied = copy_policy(tmp_path / "team", tmp_path / "copy")
    found = {str(file.relative_to(tmp_path / "copy")) for file in (tmp_path / "copy").rglob("*") if file.is_file()}
    assert found == copied.keys()
    assert {"agents.json", "generator/model.safetensors", "optimizer/tokenizer.json"} < found
    assert not any("optimizer/optimizer" in name or name.endswith("metrics.parquet") for name in found)
    moved = members_of(CheckpointRef(uri=str(tmp_path / "copy"), digest=""))
    assert {agent: each.path for agent, each in moved.items()} == {
        agent: tmp_path / "copy" / agent for agent in ("generator", "optimizer")
    }


def test_folders_of_training_have_the_names_that_training_gives_them():
    from tasks.pipeline.integrity import OPTIMIZER_FILES
    from tasks.training.adapter_files import ADAPTER_FOLDER
    from tasks.update.critic import CRITIC_FOLDER

    assert {ADAPTER_FOLDER, CRITIC_FOLDER, *(name.split("/")[0] for name in OPTIMIZER_FILES)} < set(OF_TRAINING)
