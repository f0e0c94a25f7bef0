"""RL from a fine-tuned checkpoint: no SFT data, no SFT; policy 0 is the given model, evaluated before RL."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy, save_policy
from tasks.models.tokenizer import train_tokenizer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SETTINGS = [
    "sft=none", "iterations=1", "control=false", "problems.train=8", "problems.heldout=3", "problems.harder=0",
    # A policy of random weights writes no kernel: only the length of its answers differs.
    "rollout.episode.reward=kernelbench - 0.2*length", "rollout.sampling.max_new_tokens=24",
    "rollout.problems_per_iteration=2", "rollout.samples_per_problem=4", "update.optimizer_steps=1",
    "evaluation.greedy=false", "tracking.mode=offline",
]  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["import torch\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"]
    tokenizer = train_tokenizer(texts, 400, tmp_path_factory.mktemp("tokenizer"))
    shape = ModelConfig(vocabulary=400, layers=1, hidden=32, intermediate=64, heads=2, key_value_heads=1, head_dim=16)
    folder = tmp_path_factory.mktemp("given")
    save_policy(new_policy(shape, tokenizer, seed=1), tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def kernelmill(tmp_path_factory: pytest.TempPathFactory, given: Path) -> Any:
    runs = tmp_path_factory.mktemp("e2e") / "runs"
    settings = [*SETTINGS, f"model.pretrained={given}", f"runs_dir={runs}"]
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment |= {"PREFECT_HOME": str(runs.parent / "prefect"), "COLUMNS": "200"}

    def command(name: str, *more: str) -> "subprocess.CompletedProcess[str]":
        arguments = [sys.executable, "-m", "flows.cli.main", name, "deployments/configs/test.yaml"]
        arguments += [part for setting in [*settings, *more] for part in ("-s", setting)]
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=500)

    command.runs = runs
    return command


def test_the_plan_says_that_sft_is_left_out(kernelmill: Any, given: Path):
    done = kernelmill("plan")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SFT: left out, RL starts from {given}" in done.stdout


@pytest.mark.slow
def test_the_loop_runs_from_the_given_weights(kernelmill: Any, given: Path):
    done = kernelmill("train")
    assert done.returncode == 0, done.stdout + done.stderr
    run = kernelmill.runs / "latest"
    first, second = (load_file(run / f"checkpoints/policy-00{n}/model.safetensors") for n in (0, 1))
    weights = load_file(given / "model.safetensors")
    assert all(torch.equal(first[name], weights[name]) for name in weights)
    assert any(not torch.equal(first[name], second[name]) for name in weights)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["corpus"] is None
    assert summary["given_policy"] == str(given)
    assert summary["heldout"]["before"]["policy_digest"] != summary["heldout"]["after"]["policy_digest"]
    stages = set(summary["stage_seconds"])
    assert "given_policy" in stages
    lines = [json.loads(line) for line in (run / "figures.jsonl").read_text().splitlines()]
    stages_of_lines = [(line["iteration"], line["stage"]) for line in lines]
    assert stages_of_lines == [(0, "evaluation"), (0, "rollout"), (0, "update"), (1, "evaluation")]
    sent = [json.loads(line)["sent"] for line in (run / "wandb/sent.jsonl").read_text().splitlines()]
    assert [" ".join(key.split()[:2]) for key in sent] == [
        "evaluation 0", "rollout 0", "samples 0", "update 0", "evaluation 1", "update_step 1",
    ]  # fmt: skip
    assert len(list((run / "wandb").glob("offline-run-*"))) == 1
    assert not stages & {"sft_data", "validate_sft_data", "sft"}
    assert f"RL started from <b>{given}</b>" in (run / "report.html").read_text()
    again = kernelmill("train")
    assert again.returncode == 0
    assert "computed" not in again.stdout


@pytest.mark.parametrize(
    ("setting", "words"), [("model.pretrained=null", "model.pretrained"), ("control=true", "control")]
)
def test_what_needs_sft_is_refused_before_anything_starts(kernelmill: Any, setting: str, words: str):
    done = kernelmill("train", setting)
    assert done.returncode == 2
    assert words in done.stdout + done.stderr
