"""update_on_gpu.py, tried without a GPU: no mistake in it is to be found on a machine that costs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "gpu" / "update_on_gpu.py"

PRETENDED_PARTS = """
import json

def preload(name):
    pass

def run_part(name, tiny):
    if name == "exact":
        print("RESULT " + json.dumps({"first": 1}), flush=True)
        raise RuntimeError("a broken part")
    if name == "program":
        return
    speed = 30.0 if name.startswith("ours") else 10.0
    print("RESULT " + json.dumps({"tokens_per_s": speed, "peak_gib": 2.0}), flush=True)
"""


def run_script(script: Path, out: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(script), "--tiny-cpu", "--out", str(out), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    return done, json.loads((out / "update_gpu.json").read_text())


def test_a_part_that_fails_costs_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "tools" / "gpu"
    folder.mkdir(parents=True)
    script = Path(shutil.copy(SCRIPT, folder))
    (folder / "update_parts.py").write_text(PRETENDED_PARTS)
    done, results = run_script(script, tmp_path, "--parts", "exact,ours,program,trl")
    assert done.returncode == 1
    assert results["exact"]["first"] == 1
    assert "a broken part" in results["exact"]["error"]
    assert "error" in results["program"], "a part that says nothing has failed"
    assert results["summary"]["ours / trl"] == {"tokens_per_s": 3.0, "peak_memory": 1.0}
    assert '== exact: {"first": 1}' in done.stdout
    done, _ = run_script(script, tmp_path, "--parts", "exactly")
    assert "no such part: exactly; there are exact," in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_all_parts_run_with_tiny_shapes(tmp_path: Path) -> None:
    done, results = run_script(SCRIPT, tmp_path)
    failed = {name: results[name]["error"] for name in results["parts"] if "error" in results[name]}
    assert not failed, failed
    assert done.returncode == 0
    assert max(results["exact"]["attention_gradient_errors_bfloat16"]) < 1e-2
    assert max(results["exact"]["attention_gradient_errors_float32"]) < 1e-4
    assert max(results["exact"]["chunked_fp32_errors"].values()) < 1e-4
    if "agreement" in results:
        assert results["agreement"]["loss_difference"] < 1e-5
        assert results["agreement"]["gradient_norm_difference"] < 1e-5
        assert 0 < results["agreement"]["clip_fraction"] < 1
    assert results["program"]["rows"][1]["step"] == 3
