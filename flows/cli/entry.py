"""Entry point of the installed command: hears Ctrl-C while Python still imports the command line."""

import os
import signal
import sys


def main() -> None:
    """Run `kernelmill`. Ctrl-C before it listens for itself ends the process with one line and exit code 130."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from flows.cli.main import main as run

    run()


def _end(number: int, _frame: object) -> None:
    os.write(sys.stderr.fileno(), b"stopped\n")
    os._exit(128 + number)
