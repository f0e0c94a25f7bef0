"""SFT's pairs made alone, where the run's GPUs, model and engine are not; the folder of runs goes to another machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

SETTINGS = [
    "problems.source=modules", "problems.train=12", "sft.data.corpus=modules", "sft.data.pairs=16",
    "sft.data.compile=never", "sft.data.judge.device=cpu", "sft.data.judge.workers=1", "judge.device=cuda",
    "model.pretrained=/nowhere", "rollout.engine=sglang", "rollout.gpus=0.1", "update.gpus_per_rank=0.4",
]  # fmt: skip


def kernelmill(runs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    settings = [part for setting in [*SETTINGS, f"runs_dir={runs}"] for part in ("-s", setting)]
    command = [sys.executable, "-m", "flows.cli.main", "sft", "deployments/configs/test.yaml", *settings, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment |= {"PREFECT_HOME": str(runs.parent / "prefect"), "COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_pairs_are_made_without_a_gpu_and_used_where_their_folder_is_copied_to(tmp_path: Path):
    made = kernelmill(tmp_path / "here" / "runs", "--pairs-only")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "✓ SFT data" in made.stdout
    assert "SFT:" not in made.stdout
    shutil.copytree(tmp_path / "here" / "runs", tmp_path / "there" / "runs", symlinks=True)
    shutil.rmtree(tmp_path / "here")
    used = kernelmill(tmp_path / "there" / "runs", "--pairs-only")
    assert used.returncode == 0, used.stdout + used.stderr
    assert "● SFT data: cached" in used.stdout
    refused = kernelmill(tmp_path / "there" / "runs")
    assert refused.returncode == 2
    assert "model.pretrained" in refused.stderr + refused.stdout
