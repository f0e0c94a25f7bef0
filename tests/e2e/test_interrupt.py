"""Ctrl-C in each stage of a real run ends it at once and without a traceback; no kill leaves a folder behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from kernels_eval.pool.scratch import PREFIX

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1700)]

CONFIG = Path("deployments/configs/test.yaml").resolve()
SMALL = [
    "problems.train=16", "problems.heldout=4", "sft.steps=200", "sft.data.compositions=16", "sft.save_interval=50",
    "sft.warmup_steps=5", "rollout.problems_per_iteration=4", "update.optimizer_steps=40", "control=false",
]  # fmt: skip
ENDS_WITHIN_S = 3.0
LOADED_MACHINE_S = 6.0
"""Time that a machine busy with other work may need on top, e.g. to schedule the thread that ends the process."""


@pytest.fixture
def temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="km-"))  # a short path: sockets of Ray lie in it
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def command(tmp_path: Path, temporary: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the run, in a process group of its own as a shell does; kill what is left of it at the end."""
    arguments = [sys.executable, "-u", "-m", "flows.cli.main", "train", str(CONFIG)]
    arguments += [part for setting in (*SMALL, f"runs_dir={tmp_path / 'runs'}") for part in ("--set", setting)]
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    with log.open("wb") as out:
        driver = subprocess.Popen(
            arguments, stdout=out, stderr=out, env=environment | {"TMPDIR": str(temporary)}, start_new_session=True
        )
    try:
        yield driver
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()


def wait_until(condition: Callable[[], bool], log: Path, limit_s: float = 400) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def said_in_runs(tmp_path: Path) -> str:
    return "".join(each.read_text() for each in (tmp_path / "runs").glob("test-*/log.txt"))


def wait_for_stage(label: str, tmp_path: Path, driver: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until this driver has begun to compute a stage."""
    before = len(said_in_runs(tmp_path))

    def begun() -> bool:
        assert driver.poll() is None, log.read_text()
        return f"{label}: started" in said_in_runs(tmp_path)[before:]

    wait_until(begun, log)


def processes_in(temporary: Path) -> list[psutil.Process]:
    """Return the processes that were started with this folder for temporary files."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(temporary) in process.environ().get("TMPDIR", ""):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_ctrl_c_ends_each_stage_at_once_and_nothing_stays(tmp_path: Path, temporary: Path):
    for number, label in enumerate(("problem set", "SFT data", "SFT", "held-out rollout of policy 0", "update 0")):
        log = tmp_path / f"{number}.log"
        with command(tmp_path, temporary, log) as driver:
            wait_for_stage(label, tmp_path, driver, log)
            time.sleep(2.0 * (number > 0))  # into the stage: its processes are there
            driver.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert driver.wait(timeout=120) == 130, log.read_text()
            assert time.monotonic() - began < ENDS_WITHIN_S + LOADED_MACHINE_S, label
        said = log.read_text()
        assert "Traceback" not in said, label
        assert said.rstrip().splitlines()[-1] == "stopped; the same command continues from here", label
        assert said.count("stopped; ") == 1, label
        wait_until(lambda: not processes_in(temporary), log)
        wait_until(lambda: not list(temporary.glob(f"{PREFIX}*")), log, 30)


def test_sigterm_ends_a_stage_in_a_line_as_ctrl_c_does(tmp_path: Path, temporary: Path):
    """As systemd, Kubernetes and batch systems end a process: also once Ray has set a handler of its own."""
    log = tmp_path / "run.log"
    with command(tmp_path, temporary, log) as driver:
        wait_for_stage("SFT", tmp_path, driver, log)
        time.sleep(3.0)
        driver.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert driver.wait(timeout=120) == 143, log.read_text()
        assert time.monotonic() - began < ENDS_WITHIN_S + LOADED_MACHINE_S
    said = log.read_text()
    assert "Traceback" not in said
    assert "PC: @" not in said, "Ray's C++ has printed its stack"
    assert said.rstrip().splitlines()[-1] == "stopped; the same command continues from here"
    wait_until(lambda: not processes_in(temporary), log)


def test_kill_leaves_no_folder(tmp_path: Path, temporary: Path):
    """The driver alone, then every process at once: as the machine's memory killer, and as the end of a container."""
    for number, everything in enumerate((False, True)):
        log = tmp_path / f"{number}.log"
        with command(tmp_path, temporary, log) as driver:
            wait_for_stage("SFT data", tmp_path, driver, log)
            wait_until(lambda: bool(list(temporary.glob(f"{PREFIX}*"))), log)
            for process in processes_in(temporary) if everything else [psutil.Process(driver.pid)]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            driver.wait()
        wait_until(lambda: not processes_in(temporary), log)
        wait_until(lambda: not list(temporary.glob(f"{PREFIX}*")), log, 60)


def test_the_next_judge_removes_what_is_left(temporary: Path):
    """After the end of a machine nobody was left who could remove it."""
    left = temporary / f"{PREFIX}left"
    left.mkdir()
    (left / ".lock").touch()
    again = subprocess.run(
        [sys.executable, "-c", "from kernels_eval.pool.scratch import Scratch; Scratch().close()"],
        env=os.environ | {"TMPDIR": str(temporary)},
        timeout=120,
        check=False,
    )
    assert again.returncode == 0
    assert not list(temporary.glob(f"{PREFIX}*"))
