"""The first commands of README and quick start, pasted into one shell of a copy of the checkout, as a reader would."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from documented import ROOT, SMALL, copy_checkout, pasted_blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

WAIT_S = 900.0
"""Only a hang takes longer."""
MARK = "KERNELMILL_README_TEST"
README = ROOT / "README.md"
QUICK_START = pasted_blocks(ROOT / "docs" / "quick-start.md")
(STEPS,) = [block for block in QUICK_START if "kernelmill --help" in block]
(SCHEDULED,) = [block for block in QUICK_START if "prefect server start" in block]
FAILED = "A COMMAND FAILED"


@dataclass
class Shell:
    """A shell in a copy of the checkout, without anything that this process's environment says of Prefect."""

    folder: Path
    port: int
    mark: str

    def paste(self, block: str) -> str:
        """Run a block as one paste: what a command reads from its standard input are the lines after it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        environment |= {
            MARK: self.mark, "HOME": str(self.folder / "home"), "PYTHONPATH": str(self.folder), "COLUMNS": "250",
            "NO_COLOR": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_API_PORT": str(self.port),
        }  # fmt: skip
        told = f"set -E\ntrap 'echo \"{FAILED}: $BASH_COMMAND\"' ERR\n"
        output = self.folder / "output.txt"
        with output.open("w") as out:
            done = subprocess.run(
                ["bash", "-s"], input=told + block.replace(":4200", f":{self.port}"), cwd=self.folder, env=environment,
                stdout=out, stderr=out, text=True, timeout=WAIT_S, check=False,
            )  # fmt: skip
        assert done.returncode == 0, output.read_text()
        return output.read_text()

    def end(self) -> None:
        """Kill what the pasted commands left in the background."""
        for wanted in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes():
                try:
                    os.kill(process, wanted)
                except ProcessLookupError:
                    continue
            time.sleep(2)

    def _processes(self) -> list[int]:
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


def shell_in(folder: Path, settings: dict[str, Any]) -> Iterator[Shell]:
    if not (Path(sys.prefix) / "bin" / "activate").exists():
        pytest.skip("the interpreter is in no virtual environment")
    copy_checkout(folder, settings)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "home").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    shell = Shell(folder, port, uuid.uuid4().hex)
    try:
        yield shell
    finally:
        shell.end()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Shell]:
    """A checkout whose `local.yaml` trains for a minute or two."""
    yield from shell_in(tmp_path / "kernelmill", SMALL)


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Shell]:
    """A checkout whose `local.yaml` is refused when a run starts, by its flow: it names problems that are not there."""
    yield from shell_in(tmp_path / "kernelmill", {"problems": {"source": "jsonl", "path": "/nowhere.jsonl"}})


@pytest.mark.long
def test_the_first_command_says_what_the_readme_shows():
    """Without a GPU, that is; on one the speed is measured."""
    text = README.read_text(encoding="utf-8")
    command = re.search(r"^    \.venv/bin/kernelmill (judge score tests/\S+)", text, re.MULTILINE)
    shown = re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert command is not None
    assert shown is not None
    words = [sys.executable, "-m", "flows.cli.main", *command[1].split()]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == shown[1].strip()


@pytest.mark.slow
def test_the_steps_work_as_a_paste(small: Shell):
    said = small.paste("source .venv/bin/activate\nkernelmill train\n" + STEPS)
    assert FAILED not in said, said
    assert "Traceback" not in said, said


@pytest.mark.slow
def test_the_page_about_python_runs_as_a_program(small: Shell):
    page = (ROOT / "docs/how-to/python.md").read_text(encoding="utf-8")
    (small.folder / "program.py").write_text(
        "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    )
    said = small.paste("source .venv/bin/activate\npython program.py")
    assert "Status.CORRECT" in said.splitlines()[-1] or "correct" in said.splitlines()[-1], said


@pytest.mark.long
def test_scheduled_operation_works_as_a_paste(refusing: Shell):
    drawn = "$(openssl rand -hex 24)"
    assert drawn in SCHEDULED
    said = refusing.paste(SCHEDULED.replace(drawn, "known-here"))
    account = ("operator", "known-here")
    refused = httpx.post(f"http://127.0.0.1:{refusing.port}/api/flow_runs/filter", json={}, timeout=60)
    assert refused.status_code == 401
    assert FAILED not in said, said
    assert "Traceback" not in said, said
    api = f"http://127.0.0.1:{refusing.port}/api"
    deadline = time.monotonic() + WAIT_S
    while True:  # the worker starts both runs, one after the other, and their flow refuses them
        runs = httpx.post(f"{api}/flow_runs/filter", json={}, auth=account, timeout=60).json()
        created = [run for run in runs if not run["auto_scheduled"]]
        if len(created) == 2 and all(run["state"]["type"] == "FAILED" for run in created):
            break
        assert time.monotonic() < deadline, created
        time.sleep(1)
    assert all("/nowhere.jsonl" in run["state"]["message"] for run in created)
    assert sorted(run["parameters"]["overrides"] for run in created) == [[], ["seed=1"]]
    automations = httpx.post(f"{api}/automations/filter", json={}, auth=account, timeout=60).json()
    assert [automation["name"] for automation in automations] == ["kernelmill runs that vanish"]
