"""Which device kernels run on, found out without importing torch into the caller's process."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from kernels_eval.errors import InputError

_ASK = (
    "import json, torch\n"
    "found = torch.cuda.is_available()\n"
    "print(json.dumps(torch.cuda.get_device_name(0) if found else None))"
)
_ASK_S = 120
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
"""Where none of them is, torch need not be asked."""


@cache
def gpu_name() -> str | None:
    """Return the name of the first NVIDIA GPU that torch sees, or None."""
    if not any(Path(path).exists() for path in _DEVICE_FILES):
        return None
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=_ASK_S)
    if asked.returncode:
        return None
    name: str | None = json.loads(asked.stdout.strip().splitlines()[-1])
    return name


def resolve_device(wanted: str) -> str:
    """Return `cpu` or `cuda` for `auto`, `cpu` or `cuda`. InputError where a GPU is asked for and there is none."""
    if wanted == "cpu":
        return "cpu"
    if gpu_name() is not None:
        return "cuda"
    if wanted == "cuda":
        raise InputError("judge.device: expected an NVIDIA GPU that torch sees, found none; use `cpu` or `auto`")
    return "cpu"
