"""`kernelmill evaluate` and `compare` with models behind a server, as a user runs them: real Ray, Prefect and judge."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from imported import import_file

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("server")]

ROOT = Path(__file__).parents[4]
SETTINGS = {
    "extends": str(ROOT / "deployments/configs/local.yaml"),
    "name": "baseline",
    "problems": {"train": 4, "heldout": 3, "harder": 0},
    "evaluation": {"samples_per_problem": 2, "pass_at": [1, 2], "bootstrap_resamples": 200, "greedy": False},
    "rollout": {"episode": {"max_turns": 2}},
    "judge": {"workers": 1, "compile": "never"},
}
NO_KERNEL, BROKEN = {"text": "I cannot."}, {"text": "```python\nclass ModelNew(:\n```"}


@pytest.fixture(scope="module")
def openai_double() -> Any:
    return import_file(ROOT / "tests" / "doubles" / "openai_server.py").openai_double


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli.main", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=folder, check=False, env=environment
    )


def test_two_models_are_compared_and_asked_once(openai_double: Any, tmp_path: Path):
    config = tmp_path / "baseline.yaml"
    config.write_text(yaml.safe_dump(SETTINGS | {"runs_dir": str(tmp_path / "runs")}))
    with openai_double([NO_KERNEL, BROKEN]) as double:
        models = ["--model", f"small=s@{double.address}", "--model", f"large=l@{double.address}"]
        done = run(tmp_path, "compare", "--config", str(config), *models)
        assert done.returncode == 0, done.stdout + done.stderr
        asked = len(double.requests)
        assert asked == 2 * 3 * 2 * 2  # models, problems, samples, turns
        assert {request["model"] for request in double.requests} == {"s", "l"}
        again = run(tmp_path, "evaluate", str(config), "--openai-base-url", double.address, "--model", "s")
        assert again.returncode == 0, again.stdout + again.stderr
        assert len(double.requests) == asked, "the evaluation of the same model is cached"
    (file,) = (tmp_path / "runs").glob("baseline-*/comparisons/*/comparison.json")
    comparison = json.loads(file.read_text())
    small = comparison["policies"][0]
    assert (small["name"], small["uri"]) == ("small", f"s at {double.address}")
    assert small["tokens"] == {"prompts": 1200, "answers": 480}
    assert small["correct"] == 0
    assert comparison["n"] == 3
    assert "1,200 → 480" in file.with_name("comparison.html").read_text()
    assert "1,200 → 480" in done.stdout


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path):
    config = tmp_path / "baseline.yaml"
    config.write_text(yaml.safe_dump(SETTINGS | {"runs_dir": str(tmp_path / "runs")}))
    nowhere = "http://127.0.0.1:9/v1"
    done = run(tmp_path, "evaluate", str(config), "--openai-base-url", nowhere, "--model", "s")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"s: no server answers at {nowhere}" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(tmp_path, "compare", "--model", "s", "--model", f"t@{nowhere}")
    assert done.returncode == 2
    assert "expected NAME=MODEL@URL" in done.stderr
    done = run(tmp_path, "evaluate", "--model", "s")
    assert done.returncode == 2
    assert "--openai-base-url together with --model" in done.stderr
