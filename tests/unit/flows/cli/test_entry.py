"""The installed command's entry point: Ctrl-C while Python still imports."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import builtins, time
import flows.cli.entry as entry
real = builtins.__import__
def slow(name, *arguments, **named):
    if name == "flows.cli.main":
        print("importing", flush=True)
        time.sleep(60)
    return real(name, *arguments, **named)
builtins.__import__ = slow
entry.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_it_imports_is_one_line(number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests themselves may run under `nohup`
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, "stopped\n")


@pytest.mark.parametrize("held", [False, True], ids=["closed", "nohup"])
def test_a_terminal_that_is_gone_ends_a_command_in_order_but_for_nohup(held: bool) -> None:
    code = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if held else 'SIG_DFL'})\n"
        "import flows.cli.main as main\n"
        "def run(_):\n"
        "    print('running', flush=True)\n"
        "    os.close(2)\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    time.sleep(0.2)\n"
        "    return 7\n"
        "main.run = run\n"
        "try:\n"
        "    main.main()\n"
        "except KeyboardInterrupt:\n"
        "    os._exit(128 + main._heard)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (7 if held else 129, "running\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_no_file_takes_the_place_of_a_closed_stream(closed: tuple[int, ...], tmp_path: Path) -> None:
    """Else what a library's C code prints would go into it: a database, a checkpoint."""
    code = (
        "import os\n"
        "import flows.cli.main as main\n"
        "def run(_):\n"
        f"    with open({str(tmp_path / 'data')!r}, 'wb'):\n"
        f"        os.write({closed[-1]}, b'printed')\n"
        "    return 7\n"
        "main.run = run\n"
        "main.main()\n"
    )
    command = "exec " + " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    done = subprocess.run(["sh", "-c", f'{command}; exec "$0" -c "$1"', sys.executable, code], timeout=120, check=False)
    assert (done.returncode, (tmp_path / "data").read_bytes()) == (7, b"")


def test_it_imports_nothing_of_its_own_before_it_listens() -> None:
    code = "import sys, flows.cli.entry; print([name for name in sys.modules if name.startswith(('typer', 'torch', 'pydantic', 'flows.cli.main'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
