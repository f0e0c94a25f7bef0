"""The demo's suite leaves RL something to learn: admission after SFT, on problems that are not the held-out ones.

Settings of the demo are chosen on these problems, so that its held-out problems decide nothing but the result.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import best_kernels

from flows.run.state import read_state
from flows.settings.configuration import load_configuration
from tasks.problems.problem_set import read_problems
from tasks.problems.row import Split

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

VALIDATION = [
    "problems.seed=77", "problems.heldout=32", "problems.harder=0", "iterations=0", "sft.data.seed=0",
    "evaluation.samples_per_problem=16", "evaluation.pass_at=[1,16]",
]  # fmt: skip
SEARCHED = 6
"""Problems whose best kernel is searched."""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the demo's policy after SFT, and evaluate it with 16 samples a problem."""
    runs = tmp_path_factory.mktemp("room")
    arguments = [sys.executable, "-m", "flows.cli.main", "train", "-c", "deployments/configs/local.yaml"]
    arguments += [part for setting in [*VALIDATION, f"runs_dir={runs}"] for part in ("-s", setting)]
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return (runs / "latest").resolve()


def test_the_policy_after_sft_has_room(run_dir: Path) -> None:
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    first, best_of, repair, *_ = summary["admission"]
    assert best_of["name"] == "pass@16 less pass@1"
    assert [each["is_met"] for each in (first, best_of, repair)] == [True, True, True], summary["admission"]


def test_the_best_kernel_of_most_problems_is_known(run_dir: Path) -> None:
    config, problems = load_configuration(run_dir / "config.yaml"), read_state(run_dir).problems
    assert problems is not None
    found = best_kernels.search(read_problems(problems, Split.HELDOUT)[:SEARCHED], config)
    assert sum(reward is not None for reward in found.values()) >= SEARCHED / 2
