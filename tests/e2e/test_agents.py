"""Agents from SFT to report, each with weights of its own: trained, resumed from the cache, put together anew."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

CONFIG = """\
extends: {configs}/test.yaml
name: agents
iterations: 1
control: true
problems: {{levels: [1], train: 20, heldout: 4, harder: 0}}
sft:
  steps: 300 # enough for a correct kernel now and then, which the joint epoch needs
  data: {{compositions: 20, repair_fraction: 0.5, stop_fraction: 0.2}}
  joint: {{problems: 8, samples_per_problem: 6}}
rollout:
  episode:
    reward: kernelbench - 0.2*length
    agents:
      generator: {{turns: first, shown: problem}}
      optimizer: {{turns: later, shown: kernel, may_stop: true}}
update: {{credit: improvement}}
evaluation: {{greedy: false}}
"""


@pytest.fixture(scope="module")
def kernelmill(server: object, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("agents")
    config = folder / "agents.yaml"
    config.write_text(CONFIG.format(configs=Path("deployments/configs").resolve()))
    environment = os.environ | {"PREFECT_HOME": str(folder / "prefect"), "COLUMNS": "200"}

    def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "flows.cli.main", *arguments],
            env=environment, capture_output=True, text=True, timeout=800,
        )  # fmt: skip

    command.settings = ("--config", str(config), "--set", f"runs_dir={folder / 'runs'}")  # pyright: ignore[reportFunctionMemberAccess]
    return command


@pytest.fixture(scope="module")
def run_dir(kernelmill: Any) -> Path:
    result = kernelmill("train", *kernelmill.settings)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return Path(result.stdout.strip().splitlines()[-1].rpartition(": ")[2])


def test_each_agent_has_weights_pairs_and_turns_of_its_own(run_dir: Path) -> None:
    first, last = (
        members_of(CheckpointRef(uri=str((run_dir / f"checkpoints/policy-00{version}").resolve()), digest=""))
        for version in (0, 1)
    )
    assert first.keys() == last.keys() == {"generator", "optimizer"}
    assert len({member.digest for member in [*first.values(), *last.values()]}) == 4
    turns = pl.read_parquet(run_dir / "trajectories/iteration=0/turns.parquet")
    wrote = set(turns.select("turn_index", "role", "agent", "policy_digest").iter_rows())
    assert wrote == {
        (0, "generator", "generator", first["generator"].digest),
        (1, "optimizer", "optimizer", first["optimizer"].digest),
    }
    metrics = pl.read_parquet(run_dir / "checkpoints/policy-001/metrics.parquet")
    assert set(metrics["agent"]) == {"generator", "optimizer"}


def test_the_joint_epoch_learns_from_conversations_of_its_own(run_dir: Path) -> None:
    state = json.loads((run_dir / "state.json").read_text())
    store = {label: run_dir.parent / folder for label, folder in state["artifacts"].items()}
    pairs = pl.read_parquet(store["pairs of the joint epoch"] / "pairs.parquet")
    played = pl.read_parquet(store["rollout for the joint epoch"] / "turns.parquet")
    assert set(pairs["problem_id"]) <= set(played["problem_id"])
    assert played["problem_id"].n_unique() == 8
    team = members_of(CheckpointRef(uri=str(store["team 0"]), digest=""))
    before = members_of(CheckpointRef(uri=str(store["team 0, before the joint epoch"]), digest=""))
    trained = set(pairs["role"])
    assert {agent for agent in team if team[agent].digest != before[agent].digest} == trained != set()


def test_the_report_says_what_each_contributed(run_dir: Path) -> None:
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["heldout"]["after"]["agents"].keys() == {"generator", "optimizer"}
    assert summary["joint_epoch"]["conversations"] == 8 * 6
    assert summary["joint_epoch"]["problems"] == 8
    assert "Who contributed what" in (run_dir / "report.html").read_text()


def test_started_again_nothing_is_computed(kernelmill: Any, run_dir: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run_dir.parent.glob("store/*/*/manifest.json")}
    result = kernelmill("train", *kernelmill.settings)
    assert result.returncode == 0, result.stdout[-3000:]
    assert before == {path: path.stat().st_mtime_ns for path in run_dir.parent.glob("store/*/*/manifest.json")}


def test_the_optimizer_is_asked_anew_and_existing_tools_are_met(run_dir: Path, tmp_path: Path) -> None:
    # Asked are kernels that something else beats: by any gain, so that this small run has some.
    oracle, against = tmp_path / "oracle.json", tmp_path / "against.json"
    for command in (
        [
            "agents_oracle.py",
            str(run_dir),
            "--judge",
            "--answers",
            "3",
            "--kernels",
            "2",
            "--gain",
            "1.0",
            "--out",
            oracle,
        ],
        ["against_tools.py", str(run_dir), "--problems", "1", "--out", against],
    ):
        done = subprocess.run(
            [sys.executable, f"tools/{command[0]}", *command[1:]],
            env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True, timeout=800,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    asked = [line["anew"] for line in json.loads(oracle.read_text()).values() if line["anew"]]
    assert len(asked) == 1
    assert asked[0]["n"] == 3
    assert 1 <= asked[0]["given"] + asked[0]["left_out"] <= 2
    (line,) = json.loads(against.read_text())["problems"]
    assert line["measured"] >= 1
    assert set(line["rivals"]) == {"eager", "autotuner"}


def test_a_team_of_swapped_agents_is_compared(kernelmill: Any, run_dir: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped"
    result = kernelmill(
        "policy", "team", str(swapped), f"generator={run_dir}:optimizer", f"optimizer={run_dir}@1:generator"
    )
    assert result.returncode == 0, result.stderr
    assert members_of(CheckpointRef(uri=str(swapped), digest=""))["generator"].digest == (
        members_of(CheckpointRef(uri=str((run_dir / "checkpoints/policy-001").resolve()), digest=""))[
            "optimizer"
        ].digest
    )
    for wrong, said in ((f"generator={run_dir}:tester", "no agent 'tester'"), ("generator", "expected AGENT=FOLDER")):
        refused = kernelmill("policy", "team", str(tmp_path / "other"), wrong)
        assert refused.returncode == 2
        assert said in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
    compared = kernelmill("compare", f"together={run_dir}@1", f"swapped={swapped}", *kernelmill.settings)
    assert compared.returncode == 0, compared.stdout[-3000:] + compared.stderr[-1000:]
    assert "swapped" in compared.stdout
