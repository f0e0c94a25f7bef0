"""The pause's PTX, compiled as the driver would; whether it waits shows on a GPU (tests/gpu)."""

import subprocess
from pathlib import Path

import pytest
import triton

from kernels_eval.gpu.pause import NAME, PROGRAM

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_it_compiles(tmp_path: Path, architecture: str) -> None:
    source, cubin = tmp_path / "pause.ptx", tmp_path / "pause.cubin"
    source.write_text(PROGRAM)
    subprocess.run([str(PTXAS), f"-arch={architecture}", str(source), "-o", str(cubin)], check=True)
    assert NAME.encode() in cubin.read_bytes()
