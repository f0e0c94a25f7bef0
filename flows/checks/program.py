"""Runs a program for a check, and says how it ended."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAM_S = 120
_ROOT = str(Path(__file__).parents[2])


def run_program(command: Sequence[str], environment: dict[str, str] | None = None) -> tuple[bool, str]:
    """Return whether a program ended well, and what it said; its last line where it did not."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    # A checkout that is not installed is found all the same.
    variables["PYTHONPATH"] = os.pathsep.join(path for path in (_ROOT, variables.get("PYTHONPATH")) if path)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
            env=variables,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if done.returncode == 0:
        return True, done.stdout.strip()
    lines = (done.stderr or done.stdout).strip().splitlines()
    return False, lines[-1] if lines else f"exit code {done.returncode}"
