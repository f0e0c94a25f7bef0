"""The red team: hacks are caught, honest kernels pass. One case of each class here, all of them under `make slow`."""

import json
from collections import Counter
from pathlib import Path

import pytest

from flows.cli.main import run
from kernels_eval import Judge, JudgeConfig
from kernels_eval.redteam.case import Case
from kernels_eval.redteam.check import run_cases
from kernels_eval.redteam.suite import FOLDER, load_cases, read_classes

_SLOW_KINDS = {"clock", "exhaustion"}
"""They run into the time limit."""
FAST = ["--set", "judge.compile=never", "--set", "judge.workers=1"]


def test_one_of_each_class_and_a_part_of_the_honest(judge: Judge) -> None:
    chosen: list[Case] = []
    for kind in {found.name for found in read_classes(FOLDER).values()} - _SLOW_KINDS:
        chosen.append([case for case in load_cases() if case.kind == kind][-1])
    honest = [case for case in load_cases() if case.is_honest]
    score = run_cases(judge, [*chosen, *honest[::6]])
    assert not score.misses, score.misses
    assert "seccomp" in score.sandbox


@pytest.mark.slow
def test_the_whole_suite() -> None:
    with Judge(JudgeConfig(workers=2, compile="correct")) as judge:
        score = run_cases(judge, load_cases())
    assert not score.misses, score.misses
    assert (score.caught_share, score.wrongly_refused_share) == (1.0, 0.0)


def test_the_command_prints_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    hacks, honest = _counts("nan")
    assert run(["judge", "redteam", "--only", "nan", "--set", "judge.workers=1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["hacks"] == said["hacks_caught"] == hacks.total() > 0
    assert {rate["group"]: (rate["cases"], rate["misses"]) for rate in said["hack_rates"]} == {
        group: (number, 0) for group, number in hacks.items()
    }
    assert {rate["group"]: rate["cases"] for rate in said["honest_rates"]} == honest
    assert run(["judge", "redteam", "--only", "no case is called so"]) == 2


def test_the_command_takes_cases_of_another_folder_and_prints_rates_by_class_above_the_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["judge", "redteam", "--cases", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "expected red-team cases in hacks/ and honest/, found none: they are in tests/redteam/ of a checkout" in said
    (tmp_path / "honest" / "rows").mkdir(parents=True)
    (tmp_path / "honest" / "rows" / "softmax.py").write_text((FOLDER / "honest/rows/softmax.py").read_text())
    assert run(["judge", "redteam", "--cases", str(tmp_path), "--set", "judge.workers=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["honest/rows", "refused", "0", "of", "1"]
    assert lines[1] == "hacks caught          0 of 0 (100.0%)"
    assert lines[2] == "honest wrongly refused 0 of 1 (0.0%)"


def _counts(only: str) -> tuple[Counter[str], Counter[str]]:
    """Return the numbers of hacks and honest kernels by group among the cases that `--only` chooses."""
    chosen = [case for case in load_cases() if only in case.group or only in case.name]
    hacks = Counter(case.group for case in chosen if not case.is_honest)
    return hacks, Counter(case.group for case in chosen if case.is_honest)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("hacks/decoy/never_launched.py", "rejected: library_compute: "),
        ("honest/blocks/mixed_basic_block.py", "correct, speed-up"),  # by the policy that its docstring states
    ],
)
def test_one_file_is_scored_alone(file: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["judge", "score", str(FOLDER / file), *FAST]) == 0
    assert says in capsys.readouterr().out


def test_a_setting_on_the_command_line_is_stronger_than_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    path = FOLDER / "honest/blocks/mixed_basic_block.py"
    assert run(["judge", "score", str(path), *FAST, "--set", "judge.policy=strict"]) == 0
    assert capsys.readouterr().out.startswith("rejected")


def test_a_file_without_a_candidate_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.py"
    path.write_text((FOLDER / "hacks/decoy/never_launched.py").read_text().partition("# ---")[0])
    assert run(["judge", "score", str(path), *FAST]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "`# --- candidate ---`" in error
    assert "problem.py without such a line" in error
