"""Runs an installer with one line of progress on the terminal; its output goes to a file, and is shown if it fails.

    python .ci/install.py LOG COMMAND…

The line counts the packages that pip has found, and says what it is doing. Elsewhere than on a terminal a line is
printed every half minute. Needs nothing but the standard library, since nothing is installed yet.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

SHOWN = 20
"""Last lines of the log that are shown after a failure."""
EVERY_S = 30.0
_FOUND = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")
_DOWNLOADED = re.compile(r"^\s+Downloading (\S+)(?: \(([^)]+)\))?")
_INSTALLING = re.compile(r"^Installing collected packages: (.*)")


class Progress:
    """State of the installation, read from pip's output."""

    def __init__(self) -> None:
        self.packages: set[str] = set()
        self.doing = "starting"

    def read(self, line: str) -> None:
        """Take one line of pip's output into account."""
        if found := _FOUND.match(line):
            self.packages.add(found[1].lower())
            self.doing = f"{len(self.packages)} packages found"
        elif found := _DOWNLOADED.match(line):
            file, size = found[1].rsplit("/", 1)[-1], f", {found[2]}" if found[2] else ""
            self.doing = f"{len(self.packages)} packages found, downloading {file.split('-')[0]}{size}"
        elif found := _INSTALLING.match(line):
            self.doing = f"writing {len(found[1].split(', '))} packages"


def main() -> int:
    """Run the installer and return its exit code."""
    log, command = Path(sys.argv[1]), sys.argv[2:]
    progress, began, ended = Progress(), time.monotonic(), threading.Event()
    drawing = threading.Thread(target=_draw, args=[progress, began, ended])
    drawing.start()
    try:
        with log.open("w", encoding="utf-8") as file:
            code = _run(command, progress, file)
    finally:
        ended.set()
        drawing.join()
    if code == 0:
        print(f"installed in {time.monotonic() - began:.0f} s; what pip said is in {log}")
        return 0
    print("\n".join(log.read_text(encoding="utf-8").splitlines()[-SHOWN:]), file=sys.stderr)
    print(f"\ninstalling failed; the whole output is in {log}; the same command tries again", file=sys.stderr)
    return code


def _run(command: list[str], progress: Progress, file: TextIO) -> int:
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, errors="replace", **both) as pip:
        for line in pip.stdout or ():
            file.write(line)
            file.flush()
            progress.read(line)
    return pip.returncode


def _draw(progress: Progress, began: float, ended: threading.Event) -> None:
    is_terminal = sys.stdout.isatty()
    while not ended.wait(0.5 if is_terminal else EVERY_S):
        line = f"  {progress.doing} ({time.monotonic() - began:.0f} s)"
        print(f"\r{line[:99]:<100}" if is_terminal else line, end="" if is_terminal else "\n", flush=True)
    if is_terminal:
        print(f"\r{'':<100}\r", end="", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on with what pip has downloaded")
