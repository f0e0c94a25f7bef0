"""Lines on attacks on a GPU, from invented verdicts, and the sentence where there is no GPU."""

import pytest

from flows.cli.main import run
from flows.cli.redteam import attack_line, attack_summary
from kernels_eval.gpu.device.detection import gpu_name
from kernels_eval.redteam.gains import AttackOutcome, AttackReport, AttackResult


def result(
    name: str, outcome: str, is_miss: bool = False, gains: tuple[float, ...] = (), **more: object
) -> AttackResult:
    fields = {"name": name, "group": "overlap", "outcome": AttackOutcome(outcome), "is_miss": is_miss, "gains": gains}
    return AttackResult.model_validate({**fields, **more})


def test_the_summary_counts_by_class_and_names_gains_misses_and_what_was_not_run() -> None:
    attacks = (
        result("a", "refused", status="rejected", category="unjoined_stream"),
        result("b", "no gain", gains=(1.02,), status="correct"),
        result("c", "gain", True, (1.31, 1.26), status="correct", candidate_ms=0.003, seconds=2.0),
        result("d", "not run"),
    )
    honest = (result("h", "no gain", group="pointwise"), result("i", "refused", True, group="products"))
    lines = attack_summary(AttackReport(hardware="NVIDIA H100", attacks=attacks, honest=honest))
    assert lines[0].startswith("on NVIDIA H100, JUDGE_VERSION ")
    assert " ".join(lines[1].split()) == "overlap 1 refused, 1 no gain, 1 gain, 1 not run largest gain 1.260"
    assert lines[2].split()[-3:] == ["1", "of", "2"]
    assert [line for line in lines if "not run" in line][1].endswith("1: d")
    assert lines[-2:] == [
        "MISS: gain  1.310 then 1.260  overlap: c  (2.0 s, correct)  3.00 us",
        "MISS: refused  products: i",
    ]


def test_what_a_kernel_said_is_shown_on_one_line_without_escapes() -> None:
    line = attack_line(result("a", "failed", True, status="runtime_error", message="\x1b[2Jgone\nMISS 0\r" + "x" * 500))
    assert "\x1b" not in line
    assert "\n" not in line
    assert "\r" not in line
    assert len(line) < 260


@pytest.mark.skipif(gpu_name() is not None, reason="there is a GPU here")
def test_without_a_gpu_the_command_ends_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["judge", "redteam", "--device", "cuda", "--only", "overlap"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "error: judge.device: expected an NVIDIA GPU that torch sees, found none; use `cpu` or `auto`"
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget-s", "5"], "--budget-s: expected with --device cuda alone"),
        (["--device", "cuda", "--compile"], "--compile: expected without --device cuda"),
        (["--device", "cuda", "--only", "pointwise"], "--only: no case has 'pointwise'"),
        (["--device", "gpu"], "--device: 'gpu' is not one of 'cpu', 'cuda'"),
    ],
)
def test_options_that_do_not_fit_are_named(capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    assert run(["judge", "redteam", *options]) == 2
    assert words in capsys.readouterr().err
