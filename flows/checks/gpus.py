"""The GPUs of this machine, asked of their own tools: torch need not be imported."""

import shutil
import subprocess

_ANSWER_S = 20


def gpus_here() -> list[str]:
    """Name, memory and driver of each GPU, as its own tool says them."""
    for command in (
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
        ["rocm-smi", "--showproductname", "--csv"],
    ):
        if shutil.which(command[0]) is None:
            continue
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
        except subprocess.TimeoutExpired:
            continue
        lines = [line.strip() for line in said.stdout.splitlines() if line.strip()]
        if said.returncode == 0 and lines:
            return lines if command[0] == "nvidia-smi" else lines[1:]
    return []
