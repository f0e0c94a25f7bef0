"""A team stands for its members: by digest, wherever the folder of runs lies."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from kernels_eval.errors import InputError
from tasks.agents.config import SOLVER
from tasks.agents.team import TEAM_FILE, is_team, lead_of, member_of, members_of, publish_team
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import publish, published_digest
from tasks.pipeline.tables import METRICS_FILE
from tasks.training.retention import has_optimizer, has_weights, keep_optimizers, keep_weights


def make_policy(folder: Path, version: int = 1, text: str = "weights") -> CheckpointRef:
    with publish(folder, {"batch": "b"}) as partial:
        (partial / "model.safetensors").write_text(f"{text} {folder.name}")
        (partial / "optimizer").mkdir()
        (partial / "optimizer/state.safetensors").write_text("state")
        pl.DataFrame({"step": [2 * version, 2 * version + 1], "loss": [0.5, 0.25]}).write_parquet(
            partial / METRICS_FILE
        )
    return CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=version)


def test_members_are_found_after_the_folder_of_runs_has_moved(tmp_path: Path) -> None:
    a, b = (make_policy(tmp_path / "runs/store/update" / name) for name in "ab")
    team = publish_team({"optimizer": b, "generator": a}, tmp_path / "runs/store/team/t", 1)
    assert members_of(team) == {"generator": a, "optimizer": b}
    shutil.move(tmp_path / "runs", tmp_path / "elsewhere")
    moved = team.model_copy(update={"uri": str(tmp_path / "elsewhere/store/team/t")})
    assert is_team(moved)
    assert member_of(moved, "optimizer").path == tmp_path / "elsewhere/store/update/b"
    assert (lead_of(moved).path / "model.safetensors").is_file()


def test_the_digest_is_that_of_the_members(tmp_path: Path) -> None:
    a, b, c = (make_policy(tmp_path / name) for name in "abc")
    first = publish_team({"generator": a, "optimizer": b}, tmp_path / "one/t", 1)
    again = publish_team({"optimizer": b, "generator": a}, tmp_path / "elsewhere/deeper/t", 1)
    swapped = publish_team({"generator": b, "optimizer": a}, tmp_path / "two/t", 1)
    other = publish_team({"generator": a, "optimizer": c}, tmp_path / "three/t", 1)
    assert first.digest == again.digest
    assert len({first.digest, swapped.digest, other.digest}) == 3


def test_a_single_policy_is_everybodys(tmp_path: Path) -> None:
    policy = make_policy(tmp_path / "a")
    assert not is_team(policy)
    assert members_of(policy) == {SOLVER: policy}
    assert member_of(policy, "optimizer") == policy == lead_of(policy)


def test_an_unknown_agent_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    team = publish_team({"generator": make_policy(tmp_path / "a")}, tmp_path / "t", 1)
    with pytest.raises(InputError, match=r"no agent 'tester' .*it has generator"):
        member_of(team, "tester")
    (team.path / TEAM_FILE).write_text(json.dumps({"generator": {"folder": "a"}}))
    with pytest.raises(InputError, match=r"agents\.json: expected folder, digest and weight_version"):
        members_of(team)


def test_metrics_are_those_of_the_members_last_training(tmp_path: Path) -> None:
    a, old = make_policy(tmp_path / "a", 2), make_policy(tmp_path / "b", 1)
    team = publish_team({"generator": a, "optimizer": old}, tmp_path / "t", 2)
    rows = pl.read_parquet(team.path / METRICS_FILE)
    assert rows["agent"].to_list() == ["generator", "generator"]
    both = publish_team({"generator": a, "optimizer": make_policy(tmp_path / "c", 2)}, tmp_path / "u", 2)
    assert pl.read_parquet(both.path / METRICS_FILE)["agent"].to_list() == [
        "generator", "optimizer", "generator", "optimizer"
    ]  # fmt: skip


def test_retention_keeps_what_another_team_needs(tmp_path: Path) -> None:
    untrained = make_policy(tmp_path / "untrained", 0)
    teams = {
        version: publish_team(
            {"generator": untrained, "optimizer": make_policy(tmp_path / f"o{version}", version)},
            tmp_path / f"t{version}",
            version,
        )
        for version in range(5)
    }
    keep_optimizers(teams, 10)
    assert not has_optimizer(teams[1])
    assert (untrained.path / "optimizer/state.safetensors").is_file()
    assert has_optimizer(teams[4])
    keep_weights(teams, 10)
    assert [version for version in teams if has_weights(teams[version])] == [0, 3, 4]
    assert (untrained.path / "model.safetensors").is_file()


def test_members_share_a_tokenizer(tmp_path: Path) -> None:
    members: dict[str, CheckpointRef] = {}
    for agent, tokens in (("generator", "a"), ("optimizer", "b")):
        with publish(tmp_path / agent) as partial:
            (partial / "tokenizer.json").write_text(tokens)
        members[agent] = CheckpointRef(uri=str(tmp_path / agent), digest=published_digest(tmp_path / agent))
    with pytest.raises(InputError, match="generator and optimizer: expected the same tokenizer"):
        publish_team(members, tmp_path / "team", 0)
    assert not (tmp_path / "team").exists()
    assert not list(tmp_path.glob(".partial*"))
