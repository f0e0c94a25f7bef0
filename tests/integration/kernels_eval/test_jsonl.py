"""Files of kernels: order, resumption, and errors that name the line."""

import json
from pathlib import Path
from typing import Any

import pytest
from kernel_sources import ROW_KERNEL, ROW_PROBLEM

from kernels_eval import JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InputError
from kernels_eval.jsonl import judge_file
from kernels_eval.pool.verdict_cache import VerdictCache, verdict_key

CONFIG = JudgeConfig(workers=2, compile="never", timeout_s=5.0, device="cpu")
GOOD = {"problem_source": ROW_PROBLEM, "kernel_source": ROW_KERNEL}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path) -> list[Verdict]:
    return [Verdict.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_one_verdict_a_line_in_order(tmp_path: Path) -> None:
    """Also of sources that begin with a byte order mark, which is no part of them."""
    rows = [
        GOOD | {"kernel_source": ROW_KERNEL.replace("2.0", f"{2 + index % 2}.0") + f"# {index}", "backend": "triton"}
        for index in range(6)
    ]
    rows[3]["kernel_source"] = "x = '\u2028\x0b\x85'\n"  # what other readers take for the end of a line
    rows.append({"problem_source": "\ufeff" + ROW_PROBLEM, "kernel_source": "\ufeff" + ROW_KERNEL})
    text = "\ufeff" + "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows) + "\n  \n"
    batch, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    batch.write_text(text, encoding="utf-8", newline="")
    seen: list[tuple[int, int]] = []
    verdicts = judge_file(batch, out, CONFIG, lambda *told: seen.append(told))
    expected = [Status.CORRECT if index % 2 == 0 else Status.INCORRECT for index in range(6)]
    expected[3] = Status.COMPILE_ERROR
    expected.append(Status.CORRECT)
    assert [verdict.status for verdict in verdicts] == expected
    assert read(out) == verdicts
    assert len(seen) == 7
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in.jsonl", "out.jsonl"]


@pytest.mark.long
def test_what_was_judged_before_a_crash_is_not_judged_again(tmp_path: Path) -> None:
    """A problem that raises is a line like another, and since trying again may help, what was judged is kept then."""
    raising = ROW_PROBLEM.replace("x = torch.relu(x)", "raise RuntimeError('mine')")
    batch, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    kept = tmp_path / "out.jsonl.verdicts"
    before = Verdict(status=Status.CORRECT, correct=True, seed_commitment="of the call that crashed")
    VerdictCache(kept).put(verdict_key(Problem(problem_id="", source=ROW_PROBLEM), ROW_KERNEL, CONFIG), before)
    write(batch, [GOOD, GOOD | {"kernel_source": "def f(:"}, GOOD | {"problem_source": raising}])
    again, broken, raised = judge_file(batch, out, CONFIG)
    assert again == before
    assert broken.status is Status.COMPILE_ERROR
    assert (raised.status, raised.error_category) == (Status.INFRASTRUCTURE_ERROR, "reference_failed")
    assert read(out) == [again, broken, raised]
    assert kept.is_dir()
    write(batch, [GOOD, GOOD | {"kernel_source": "def f(:"}])
    assert judge_file(batch, out, CONFIG) == [again, broken], "found in the folder: no process is started"
    assert not kept.exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "expected a JSON object"),
        ("", "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ("[1]", "found list"),
        ('{"problem_source": "x"}', "missing: kernel_source"),
        ('{"problem_source": 1, "kernel_source": ""}', "problem_source: expected text, found int"),
        (json.dumps(GOOD | {"kernel_source": None}), "kernel_source: expected text"),
        (json.dumps(GOOD | {"backend": 3}), "backend: expected text"),
        (json.dumps(GOOD | {"backend": "tpu"}), "tpu"),
        (json.dumps(GOOD | {"problem_source": "x = 1"}), "missing: Model"),
        (json.dumps(GOOD | {"problem_source": "def f(:"}), "not Python"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    batch, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    batch.write_text(f"{json.dumps(GOOD)}\n{line}\n{json.dumps(GOOD)}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"in\.jsonl:2: ") as raised:
        judge_file(batch, out, CONFIG)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not out.exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_a_file_without_kernels(tmp_path: Path, content: bytes) -> None:
    batch = tmp_path / "in.jsonl"
    batch.write_bytes(content)
    with pytest.raises(InputError, match=r"in\.jsonl"):
        judge_file(batch, tmp_path / "out.jsonl", CONFIG)


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        judge_file(tmp_path / "none.jsonl", tmp_path / "out.jsonl", CONFIG)
    with pytest.raises(InputError, match="no such folder"):
        judge_file(write(tmp_path / "in.jsonl", [GOOD]), tmp_path / "nowhere" / "out.jsonl", CONFIG)
