"""`agents-smollm2.yaml` in miniature: SFT of both agents from a pretrained stand-in, one iteration, evaluation, report.

The stand-in has one layer and writes no kernel: its answers differ in their characters alone. Pairs are the module corpus's, judged on the CPU; servers are doubles of
SGLang's that sample with real weights.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.run.state import read_state
from tasks.agents.team import members_of
from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy, save_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.pipeline.store import read_metadata
from tasks.problems.modules.corpus import draw_optimizations, draw_pairs

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

DOUBLE = str(Path(__file__).parents[1] / "doubles/sglang_server.py")
CONFIG = """\
extends: {configs}/agents-smollm2.yaml
runs_dir: {folder}/runs
iterations: 1
control: false
problems: {{train: 6, heldout_source: null, heldout_path: null, heldout: 2, levels: [1], unseen: []}}
model: {{pretrained: {folder}/given, dtype: float32, template: generic}}
sft:
  epochs: 0.5
  compile: false
  batch_size: 4
  warmup_steps: 1
  joint: {{problems: 0}}
  data: {{pairs: 8, optimizations: 8, leave_out: [], stop_fraction: 0.3, judge: {{workers: 2}}}}
rollout:
  threads: 1
  gpus: 0
  problems_per_iteration: 2
  samples_per_problem: 3
  sampling: {{max_new_tokens: 16}}
  sglang: {{command: [{python}, {double}], flags: [], gpus_per_server: 0, canary_dtype: float32}}
  episode: {{reward: "kernelbench - 0.2*stand_in_terms:characters"}}
judge: {{device: cpu, compile: never, workers: 2, device_memory_gb: null}}
update: {{optimizer_steps: 1, tokens_per_rank: 8192, gpus_per_rank: 0, threads_per_rank: 1, warmup_steps: 0}}
evaluation: {{samples_per_problem: 2, pass_at: [1, 2], greedy: false}}
tracking: {{mode: disabled}}
prefect: {{start_timeout_s: 300}}
"""


def write_stand_in(folder: Path) -> None:
    """Write a model of one layer whose tokenizer knows the corpus's lines."""
    pairs = [*draw_pairs(30, 0), *draw_optimizations(30, 0)]
    texts = [text for pair in pairs for text in (pair.problem_source, pair.kernel_source)]
    tokenizer = train_tokenizer(texts, 1500, folder.with_name("tokenizer"))
    shape = ModelConfig(vocabulary=1500, layers=1, hidden=32, intermediate=64, heads=2, key_value_heads=1, head_dim=16)
    save_policy(new_policy(shape, tokenizer, seed=1), tokenizer, folder)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents-smollm2")
    write_stand_in(folder / "given")
    config = folder / "agents.yaml"
    places = {"configs": Path("deployments/configs").resolve(), "python": sys.executable, "double": DOUBLE}
    config.write_text(CONFIG.format(folder=folder, **places))
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    (folder / "stand_in_terms.py").write_text("def characters(answer):\n    return min(len(answer.text) / 2000, 1.0)\n")
    environment |= {"PYTHONPATH": f"{folder}:{Path.cwd()}"}
    environment |= {"PREFECT_HOME": str(folder / "prefect"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "flows.cli.main", "train", "--config", str(config)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return (folder / "runs/latest").resolve()


def test_each_agent_learns_from_its_own_pairs(run_dir: Path) -> None:
    data = read_state(run_dir).sft_data
    assert data is not None
    pairs = pl.read_parquet(data.path / "pairs.parquet").filter("used")
    kinds = set(pairs.select("role", "kind").iter_rows())
    assert kinds == {("generator", "direct"), ("optimizer", "repair")}
    found: dict[str, Any] = read_metadata(data.path)["optimizations"]
    assert 0 < found["used"] <= found["drawn"] <= 8
    asked = pairs.filter(pl.col("role") == "optimizer")["messages"].list.first().struct.field("content")
    assert all("Target: twice as fast as PyTorch." in text and "Your kernel was judged." in text for text in asked)


def test_both_start_from_the_stand_in_and_part(run_dir: Path) -> None:
    first, last = (members_of(policy) for _, policy in sorted(read_state(run_dir).policies.items()))
    assert first.keys() == last.keys() == {"generator", "optimizer"}
    assert len({member.digest for member in [*first.values(), *last.values()]}) == 4
    turns = pl.read_parquet(read_state(run_dir).batches[0].path / "turns.parquet")
    assert set(turns.select("role", "policy_digest").iter_rows()) == {
        (name, member.digest) for name, member in first.items()
    }


def test_the_report_says_what_each_contributed(run_dir: Path) -> None:
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["heldout"]["after"]["agents"].keys() == {"generator", "optimizer"}
    assert "Who contributed what" in (run_dir / "report.html").read_text()
