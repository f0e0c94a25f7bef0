"""The pause's PTX, compiled as the driver does it; that it waits is tested on a GPU (tests/gpu)."""

import subprocess
from pathlib import Path

import pytest
import triton

from kernels_eval.gpu.stopwatch import PAUSE_KERNEL, PAUSE_PROGRAM

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_it_compiles(tmp_path: Path, architecture: str) -> None:
    source, cubin = tmp_path / "pause.ptx", tmp_path / "pause.cubin"
    source.write_text(PAUSE_PROGRAM)
    subprocess.run([str(PTXAS), f"-arch={architecture}", str(source), "-o", str(cubin)], check=True)
    assert PAUSE_KERNEL.encode() in cubin.read_bytes()
