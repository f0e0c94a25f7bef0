"""Importing the judge costs its user no torch."""

import subprocess
import sys
from pathlib import Path


def test_importing_the_judge_imports_neither_torch_nor_triton() -> None:
    script = "import sys; from kernels_eval import Judge, JudgeConfig; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    root = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert ran.stdout.strip() == "[]"
