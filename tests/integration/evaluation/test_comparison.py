"""Several policies side by side: the same differences as `paired`, in JSON, as a table and as a page."""

import json
from pathlib import Path

import pytest

from tasks.evaluation.comparison import Measured, table_rows, write_comparison
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import paired
from tasks.evaluation.summary import ReportInputs

CONFIG = EvaluationConfig(bootstrap_resamples=200)


@pytest.fixture
def measured(fake_run: ReportInputs) -> list[Measured]:
    return [
        Measured(name="SFT", uri=fake_run.sft.uri, evaluation=fake_run.sampled.before),
        Measured(name="RL <1>", uri=fake_run.iterations[-1].checkpoint.uri, evaluation=fake_run.sampled.after),
        Measured(name="RL again", uri=fake_run.iterations[-1].checkpoint.uri, evaluation=fake_run.sampled.after),
    ]


def test_every_pair_is_compared_problem_by_problem(measured: list[Measured], tmp_path: Path):
    write_comparison(tmp_path, measured, CONFIG)
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert [(pair["before"], pair["after"]) for pair in found["pairs"]] == [
        ("SFT", "RL <1>"), ("SFT", "RL again"), ("RL <1>", "RL again"),
    ]  # fmt: skip
    expected = paired(measured[0].evaluation, measured[1].evaluation, CONFIG)
    assert {name: found["pairs"][0][name] for name in expected} == expected
    assert found["pairs"][2]["delta_correct"] == 0
    assert found["n"] == expected["n"]
    assert found["timing_source"] == "roofline"


def test_the_page_stands_alone_and_marks_estimates(measured: list[Measured], tmp_path: Path):
    comparison = write_comparison(tmp_path, measured, CONFIG)
    page = (tmp_path / "comparison.html").read_text()
    assert page.count("<html") == 1
    assert "<script" not in page
    assert 'src="http' not in page
    assert "roofline estimates" in page
    assert "RL &lt;1&gt;" in page
    rows = table_rows(comparison)
    assert rows[1]["figure"] == "Correct"
    assert set(rows[1]) == {
        "figure",
        "SFT",
        "RL <1>",
        "RL again",
        "RL <1> − SFT",
        "RL again − SFT",
        "RL again − RL <1>",
    }
    assert f"{comparison['pairs'][0]['delta_correct']:+.3f}" in rows[1]["RL <1> − SFT"]
