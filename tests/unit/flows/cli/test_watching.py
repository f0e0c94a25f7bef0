"""`kernelmill watch`: on a run that is finished, that goes on, and on what is no run."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.cli.main import run
from flows.cli.watching import sparkline, stage_of
from flows.settings.configuration import RunConfig, save_configuration
from tasks.tracking.figures import FIGURES_FILE, append_line, new_line
from tasks.tracking.steps import StepRecord, step_lines

COMMAND = [sys.executable, "-m", "flows.cli.main", "watch"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with three iterations and a torn line."""
    save_configuration(RunConfig(iterations=12), tmp_path / "config.yaml")
    for iteration in range(3):
        rollout = {
            "mean_reward": 0.1 * iteration,
            "correct": 0.25 * iteration,
            "statuses": {"correct": 0.5, "compile_error": 0.375, "timeout": 0.125},
            "tokens_per_s": 12345.6,
            "geomean_speedup": None,
        }
        append_line(tmp_path, new_line(iteration, "rollout", f"r{iteration}", rollout))
        append_line(tmp_path, new_line(iteration, "update", f"u{iteration}", {"kl": 0.01, "loss": -0.5}))
    evaluation = {"correct": 0.5, "correct_ci": [0.25, 0.75], "geomean_speedup": 1.25, "geomean_speedup_ci": None}
    append_line(tmp_path, new_line(3, "evaluation", "e", evaluation))
    with (tmp_path / FIGURES_FILE).open("a") as file:
        file.write('{"time": "2026')
    (tmp_path / "log.txt").write_text(
        "2026-01-01 10:00:00,000 INFO    prefect.flow_runs: update 2: done in 4.2 s\n"
        "2026-01-01 10:00:01,000 INFO    prefect.flow_runs: rollout 3: started\n"
        "2026-01-01 10:00:31,000 INFO    prefect.flow_runs: rollout 3: 40 of 64 tokens_per_s 900\n"
        "2026-01-01 10:00:32,000 WARNING some.library: beware: of the dog\n"
    )
    return tmp_path


def test_once_prints_the_last_figures_in_80_columns(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["watch", str(folder), "--once"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    words = [" ".join(line.split()) for line in printed.splitlines()]
    assert "held-out correct 50.0 % [25.0, 75.0] 3 ▁" in words
    assert "correct 50.0 % 2 ▁▅█" in words
    assert "tokens/s generated 12,346 2 ▁▁▁" in words
    assert "KL 0.01 2 ▁▁▁" in words
    assert not any(line.startswith("speed-up") for line in words)
    text = " ".join(words)
    assert "3 of 12 iterations; rollout 3 40 of 64 (10:00:31)" in text
    assert "correct 50 %, compile_error 38 %, timeout 12 %" in text


def test_a_run_without_figures_says_so(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / FIGURES_FILE).unlink()
    (folder / "log.txt").unlink()
    assert run(["watch", str(folder), "--once"]) == 0
    assert "no figures yet" in capsys.readouterr().out


def test_a_training_is_shown_before_the_first_evaluation(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / FIGURES_FILE).unlink()
    rows = [{"loss": 4.0 / (step + 1), "learning_rate": 1e-4, "validation_loss": None} for step in range(40)]
    StepRecord(folder).add(step_lines("sft", "key", rows))
    StepRecord(folder).add(step_lines("update/tester", "key", [{"step": 7, "loss": -0.25, "learning_rate": 1e-5}]))
    assert run(["watch", str(folder), "--once"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    words = [" ".join(line.split()) for line in printed.splitlines()]
    assert any(line.startswith("SFT: loss 0.1 step 39 █") for line in words)
    assert any(line.startswith("SFT: learning rate 0.0001 step 39") for line in words)
    assert "update of the tester: loss -0.25 step 7 ▁" in words
    assert not any("validation" in line or "tester: learning rate" in line for line in words)


@pytest.mark.parametrize("name", ["", "missing"])
def test_what_is_no_run_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["watch", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "expected the folder of a run" in error


def test_a_stage_that_ended_is_named_as_such(folder: Path):
    with (folder / "log.txt").open("a") as file:
        file.write("2026-01-01 10:01:00,000 ERROR   prefect.flow_runs: rollout 3: failed: no memory\n")
    assert stage_of(folder) == "rollout 3 failed (10:01:00)"


def test_new_figures_are_printed_and_ctrl_c_ends_without_a_traceback(folder: Path):
    """Not a terminal: plain text, once more after each change."""
    watching = subprocess.Popen(
        [*COMMAND, str(folder), "--interval", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    _wait_for(watching, "verdicts")
    append_line(folder, new_line(3, "rollout", "r3", {"mean_reward": 0.777}))
    _wait_for(watching, "0.777")
    watching.send_signal(signal.SIGINT)
    output, errors = watching.communicate(timeout=60)
    assert (watching.returncode, errors) == (0, "")
    assert "\x1b" not in output


def _wait_for(watching: subprocess.Popen[str], word: str) -> None:
    assert watching.stdout is not None
    for line in watching.stdout:
        if word in line:
            return
    raise AssertionError(f"ended before {word}")


def test_it_draws_in_place_on_a_terminal(folder: Path):
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "50"}
    watching = subprocess.Popen(
        [*COMMAND, str(folder), "--interval", "0.1"], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    drawn, deadline = "", time.monotonic() + 120
    while drawn.count("verdicts") < 3 and time.monotonic() < deadline:
        drawn += os.read(ours, 65536).decode("utf-8", "replace")
    watching.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(ours, 65536):
            drawn += chunk.decode("utf-8", "replace")
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert watching.wait(timeout=60) == 0
    assert "Traceback" not in drawn
    assert "\x1b[1A" in drawn, "the cursor goes up: the table is drawn in place"
    assert "\x1b[?25h" in drawn.rpartition("verdicts")[2], "the cursor is shown again"


@given(
    values=st.lists(st.none() | st.floats(-1e6, 1e6), max_size=300),
    width=st.integers(1, 40),
)
def test_a_curve_fits_and_reaches_from_bottom_to_top(values: list[float | None], width: int):
    curve = sparkline(values, width)
    assert len(curve) <= width
    shown = curve.replace(" ", "")
    assert set(shown) <= set("▁▂▃▄▅▆▇█")
    assert bool(shown) == any(value is not None for value in values)
    if len(set(shown)) > 1:
        assert {"▁", "█"} <= set(shown)


def test_garbage_is_not_called_the_beginning_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / FIGURES_FILE).write_bytes(b"\x00\xff garbage\n" * 3)
    (folder / "config.yaml").write_bytes(b"\xcb\xff garbage\n")
    assert run(["watch", str(folder), "--once"]) == 0
    said = "".join(capsys.readouterr().out.split())  # a long folder's name breaks anywhere
    assert f"{FIGURES_FILE}:damaged:noneofitslinesholdsfigures" in said
    assert "nofiguresyet" not in said
