"""The installed command's entry point: Ctrl-C while Python still imports."""

import signal
import subprocess
import sys

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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_imports_is_one_line(number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, "stopped\n")


def test_it_imports_nothing_of_its_own_before_it_listens() -> None:
    code = "import sys, flows.cli.entry; print([name for name in sys.modules if name.startswith(('typer', 'torch', 'pydantic', 'flows.cli.main'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
