"""Decides on a GPU which mutants of honest kernels are wrong, and judges them on the same machine without it.

    python3 tools/gpu/mutants_on_gpu.py [--mutants 2000] [--seed 0] [--truth-only] …

Takes the options of tools/judge_mutants.py, with other defaults: truth is decided by compiled kernels at the
problems' own sizes, in child processes (an illegal access ends a process's CUDA context, not the run). Writes
`$OUT/mutants.jsonl`, which `tools/judge_mutants.py --truth` reads elsewhere.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

import judge_mutants  # noqa: E402

if __name__ == "__main__":
    out = Path(os.environ.get("OUT", "."))
    defaults = ["--device", "cuda", "--out", str(out / "mutants.jsonl")]
    raise SystemExit(judge_mutants.main([*defaults, *sys.argv[1:]]))
