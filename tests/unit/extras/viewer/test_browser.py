"""The viewer in a real browser: hostile kernels run nothing there; the command serves until it is told to stop."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from extras.viewer.export import write_page

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = [pytest.mark.long, pytest.mark.skipif(BROWSER is None, reason="needs Chromium")]


def document(address: str, profile: Path) -> str:
    """Return the page as the browser has it after its scripts."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={profile}"]
    done = subprocess.run([str(BROWSER), *options, address], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_in_the_exported_page_only_its_own_script_runs(runs_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_page(runs_dir, file, answers=10)
    text = document(file.as_uri(), tmp_path / "profile")
    assert "<title>2 runs · kernelmill</title>" in text
    assert "<img" not in text
    assert re.search(r'<div class="filters" data-filters="">', text), "the script shows the filters"


def test_served_pages_run_nothing_and_the_command_ends_with_its_signal(runs_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flows.cli.main", "view", str(runs_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", server.stdout.readline())
        assert address
        page = "answer?run=first-11111111&batch=policy-001&id=relu-000"
        text = document(f"{address[0]}{page}", tmp_path / "profile")
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0
    assert "<title>relu · first-11111111 · kernelmill</title>" in text
    assert "owned" in text, "as text"
    assert "<img" not in text
    assert "<script" not in text
