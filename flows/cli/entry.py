"""Entry point of the installed command: hears Ctrl-C while Python still imports the command line."""

import os
import signal
from contextlib import suppress


def main() -> None:
    """Run `kernelmill`. Ctrl-C before it listens for itself ends the process with one line and exit code 130."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` leaves it
            signal.signal(number, _end)
    from flows.cli.main import main as run

    run()


def _end(number: int, _frame: object) -> None:
    with suppress(OSError):  # its terminal is gone
        os.write(2, b"stopped\n")
    os._exit(128 + number)
