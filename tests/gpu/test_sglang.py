"""The whole SGLang engine on a real server: needs a GPU, and SGLang's packages as KERNELMILL_SGLANG_ARCHIVE."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ARCHIVE = os.environ.get("KERNELMILL_SGLANG_ARCHIVE")


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU here")
@pytest.mark.skipif(ARCHIVE is None, reason="KERNELMILL_SGLANG_ARCHIVE names no archive of SGLang's packages")
def test_a_real_server_end_to_end(tmp_path: Path) -> None:
    assert ARCHIVE is not None
    script = Path(__file__).parents[2] / "tools" / "gpu" / "run_sglang.sh"
    subprocess.run([script, ARCHIVE, tmp_path], check=True)
    parts = json.loads((tmp_path / "sglang.json").read_text(encoding="utf-8"))
    assert all(part.get("passed") for part in parts.values() if "skipped" not in part)
