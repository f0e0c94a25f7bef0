"""The command `kernelmill`: its command groups, and the conversion of errors to one line and an exit code.

Exit codes: 0 success; 1 the machine failed (the same command continues the run); 2 invalid input; 3 `generate` found
nothing faster; 129 the terminal is gone; 130 Ctrl-C; 143 SIGTERM.
Imports are light: a command imports its dependencies when it runs.
"""

import contextlib
import errno
import itertools
import os
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console

from flows.cli import (
    agents,
    airgap,
    converting,
    data,
    generating,
    groups,
    importing,
    inspecting,
    judging,
    packaging,
    planning,
    proposing,
    redteam,
    serving,
    stages,
    tester,
    trajectories,
    viewing,
    watching,
)
from flows.cli.plain_text import write_what_can_be_shown
from flows.cli.renamed import Commands
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.expectations import expected, refusal
from kernels_eval.loopback import keep_off_proxies

INTERRUPTED = 130
"""Exit code of typer after Ctrl-C."""
INTERRUPT_S = 2.5
"""Time in which a command may end in order after Ctrl-C."""
_OF_THE_MACHINE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE), ""),
    errno.EMFILE: " (`ulimit -n` raises the limit)",
    errno.ENFILE: "",
    errno.EFBIG: " (`ulimit -f` raises the limit)",
    errno.EAGAIN: " for another process or thread (`ulimit -u` raises the limit)",
    errno.ENOMEM: " (`ulimit -v` raises the limit, if there is one)",
}
"""Errors of the operating system that another attempt may not meet, and what helps."""
_NO_THREAD, _NOT_MAPPED = "can't start new thread", "failed to map segment"
"""Words of Python and of the loader of libraries where a limit of processes or of memory is reached."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command in order."""
_LOOP = "Symlink loop"
"""Words of Python 3.11 and 3.12 on a path whose links lead to themselves; it is no OSError there."""
STOPPED = "stopped; the same command continues from here"
_SAYING, _SAID = threading.Lock(), threading.Event()
_heard = signal.SIGINT
"""The signal that ends this process."""

app = typer.Typer(
    name="kernelmill",
    help="Trains language models to write fast, correct GPU kernels: SFT, multi-turn RL, held-out evaluation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (
    stages,
    proposing,
    importing,
    planning,
    generating,
    tester,
    groups,
    packaging,
    judging,
    redteam,
    inspecting,
    serving,
    trajectories,
    data,
    converting,
    agents,
    watching,
    viewing,
    airgap,
):
    group.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelmill {version('kernelmill')}")
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]  # typer calls it
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    keep_off_proxies()
    write_what_can_be_shown()
    for number in _ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` leaves it
            signal.signal(number, _interrupt)
    _listen()
    sys.exit(run(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Open what was closed of standard input, output and error on the null device.

    The next file that is opened would take its number, and a library's C code would print into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Raise KeyboardInterrupt, for all of `_ENDING` as for Ctrl-C; end the process if it has not ended a little later.

    A library may take the exception for a failed import, or wait for a process that is busy. As after `kill -9`, all
    other processes of a run end with this one, and the same command continues.
    """
    _end_soon(number)
    raise KeyboardInterrupt


def _listen() -> None:
    """End the process after a signal also if the main thread never returns to Python, where `_interrupt` would run.

    Python writes a signal's number into the pipe at once, in whatever call the main thread is.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def listen() -> None:
        while True:
            for number in os.read(reader, 1):
                if number in _ENDING and signal.getsignal(number) is _interrupt:
                    _end_soon(number)

    threading.Thread(target=listen, name="signals", daemon=True).start()


def _end_soon(number: int) -> None:
    global _heard
    _heard = signal.Signals(number)
    timer = threading.Timer(INTERRUPT_S, _end_now)
    timer.daemon = True
    timer.start()


def _end_now() -> None:
    _say_stopped()
    os._exit(128 + _heard)


def _say_stopped() -> None:
    """Say once that the run has stopped: the process may end itself, or be ended after it has said so.

    The second to come waits for the first, whose words its own end would cut off; not for ever, as a terminal may hang.
    """
    if not _SAYING.acquire(timeout=INTERRUPT_S):
        return
    try:
        if not _SAID.is_set():
            _SAID.set()
            with contextlib.suppress(OSError):  # its terminal is gone
                os.write(2, f"{STOPPED}\n".encode())
    finally:
        _SAYING.release()


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    try:
        result = app(args=arguments, prog_name="kernelmill", standalone_mode=False)
    except KeyboardInterrupt:  # before typer listens, or after
        result = INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else (0 if stop.code is None else 1)
    except typer.TyperException as error:
        if error.format_message():  # empty if the help was printed instead
            errors.print(f"[red]error:[/red] {_one_line(_usage_error(error, arguments))}")
        return error.exit_code
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if extra is None:
            raise
        needed = f"this command needs {error.name}: pip install 'kernelmill[{extra}]'"
        errors.print(f"[red]error:[/red] {_one_line(needed)}")
        return 2
    except InputError as error:
        errors.print(f"[red]error:[/red] {_one_line(error)}", markup=True)
        return 2
    except ValidationError as error:
        errors.print(f"[red]error:[/red] {_one_line(refusal(error))}")
        return 2
    except OSError as error:
        return _end_with_file_error(error, errors)
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and _NOT_MAPPED not in str(error):
            raise
        return _end_with_file_error(OSError(errno.ENOMEM, ""), errors)
    except RuntimeError as error:
        if str(error).startswith(_NO_THREAD):
            return _end_with_file_error(OSError(errno.EAGAIN, ""), errors)
        if not str(error).startswith(_LOOP):
            raise
        errors.print(f"[red]error:[/red] {_one_line(error)}")
        return 2
    except InfrastructureError as error:
        errors.print(f"[red]failed:[/red] {_one_line(error)} The same command continues from here.")
        return 1
    if result == INTERRUPTED:
        _say_stopped()
        return 128 + _heard
    return result if isinstance(result, int) else 0


def _extra_of(module: str) -> str | None:
    """Return the optional extra of this package that installs a missing module; None if none does."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    package = re.sub(r"[-_.]+", "-", module.partition(".")[0]).lower()
    try:
        declared = requires("kernelmill") or []
    except PackageNotFoundError:
        return None
    found = re.compile(rf"""{re.escape(package)}\b.*;.*extra == ['"](\w+)['"]""")
    return next((match[1] for line in declared if (match := found.match(line))), None)


def _usage_error(error: typer.TyperException, arguments: list[str]) -> str:
    """Return what is wrong with a command's words, and which command describes them."""
    context = getattr(error, "ctx", None)
    hint = f" (`{context.command_path} --help` lists what there is)" if context is not None else ""
    options: list[str] = getattr(getattr(error, "param", None), "opts", [])
    words = [part for argument in arguments for part in argument.split("=", 1)]
    refused = error.__cause__.errors(include_url=False)[0] if isinstance(error.__cause__, ValidationError) else None
    for option, found in itertools.pairwise(words):
        if option in options and refused is not None and refused["type"] != "value_error":
            return f"{option}: found {found}, expected {expected(refused)}{hint}"
        if option in options and error.message:
            return f"{option}: {error.message.removeprefix('Value error, ').rstrip('.')}{hint}"
    return error.format_message().rstrip(".") + hint


def _end_with_file_error(error: OSError, errors: Console) -> int:
    """Print an error of the file system or of a limit, and return the exit code. Raises any other one again."""
    named = error.filename if error.filename2 is None else error.filename2  # of a new name, what it would replace
    where = f"{named}: " if named is not None else ""
    remedy = _OF_THE_MACHINE.get(error.errno or 0)
    if remedy is not None:
        failed = _one_line(where + os.strerror(error.errno or 0) + remedy)
        errors.print(f"[red]failed:[/red] {failed}. The same command continues.")
        return 1
    if not where:
        try:
            Path.cwd()
        except FileNotFoundError:
            errors.print("[red]error:[/red] the current folder was removed; change into one that exists")
            return 2
        raise error
    errors.print(f"[red]error:[/red] {_one_line(where + str(error.strerror))}")
    return 2


def _one_line(error: object) -> str:
    from rich.markup import escape

    from kernels_eval.plain_text import plain_text

    return escape(" ".join(plain_text(str(error)).split()))


if __name__ == "__main__":
    main()
