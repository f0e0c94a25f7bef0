"""pip of this Python in a process of its own: what it builds and downloads, and its failures as one sentence."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from extras.airgap.request import Request
from kernels_eval.errors import InputError

_NO_NETWORK = re.compile(
    r"Retrying \(Retry|NewConnectionError|Temporary failure in name resolution|Could not fetch URL"
)
_OPTIONS = ("--disable-pip-version-check", "--no-input", "--retries", "2")


def call_pip(command: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command of pip. Raises InputError with the last line that it says."""
    run = [sys.executable, "-m", "pip", command, *_OPTIONS, *arguments]
    done = subprocess.run(
        run, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {}), "NO_COLOR": "1"}
    )
    if done.returncode:
        raise failure_of(command, done.stdout + "\n" + done.stderr)


def failure_of(command: str, output: str) -> InputError:
    """Return what pip failed for, from all that it said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any(line.endswith("No module named pip") for line in lines):
        return InputError("this Python has no pip, which makes the bundle: python -m ensurepip")
    if _NO_NETWORK.search(output):
        return InputError("pip does not reach its package index: the bundle is made on a machine with a network")
    errors = [line for line in lines if line.startswith("ERROR:")]
    return InputError(f"pip {command} failed: {(errors or lines or ['nothing'])[-1].removeprefix('ERROR:').strip()}")


def download(request: Request, pins: Sequence[str], into: Path, scratch: Path) -> None:
    """Download wheels of the target into a folder: versions or addresses, with their hashes where these are known."""
    lines = scratch / "pins.txt"
    lines.write_text("\n".join(pins) + "\n", encoding="utf-8")
    platforms = [part for platform in request.platforms for part in ("--platform", platform)]
    target = ["--only-binary=:all:", "--python-version", request.python, "--implementation", "cp", *platforms]
    call_pip("download", ["--quiet", "--no-deps", "--dest", str(into), *target, "--requirement", str(lines)])
