"""Output of a run: stages with their share, and after Ctrl-C the command that goes on."""

import os
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from flows.cli.console import ConsoleListener
from flows.cli.interruption import same_command, telling_how_to_go_on
from tasks.pipeline.retries import StageStoppedError

SHARES = {"SFT": 0.25, "rollout 0": 0.5}


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def drawn(output: StringIO) -> ConsoleListener:
    return ConsoleListener(Console(file=output, width=200), lambda label: SHARES.get(label, 0.0))


def test_stages_are_named_with_their_share_and_how_far_the_run_is(drawn: ConsoleListener, output: StringIO):
    drawn.finished("SFT data", 3.0, cached=True)
    for label in ("SFT", "check of SFT", "rollout 0"):
        drawn.started(label)
        drawn.finished(label, 2.0, cached=False)
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    assert lines == [
        "● SFT data: cached (took 3.0 s)",
        "  SFT, 25% of the run …",
        "✓ SFT: 2.0 s (25% of the run)",
        "  check of SFT …",
        "✓ check of SFT: 2.0 s",
        "  rollout 0, 50% of the run …",
        "✓ rollout 0: 2.0 s (75% of the run)",
    ]
    assert drawn.done == 0.75


def test_two_stages_at_a_time_have_lines_of_their_own(output: StringIO):
    drawn = ConsoleListener(Console(file=output, width=200), interval_s=0.0)
    for label in ("update 0", "rollout 1"):
        drawn.started(label)
    drawn.progressed("update 0", 1, 2, {"loss": 0.5})
    drawn.progressed("rollout 1", 3, 16, {"turns": 5.0})
    drawn.finished("update 0", 2.0, cached=False)
    drawn.failed("rollout 1", StageStoppedError("rollout 1: stopped, because the run ends"))
    assert [line.rstrip() for line in output.getvalue().splitlines()] == [
        "  update 0 …",
        "  rollout 1 …",
        "    update 0: 1 of 2  loss 0.5",
        "    rollout 1: 3 of 16  turns 5",
        "✓ update 0: 2.0 s  loss 0.5",
        "■ rollout 1: stopped",
    ]


def test_a_repeated_stage_counts_once(drawn: ConsoleListener):
    for _ in range(3):
        drawn.finished("rollout 0", 1.0, cached=False)
    assert drawn.done == 0.5


def test_after_ctrl_c_it_says_what_is_kept_and_how_to_go_on(
    drawn: ConsoleListener, output: StringIO, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MAKELEVEL", raising=False)
    monkeypatch.setattr(sys, "argv", [".venv/bin/kernelmill", "train", "--set", "name=a b"])
    with pytest.raises(KeyboardInterrupt), telling_how_to_go_on(drawn.console, drawn):
        raise KeyboardInterrupt
    assert "no stage is finished. To go on:" in output.getvalue()
    drawn.finished("SFT data", 1.0, cached=True)
    drawn.finished("SFT", 1.0, cached=False)
    with pytest.raises(KeyboardInterrupt), telling_how_to_go_on(drawn.console, drawn):
        raise KeyboardInterrupt
    assert "2 stages are finished and will not be repeated, the last one is SFT. To go on:" in output.getvalue()
    assert output.getvalue().rstrip().endswith("\n  .venv/bin/kernelmill train --set 'name=a b'")


def test_an_error_is_not_an_interruption(drawn: ConsoleListener, output: StringIO):
    with pytest.raises(ZeroDivisionError), telling_how_to_go_on(drawn.console, drawn):
        raise ZeroDivisionError
    assert output.getvalue() == ""


def test_below_make_the_command_is_make(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MAKELEVEL", "1")
    assert same_command().startswith("make train")
    monkeypatch.delenv("MAKELEVEL")
    monkeypatch.setattr(sys, "argv", ["/src/flows/cli/main.py", "sft"])
    assert same_command() == f"{sys.executable} -m flows.cli.main sft"


FIGURES = {
    "mean_reward": 0.4321,
    "correct": 0.5,
    "compiled": 0.9375,
    "tokens_per_s": 12345.6,
    "best_speedup": 2.25,
    "judged": 128.0,
    "waiting_s": 0.02,
}


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("terminal", [False, True])
def test_progress_fits_into_the_line(width: int, terminal: bool) -> None:
    output = StringIO()
    console = Console(file=output, width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    drawn = ConsoleListener(console, lambda _: 0.06, interval_s=0.0)
    labels = ("rollout 12", "held-out rollout of policy 0", "SFT")
    with drawn.drawing():
        for label in labels:
            drawn.started(label)
            for done in (1, 640):
                drawn.progressed(label, done, 1280, FIGURES)
                if terminal:
                    drawn._progress.refresh()
            drawn.finished(label, 12.0, cached=False)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
    lines = [part for line in shown.splitlines() for part in line.split("\r")]
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert sum("mean reward 0.432" in line for line in lines) >= 2 * len(labels)
        assert any(line.startswith("✓ rollout 12: 12.0 s (6% of the run)  mean reward 0.432") for line in lines)


PROGRAM = """
from flows.cli.plain_text import write_what_can_be_shown
write_what_can_be_shown()
from rich.console import Console
Console().print("✓ SFT → 3 × 8 … ≥ 日")
"""


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("ascii", "+ SFT -> 3 x 8 ... >= ?"), ("latin-1", "+ SFT -> 3 × 8 ... >= ?"), ("utf-8", "✓ SFT → 3 × 8 … ≥ 日")],
)
def test_a_terminal_without_a_character_shows_its_likeness(encoding: str, said: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.decode(encoding).strip() == said
