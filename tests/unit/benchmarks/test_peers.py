"""A benchmark whose peer is not installed says so in one sentence, before it measures anything."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None: as if it were not installed
sys.path.insert(0, "benchmarks")
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("datasets", "benchmarks/trajectory_store.py"),
        ("trl,datasets", "benchmarks/update.py"),
        pytest.param("trl,datasets", "benchmarks/rollout.py", marks=pytest.mark.slow),  # imports torch first
    ],
)
def test_a_missing_peer_is_one_sentence_and_exit_code_2(missing: str, command: str):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr == (
        f"{missing.replace(',', ' and ')}: not installed; "
        "this measurement needs the extra `benchmarks`: pip install -e '.[benchmarks]'\n"
    )


def test_what_needs_no_peer_runs_without_it():
    command = ["benchmarks/trajectory_store.py", "--turns", "0"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "datasets", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
