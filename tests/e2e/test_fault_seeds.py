"""Seeds of the fault scheduler pass: real runs that are disturbed and continued end as the undisturbed run does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(7200)]

PROGRAM = Path(__file__).parents[2] / "tools/faults/fault_seeds.py"
SEEDS = range(1, 4)


TEAM_KILLS = (
    "SFT of the optimizer", "joint epoch of the optimizer@0", "update 0 of the generator@0",
    "update 0 of the optimizer@0", "team 1@0", "held-out rollout of policy 2@0",
)  # fmt: skip
"""Short stages are hit at once: on another machine they may be over after half of what they took undisturbed."""


def test_a_killed_team_ends_as_the_undisturbed_one(tmp_path: Path):
    command = [sys.executable, str(PROGRAM), str(tmp_path / "work"), "--team", "--kill", "; ".join(TEAM_KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = (json.loads(line) for line in done.stdout.splitlines())
    assert done.returncode == 0, line["wrong"]
    hit = [each["during"] for attempt in line["attempts"] for each in attempt["hit"]]
    assert (len(hit), line["missed"], line["difference"]) == (len(TEAM_KILLS), [], {}), hit


def test_disturbed_runs_end_as_the_undisturbed_one(tmp_path: Path):
    command = [sys.executable, str(PROGRAM), str(tmp_path / "work"), "--seeds", f"{SEEDS[0]}..{SEEDS[-1]}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seed"] for line in lines] == list(SEEDS), done.stderr
    assert done.returncode == 0, [line["wrong"] for line in lines]
    assert any(attempt["hit"] for line in lines for attempt in line["attempts"])
    assert not any(line["difference"] for line in lines)
