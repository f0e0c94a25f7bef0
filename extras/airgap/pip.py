"""pip of this Python in a process of its own: what it is asked, and its failures as one sentence."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from extras.airgap.request import Request
from kernels_eval.errors import InputError

_NO_NETWORK = re.compile(
    r"Retrying \(Retry|NewConnectionError|Temporary failure in name resolution|Could not fetch URL"
)
_NO_WHEEL = re.compile(r"No matching distribution found for (.+?)(?: \(from .*)?$", re.MULTILINE)
_OPTIONS = ("--disable-pip-version-check", "--no-input", "--retries", "2")


class NoWheelError(InputError):
    """No wheel of a requirement suits the target; there may be a source distribution."""

    def __init__(self, requirement: str) -> None:
        super().__init__(f"no wheel of {requirement} suits the target, and its source distribution was not built")
        self.requirement = requirement


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
    missing = _NO_WHEEL.search(output)
    if missing is not None:
        return NoWheelError(missing[1].partition(";")[0].strip())
    errors = [line for line in lines if line.startswith("ERROR:")]
    # The last line on a conflict is an address; which requirements are in conflict stands before it.
    conflict = [line for line in errors if "Cannot install" in line]
    last = (conflict or errors or lines or ["nothing"])[-1].removeprefix("ERROR:").strip()
    causes = _contradictions(lines) if conflict else []
    if causes:
        last = f"the packages contradict each other: {'; '.join(causes)}"
    return InputError(f"pip {command} failed: {last}")


def _contradictions(lines: Sequence[str]) -> list[str]:
    """Return what was asked for, and one requirement of each package that contradicts it."""
    asked = [found[1] + " is asked for" for line in lines if (found := re.match(r"The user requested (.+)", line))]
    required: dict[str, str] = {}
    for line in lines:
        found = re.match(r"(\S+) \S+ depends on ", line)
        if found is not None:
            required.setdefault(found[1], line)  # pip names each version that it tried
    return [*asked, *required.values()]


def target_options(request: Request) -> list[str]:
    """Return the options for wheels of the target's Python and platform."""
    platforms = [part for platform in request.platforms for part in ("--platform", platform)]
    return ["--only-binary=:all:", "--python-version", request.python, "--implementation", "cp", *platforms]


def resolve(request: Request, requirements: Sequence[str], links: Sequence[Path], scratch: Path) -> dict[str, Any]:
    """Return pip's report on what it would install for the target."""
    report = scratch / "report.json"
    found = [part for folder in links for part in ("--find-links", str(folder))]
    target = ["--target", str(scratch / "target"), "--ignore-installed", *target_options(request)]
    call_pip("install", ["--dry-run", "--report", str(report), *target, *found, *requirements])
    return json.loads(report.read_text(encoding="utf-8"))


def download(request: Request, pins: Sequence[str], into: Path, links: Sequence[Path], scratch: Path) -> None:
    """Download wheels of the target into a folder: pinned versions, with their hashes where these are known."""
    lines = scratch / "pins.txt"
    lines.write_text("\n".join(pins) + "\n", encoding="utf-8")
    found = [part for folder in links for part in ("--find-links", str(folder))]
    call_pip(
        "download",
        ["--quiet", "--no-deps", "--dest", str(into), *target_options(request), *found, "--requirement", str(lines)],
    )
