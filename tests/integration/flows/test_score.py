"""`kernelmill judge score`, end to end."""

import json
import sys
from pathlib import Path

import pytest

from flows.cli.main import run

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels_eval"))
from kernel_sources import ROW_KERNEL, ROW_PROBLEM

from kernels_eval import Verdict

pytestmark = pytest.mark.long

FAST = ["--set", "judge.compile=never", "--set", "judge.workers=1"]


@pytest.fixture
def problem(tmp_path: Path) -> str:
    path = tmp_path / "problem.py"
    path.write_text(ROW_PROBLEM)
    return str(path)


def kernel(tmp_path: Path, source: str) -> str:
    path = tmp_path / "kernel.py"
    path.write_text(source)
    return str(path)


def test_a_line_and_exit_code_0(tmp_path: Path, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["judge", "score", problem, kernel(tmp_path, ROW_KERNEL), *FAST]) == 0
    assert capsys.readouterr().out.startswith("correct, speed-up 2.")


def test_one_problem_of_a_table_and_exit_code_0_whatever_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "problems.jsonl"
    rows = [
        {"problem_id": "other", "source": ROW_PROBLEM.replace("2.0", "3.0")},
        {"problem_id": "row", "source": ROW_PROBLEM},
    ]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    right_for_the_other = kernel(tmp_path, ROW_KERNEL.replace("x * 2.0", "x * 3.0"))
    assert run(["judge", "score", f"{table}#row", right_for_the_other, *FAST]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("incorrect (wrong_values): output[0, 0] is ")
    assert shown.endswith("its cause and remedy: kernelmill judge explain wrong_values\n")
    assert run(["judge", "score", f"{table}#rows", right_for_the_other, *FAST]) == 2
    assert "problems.jsonl#ID with the id of a problem, such as other, row; found rows" in capsys.readouterr().err


def test_as_json_and_a_problem_that_raises_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "raising.py"
    path.write_text(ROW_PROBLEM.replace("x = torch.relu(x)", "raise RuntimeError('mine')"))
    assert run(["judge", "score", str(path), kernel(tmp_path, ROW_KERNEL), "--json", "--backend", "triton", *FAST]) == 2
    told = capsys.readouterr()
    assert "raising.py: the reference raised RuntimeError: mine" in told.err
    assert Verdict.model_validate_json(told.out).error_category == "reference_failed"


def test_a_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    sources = [ROW_KERNEL, "def f(:", ROW_KERNEL.replace("x * 2.0", "x * 2.1")]
    rows = [
        {"problem_source": ROW_PROBLEM, "kernel_source": source, "id": index} for index, source in enumerate(sources)
    ]
    batch.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["judge", "score", "--batch", str(batch), "--out", str(out), *FAST]) == 0
    assert "3 verdicts, 1 correct" in capsys.readouterr().out
    statuses = [json.loads(line)["status"] for line in out.read_text().splitlines()]
    assert statuses == ["correct", "compile_error", "incorrect"]


def test_a_batch_with_a_problem_that_raises_is_written_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    raising = ROW_PROBLEM.replace("x = torch.relu(x)", "raise RuntimeError('mine')")
    rows = [{"problem_source": source, "kernel_source": ROW_KERNEL} for source in (ROW_PROBLEM, raising)]
    batch.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["judge", "score", "--batch", str(batch), "--out", str(out), *FAST]) == 2
    told = capsys.readouterr()
    assert "2 verdicts, 1 correct, 1 not judged" in told.out
    assert "in.jsonl:2: the reference raised RuntimeError: mine" in told.err
    assert len(out.read_text().splitlines()) == 2


def test_what_a_problem_prints_reaches_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loud.py"
    loud = "import sys\n    print('from the problem', flush=True)\n    print('from the problem', file=sys.stderr, flush=True)"
    path.write_text(ROW_PROBLEM.replace("def get_inputs():\n", f"def get_inputs():\n    {loud}\n"))
    assert "from the problem" in path.read_text()
    assert run(["judge", "score", str(path), kernel(tmp_path, ROW_KERNEL), "--json", *FAST]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["status"] == "correct"
    assert "from the problem" not in told.err
