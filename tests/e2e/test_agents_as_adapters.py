"""Agents as adapters on one base, from SFT to report, with a double of SGLang's server that samples with real weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from flows.run.state import read_state
from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef
from tasks.training.adapter_files import adapter_base

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

DOUBLE = str(Path(__file__).parents[1] / "doubles/sglang_server.py")
CONFIG = """\
extends: {configs}/test.yaml
name: adapters
iterations: 2
control: true
problems: {{levels: [1], train: 20, heldout: 4, harder: 0}}
sft:
  shared: true
  steps: 200
  data: {{compositions: 20, repair_fraction: 0.5, stop_fraction: 0.2}}
rollout:
  engine: sglang
  sglang: {{command: [{python}, {double}], gpus_per_server: 0, adapter_rank: 8}}
  episode:
    reward: kernelbench - 0.2*length
    agents:
      generator: {{turns: first, shown: problem}}
      optimizer: {{turns: later, shown: kernel, may_stop: true}}
update: {{credit: improvement, learning_rate: 1.0e-3, lora: {{rank: 8, alpha: 16}}}}
evaluation: {{greedy: false}}
"""


@pytest.fixture(scope="module")
def run_dir(server: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    config = folder / "adapters.yaml"
    places = {"configs": Path("deployments/configs").resolve(), "python": sys.executable, "double": DOUBLE}
    config.write_text(CONFIG.format(**places))
    environment = os.environ | {"PREFECT_HOME": str(folder / "prefect"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "flows.cli.main", "train", "--config", str(config)]
    result = subprocess.run(
        [*command, "--set", f"runs_dir={folder / 'runs'}"],
        env=environment, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return (folder / "runs/latest").resolve()


def teams_of(run_dir: Path) -> list[dict[str, CheckpointRef]]:
    return [members_of(policy) for _, policy in sorted(read_state(run_dir).policies.items())]


def test_agents_begin_as_one_policy_and_part_as_adapters_on_it(run_dir: Path) -> None:
    first, *later = teams_of(run_dir)
    assert first["generator"] == first["optimizer"]
    assert adapter_base(first["generator"].path) is None
    assert len(later) == 2
    for team in later:
        bases = [adapter_base(member.path) for member in team.values()]
        assert {base.digest for base in bases if base} == {first["generator"].digest}
    assert later[-1]["generator"].digest != later[-1]["optimizer"].digest


def test_each_turn_names_the_policy_of_its_agent(run_dir: Path) -> None:
    batch, team = read_state(run_dir).batches[1], teams_of(run_dir)[1]
    turns = pl.read_parquet(batch.path / "turns.parquet")
    found = dict(turns.select("agent", "policy_digest").unique().iter_rows())
    assert found == {agent: member.digest for agent, member in team.items()}
    assert set(turns["weight_version"]) == {1}


def test_the_control_is_another_base_for_all_agents(run_dir: Path) -> None:
    control, first = read_state(run_dir).control, teams_of(run_dir)[0]
    assert control is not None
    assert control.policy is not None
    members = members_of(control.policy)
    assert members["generator"] == members["optimizer"] != first["generator"]
    heldout = json.loads((run_dir / "summary.json").read_text())["heldout"]
    assert [heldout[name]["infrastructure_errors"] for name in ("before", "after", "control")] == [0, 0, 0]
