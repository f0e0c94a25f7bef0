"""The installer's one line: what it says of pip's output, and what is shown of a failure."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "install.py"


@pytest.fixture
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(log: Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(log), sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_line_follows_what_pip_prints(module: ModuleType):
    progress = module.Progress()
    said = [
        ("Collecting torch==2.13.0", "1 packages found"),
        (
            "  Downloading https://index/torch-2.13.0-cp311.whl (888.1 MB)",
            "1 packages found, downloading torch, 888.1 MB",
        ),
        ("Requirement already satisfied: pip in ./.venv", "2 packages found"),
        ("Collecting numpy>=1.0 (from torch)", "3 packages found"),
        ("something else", "3 packages found"),
        ("Installing collected packages: numpy, torch", "writing 2 packages"),
    ]
    for line, shown in said:
        progress.read(line)
        assert progress.doing == shown


def test_hundreds_of_lines_become_one(tmp_path: Path):
    done = run(tmp_path / "log", "for n in range(300): print('Collecting package', n)")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert str(tmp_path / "log") in done.stdout
    assert len((tmp_path / "log").read_text().splitlines()) == 300


def test_a_failure_shows_the_end_of_the_log_and_keeps_the_exit_code(tmp_path: Path):
    program = "import sys\nfor n in range(300): print('line', n)\nprint('ERROR: no such package', file=sys.stderr)\nsys.exit(7)"
    done = run(tmp_path / "log", program)
    assert done.returncode == 7
    assert "ERROR: no such package" in done.stderr
    assert "line 290" in done.stderr
    assert "line 100" not in done.stderr
    assert str(tmp_path / "log") in done.stderr
