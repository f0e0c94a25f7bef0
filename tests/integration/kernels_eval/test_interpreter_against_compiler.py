"""The interpreter refuses what Triton's compiler refuses, and nothing else. Values are compared on a GPU (tools/gpu)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "gpu" / "interpreter_against_compiler.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_both_refuse_the_same_kernels(tmp_path: Path) -> None:
    stored = tmp_path / "interpreted.json"
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, str(SCRIPT), "interpret", str(stored)], check=True, timeout=600, env=environment)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "refusals", str(stored)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout
    assert "refused by both" in done.stdout
