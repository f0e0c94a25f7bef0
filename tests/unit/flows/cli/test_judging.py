"""`judge score` and `serve judge` refuse bad input with one line and exit code 2, before any process is started."""

import json
import socket
from pathlib import Path

import pytest

from flows.cli.main import run

PROBLEM = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    batch = tmp_path / "in.jsonl"
    batch.write_text(json.dumps({"problem_source": PROBLEM, "kernel_source": "x"}) + "\n")
    row = {"problem_source": PROBLEM, "kernel_source": "x", "bakend": "cuda"}
    (tmp_path / "misspelt.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "bad.py").write_text("def f(:")
    (tmp_path / "short").write_text("short")
    return {path.name: str(path) for path in tmp_path.iterdir()} | {"out": str(tmp_path / "out.jsonl")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["judge", "score", "bad.py", "problem.py"], "bad.py: not Python"),
        (["judge", "score", "problem.py"], "expected PROBLEM.py and KERNEL.py"),
        (["judge", "score", "problem.py", "problem.py", "--backend", "No such"], "judge.backend"),
        (["judge", "score", "problem.py", "problem.py", "--backend", "nonsense"], "nonsense"),
        (["judge", "score", "problem.py", "problem.py", "--set", "judge.trials=0"], "judge.trials"),
        (["judge", "score", "problem.py", "--batch", "in.jsonl", "--out", "out"], "--batch goes without"),
        (["judge", "score", "--batch", "in.jsonl", "--json", "--out", "out"], "--batch goes without"),
        (["judge", "score", "--batch", "in.jsonl", "--out", "/nowhere/out.jsonl"], "no such folder"),
        (["judge", "score", "problem.py", "problem.py", "--out", "out"], "it belongs to --batch"),
        (
            ["judge", "score", "--batch", "misspelt.jsonl", "--out", "out"],
            "bakend: no such field; did you mean backend?",
        ),
        (
            ["judge", "score", "problem.py", "problem.py", "--set", "judge.timeout_s=1e17"],
            "judge.timeout_s: found '1e17', expected at most 86400",
        ),
        (["serve", "judge", "--host", "0.0.0.0"], "KERNELMILL_JUDGE_TOKEN"),
        (["serve", "judge", "--token-file", "/nowhere"], "cannot be read"),
        (["serve", "judge", "--token-file", "short"], "at least 8"),
        (["serve", "judge", "--set", "judge.worker=2"], "did you mean judge.workers"),
    ],
)
def test_refused(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:  # fmt: skip
    monkeypatch.delenv("KERNELMILL_JUDGE_TOKEN", raising=False)
    assert words in refused(capsys, *(files.get(argument, argument) for argument in arguments))


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot be listened on" in refused(capsys, "serve", "judge", "--port", str(taken.getsockname()[1]))
