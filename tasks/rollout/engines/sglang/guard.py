"""Process guard of a server: `python guard.py PARENT_PID COMMAND…`.

A server is a family of processes that hold GPU memory. The guard leads their process group, and kills it if the parent
dies, the guard is terminated, or the command ends. A script of the standard library alone: quick, for any interpreter.
"""

import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the command to its end, or to the parent's."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, _kill_group)
    signal.signal(signal.SIGINT, _kill_group)
    _set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != parent:  # it died before the line above
        _kill_group()
    try:
        # If the guard itself is killed, the command's own death signal ends it.
        process = subprocess.Popen(command, preexec_fn=lambda: _set_parent_death_signal(signal.SIGKILL))
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", flush=True)
    else:
        code = process.wait()
        print(f"the server ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}", flush=True)
    _kill_group()


def _set_parent_death_signal(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _kill_group(number: int = 0, frame: FrameType | None = None) -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
