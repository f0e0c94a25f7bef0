"""Problems, SFT pairs and update metrics: every rule fails on data that breaks it."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, SftDataRef
from tasks.trajectories.reader import polars_schema
from tasks.trajectories.schema import TURNS_SCHEMA, verdict_row
from tasks.validation.checks import ValidationFailed, validate_problems, validate_sft_pairs, validate_update_metrics
from tasks.validation.config import ValidationConfig
from tasks.validation.projections import metrics_projection, pairs_projection, problems_projection
from tasks.validation.quarantine import bad_rows, is_row_level
from tasks.validation.runner import Checks
from tasks.validation.suite import Check, load_suite

Rows = list[dict[str, Any]]
Publish = Callable[[Path, str, pl.DataFrame], dict[str, str]]
_REWARDS = {"minimum_reward": 0.0, "maximum_reward": 2.3}


def _source(number: int) -> str:
    return f"class Model: k = {number}\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def problem_rows() -> Rows:
    return [
        {
            "problem_id": f"p{number}",
            "problem_digest": Problem(problem_id="", source=_source(number)).digest,
            "split": "heldout" if number < 2 else "train",
            "level": 1,
            "family": "f",
            "name": "n",
            "composition": f"op{number}",
            "source": _source(number),
            "reference_kernel": None,
        }
        for number in range(8)
    ]


def pair_rows() -> Rows:
    right = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.2)
    wrong = Verdict(status=Status.INCORRECT, compiled=True)
    return [
        {
            "pair_id": f"pair{number}",
            "problem_id": f"p{number}",
            "problem_source": _source(number),
            "kernel_source": "class ModelNew: ...",
            "composition": "",
            "style": "fused",
            "level": 1,
            "kind": "direct",
            "messages": [
                {"role": "user", "content": "problem", "trained": False},
                {"role": "assistant", "content": "kernel", "trained": True},
            ],
            "verdict": verdict_row(wrong if number == 5 else right),
            "reward": 0.1 if number == 5 else 0.5,
            "used": number != 5,
        }
        for number in range(40)
    ]


def pair_table(rows: Rows) -> pl.DataFrame:
    verdict = polars_schema(TURNS_SCHEMA)["verdict"]
    return pl.DataFrame(rows, schema_overrides={"verdict": verdict, "kernel_source": pl.String})


def metric_rows() -> Rows:
    names = ("loss", "kl", "entropy", "clip_fraction", "gradient_norm", "learning_rate")
    return [{"step": step, "response_tokens": 100, **dict.fromkeys(names, 0.5)} for step in range(4)]


def put(column: str, value: Any, row: int = 0) -> Callable[[Rows], object]:
    return lambda rows: rows[row].__setitem__(column, value)


def message(**fields: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[0]["messages"][1].update(fields)


BROKEN_PROBLEMS = {
    "no id": ("problem_id", put("problem_id", None)),
    "id twice": ("problem_id", put("problem_id", "p1")),
    "unknown split": ("split", put("split", "test")),
    "no level": ("level", put("level", None)),
    "level 0": ("level", put("level", 0)),
    "no get_inputs": ("missing_names", put("source", "class Model: ...")),
    "not Python": ("missing_names", put("source", "class Model(")),
    "no source": ("missing_names", put("source", None)),
    "another source's digest": ("wrong_digest", put("problem_digest", "0" * 16)),
    "held-out source in training": (
        "heldout_source_in_training",
        lambda rows: rows[0].update(source=rows[7]["source"], problem_digest=rows[7]["problem_digest"]),
    ),
    "held-out composition in training": ("heldout_composition_in_training", put("composition", "op7")),
}
BROKEN_PAIRS = {
    "no id": ("pair_id", put("pair_id", None)),
    "id twice": ("pair_id", put("pair_id", "pair1")),
    "no problem": ("problem_id", put("problem_id", None)),
    "unknown kind": ("kind", put("kind", "poem")),
    "not judged": ("status", put("verdict", None)),
    "unknown status": ("status", lambda rows: rows[0]["verdict"].update(status="great")),
    "one message": ("messages", lambda rows: rows[0]["messages"].pop(0)),
    "nothing trained": ("trained_messages", message(trained=False)),
    "user trained": ("untrainable_messages", lambda rows: rows[0]["messages"][0].update(trained=True)),
    "unknown role": ("unknown_roles", lambda rows: rows[0]["messages"][0].update(role="narrator")),
    "empty answer": ("empty_messages", message(content="  ")),
    "ends with the user": ("last_role", lambda rows: rows[0]["messages"].reverse()),
    "no kernel": ("kernel_characters", put("kernel_source", None)),
    "no reward": ("missing_reward", put("reward", None)),
    "reward out of range": ("reward", put("reward", 5.0)),
    "wrong kernel used": ("used_unverified", put("used", True, 5)),
}
BROKEN_METRICS = {
    "NaN": ("nonfinite_figures", put("kl", math.nan)),
    "infinite": ("nonfinite_figures", put("loss", math.inf)),
    "no loss": ("loss", put("loss", None)),
    "negative norm": ("gradient_norm", put("gradient_norm", -1.0)),
    "negative entropy": ("entropy", put("entropy", -0.1)),
    "share above 1": ("clip_fraction", put("clip_fraction", 1.5)),
    "no tokens": ("response_tokens", put("response_tokens", 0)),
}
_SETS: dict[str, tuple[Callable[[], Rows], Callable[[Rows], pl.DataFrame], dict[str, Any]]] = {
    "problems": (problem_rows, lambda rows: problems_projection(pl.DataFrame(rows)), BROKEN_PROBLEMS),
    "sft_pairs": (pair_rows, lambda rows: pairs_projection(pair_table(rows), verified=True), BROKEN_PAIRS),
    "update_metrics": (metric_rows, lambda rows: metrics_projection(pl.DataFrame(rows)), BROKEN_METRICS),
}


@pytest.mark.parametrize("name", list(_SETS))
def test_every_rule_finds_the_rows_that_break_it(name: str, tmp_path: Path) -> None:
    make, project, cases = _SETS[name]
    suite = load_suite(name, None, _REWARDS)
    checks = Checks(tmp_path)
    assert bad_rows(project(make()), checks.run([Check("good", suite, project(make()))])).is_empty()
    for number, (column, change) in enumerate(cases.values()):
        rows = make()
        change(rows)
        projection = project(rows)
        reasons = bad_rows(projection, checks.run([Check(str(number), suite, projection)]))["reason"].to_list()
        assert any(f" on {column}: " in reason for reason in reasons), (column, reasons)


@pytest.mark.parametrize("name", list(_SETS))
def test_every_row_level_rule_is_broken_by_some_case(name: str) -> None:
    rules = {rule.column for rule in load_suite(name, None, _REWARDS).expectations if is_row_level(rule)}
    assert rules == {column for column, _ in _SETS[name][2].values()}


def _problem_set(publish: Publish, folder: Path, rows: Rows) -> ProblemSetRef:
    return ProblemSetRef(**publish(folder / "problems", "problems.parquet", pl.DataFrame(rows)), train=6, heldout=2)


def test_good_problems_pass_and_one_bad_one_stops(publish_table: Publish, tmp_path: Path) -> None:
    reference = _problem_set(publish_table, tmp_path, problem_rows())
    assert validate_problems(reference, ValidationConfig(), tmp_path / "docs") == reference
    pages = list((tmp_path / "docs").rglob("*.html"))
    assert len(pages) == 3  # the list, the rules, the results
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"https?://|<script|<link|<img", text) == []
        for link in re.findall(r'href="([^"#]+)', text):
            assert (page.parent / link).exists(), link
    rows = problem_rows()
    rows[3]["source"] = "class Model: ..."
    with pytest.raises(ValidationFailed, match=r"suite 'problems'.*missing_names.*e\.g\. row p3"):
        validate_problems(_problem_set(publish_table, tmp_path, rows), ValidationConfig(), tmp_path / "docs")


def test_a_set_without_heldout_problems_is_refused(publish_table: Publish, tmp_path: Path) -> None:
    rows = [row for row in problem_rows() if row["split"] == "train"]
    with pytest.raises(ValidationFailed, match="expect_column_distinct_values_to_contain_set on column split"):
        validate_problems(_problem_set(publish_table, tmp_path, rows), ValidationConfig(), tmp_path / "docs")


def _check_pairs(publish: Publish, folder: Path, rows: Rows, verified: bool = True) -> SftDataRef:
    data = SftDataRef(**publish(folder / "pairs", "pairs.parquet", pair_table(rows)), pairs=39, verified=verified)
    return validate_sft_pairs(
        data, ValidationConfig(), "kernelbench", folder / "published", folder / "quarantine", folder / "docs"
    )


def test_good_pairs_pass_as_they_are(publish_table: Publish, tmp_path: Path) -> None:
    assert _check_pairs(publish_table, tmp_path, pair_rows()).path == tmp_path / "pairs"
    assert not (tmp_path / "published").exists()


def test_bad_pairs_are_quarantined(publish_table: Publish, tmp_path: Path) -> None:
    rows = pair_rows()
    rows[7]["pair_id"] = None
    published = _check_pairs(publish_table, tmp_path, rows)
    assert published.pairs == 38
    left = pl.read_parquet(published.path / "pairs.parquet")
    assert left.height == 39
    assert "p7" not in left["problem_id"].to_list()
    taken = pl.read_parquet(tmp_path / "quarantine" / "pairs.parquet")
    assert taken["problem_id"].to_list() == ["p7"]
    assert "Every pair has an id" in taken["reason"][0]


def test_wrong_kernels_may_be_used_where_the_corpus_says_so(publish_table: Publish, tmp_path: Path) -> None:
    rows = pair_rows()
    rows[5]["used"] = True
    assert _check_pairs(publish_table, tmp_path, rows, verified=False).path == tmp_path / "pairs"


def test_metrics_with_a_nan_stop(publish_table: Publish, tmp_path: Path) -> None:
    good = CheckpointRef(**publish_table(tmp_path / "good", "metrics.parquet", pl.DataFrame(metric_rows())))
    assert validate_update_metrics(good, ValidationConfig(), tmp_path / "docs") == good
    rows = metric_rows()
    rows[2]["loss"] = math.nan
    bad = CheckpointRef(**publish_table(tmp_path / "bad", "metrics.parquet", pl.DataFrame(rows)))
    with pytest.raises(ValidationFailed, match=r"nonfinite_figures.*e\.g\. row 2"):
        validate_update_metrics(bad, ValidationConfig(), tmp_path / "docs")


def test_what_is_not_a_table_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.parquet").write_text("no")
    with pytest.raises(InputError, match=r"metrics\.parquet: expected a Parquet table"):
        validate_update_metrics(CheckpointRef(uri=str(tmp_path), digest=""), ValidationConfig(), tmp_path / "docs")
