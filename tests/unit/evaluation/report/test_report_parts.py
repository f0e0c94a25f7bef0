"""The report's small parts: words, charts, code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.report import charts
from tasks.evaluation.report.headline import headline
from tasks.evaluation.report.source import MOST_CHARACTERS, highlighted
from tasks.evaluation.report.tables import (
    comparison_rows,
    direction,
    heldout_line,
    interval_text,
    shown,
    turn_rows,
)
from tasks.pipeline.prefect_artifacts import with_interval


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ([0.1, 0.3], "gain"),
        ([-0.3, -0.1], "loss"),
        ([-0.1, 0.1], "unclear"),
        ([0.0, 0.2], "unclear"),
        (None, "unclear"),
    ],
)
def test_a_change_is_called_one_only_where_its_interval_excludes_zero(
    interval: list[float] | None, expected: str
) -> None:
    assert direction(interval) == expected


def _summary(before: float, after: float, interval: list[float]) -> dict[str, Any]:
    figures = {"mean_return": 0.5, "fast_1": 0.2}
    heldout = {
        "before": {"correct": before, **figures},
        "after": {"correct": after, **figures, "mean_return": 0.52},
        "delta_correct_ci": interval,
        "delta_mean_return_ci": [-0.1, 0.1],
        "delta_fast_1_ci": [-0.1, 0.1],
    }
    return {"heldout": heldout, "sizes": {"iterations": 3}, "timing_source": "roofline"}


def test_headline_says_up_down_or_unclear() -> None:
    assert "up from 40\N{NO-BREAK SPACE}%" in headline(_summary(0.4, 0.7, [0.2, 0.4])).sentence
    assert "down from 70\N{NO-BREAK SPACE}%" in headline(_summary(0.7, 0.4, [-0.4, -0.2])).sentence
    unclear = headline(_summary(0.4, 0.42, [-0.05, 0.09]))
    assert "no clear change" in unclear.sentence
    assert unclear.tone == "unclear"
    assert "sampling noise" in unclear.details[0]
    assert any("stayed at 20\N{NO-BREAK SPACE}%" in detail for detail in unclear.details)
    assert "by estimate" in unclear.details[1]


@pytest.mark.parametrize(
    ("sampled", "greedy", "said"),
    [
        ([0.02, 0.06], [-0.01, 0.03], "greedy answers to unseen problems .* no clear change"),
        ([-0.03, 0.06], [0.01, 0.03], "sampled answers to unseen problems .* no clear change"),
        ([0.02, 0.06], [0.01, 0.03], "greedy answers to unseen problems .* up from"),
        ([-0.06, -0.02], [-0.05, 0.01], "sampled answers to unseen problems .* down from"),
    ],
)
def test_the_headline_is_of_the_answers_that_gained_less(sampled: list[float], greedy: list[float], said: str) -> None:
    summary = _summary(0.5, 0.6, sampled)
    summary["heldout_greedy"] = _summary(0.5, 0.6, greedy)["heldout"]
    found = headline(summary)
    assert re.search(said, found.sentence)
    other = "greedy" if "sampled" in found.sentence else "sampled"
    assert f"The share of {other} answers that is correct" in found.details[0]


def test_the_declared_outcome_comes_first_and_harder_problems_are_not_left_out() -> None:
    summary = _summary(0.5, 0.6, [0.02, 0.06])
    summary["heldout"]["harder"] = {**_summary(0.4, 0.2, [-0.3, -0.1])["heldout"], "n": 30}
    summary["primary"] = {
        "outcome": "greedy mean_reward", "figure": "mean_reward", "before": 1.1, "after": 1.2, "delta_ci": [0.0, 0.2]
    }  # fmt: skip
    sentence, details, tone = headline(summary)
    assert sentence.startswith(
        "After 3 iterations of reinforcement learning, the final reward of greedy answers went from "
        "1.10 to 1.20, which sampling noise alone could explain, and 60"
    )
    assert details[0] == "The final reward of greedy answers is the declared primary outcome. All else is exploratory."
    assert tone == "gain"  # by the share of correct kernels
    assert any(
        re.match("On 30 harder problems the share of answers that is correct fell from 40", each) for each in details
    )


def test_a_clear_change_of_the_declared_outcome_decides_where_correctness_does_not() -> None:
    summary = _summary(0.5, 0.52, [-0.02, 0.06])
    primary = {"outcome": "greedy mean_reward", "figure": "mean_reward", "before": 1.0, "after": 1.2}
    found = headline(summary | {"primary": {**primary, "delta_ci": [0.1, 0.3]}})
    assert "the final reward of greedy answers rose from 1.00 to 1.20, and 52" in found.sentence
    assert found.sentence.endswith("before: no clear change.")
    assert found.tone == "gain"


def test_a_declared_share_of_correct_kernels_is_said_once() -> None:
    summary = _summary(0.5, 0.6, [0.02, 0.06])
    summary["primary"] = {
        "outcome": "sampled correct", "figure": "correct", "before": 0.5, "after": 0.6, "delta_ci": [0.02, 0.06]
    }  # fmt: skip
    found = headline(summary)
    assert found.sentence.startswith("After 3 iterations of reinforcement learning, 60")
    assert found.details[0].startswith("The share of correct kernels of sampled answers, the declared primary outcome,")


def test_the_control_is_compared_where_the_gain_over_it_is_smaller() -> None:
    summary, greedy = _summary(0.5, 0.6, [0.02, 0.06]), _summary(0.5, 0.6, [0.02, 0.06])["heldout"]
    summary["heldout"] |= {"over_control": {"delta_mean_return_ci": [0.1, 0.2]}}
    summary["heldout_greedy"] = {**greedy, "over_control": {"delta_mean_return_ci": [-0.1, 0.2]}}
    assert "of greedy answers it cannot be told apart from the control" in headline(summary).details[-1]


def _with_harder(heldout: dict[str, Any], correct: list[float], mean_return: list[float]) -> dict[str, Any]:
    harder = {
        "n": 40,
        "before": {"correct": 0.5, "mean_return": 1.0},
        "after": {"correct": 0.4, "mean_return": 0.9},
        "delta_correct_ci": correct,
        "delta_mean_return_ci": mean_return,
    }
    return {**heldout, "harder": harder}


def test_the_first_sentence_says_that_harder_problems_got_worse() -> None:
    summary, greedy = _summary(0.5, 0.6, [0.02, 0.06]), _summary(0.5, 0.6, [0.02, 0.06])["heldout"]
    summary["heldout"] = _with_harder(summary["heldout"], [-0.2, -0.01], [-0.2, 0.1])
    summary["heldout_greedy"] = _with_harder(greedy, [-0.3, -0.02], [-0.1, 0.1])
    said = "On 40 harder problems the correct share of greedy answers fell from 50 % to 40"
    assert said in headline(summary).sentence
    assert "mean return of" not in headline(summary).sentence


def test_a_change_on_harder_problems_that_noise_explains_is_not_in_the_first_sentence() -> None:
    summary = _summary(0.5, 0.6, [0.02, 0.06])
    summary["heldout"] = _with_harder(summary["heldout"], [-0.2, 0.1], [-0.2, 0.1])
    assert "harder" not in headline(summary).sentence
    summary["heldout"] = _with_harder(summary["heldout"], [0.1, 0.2], [-0.2, -0.1])
    assert "the mean return of sampled answers fell from 1.00 to 0.90" in headline(summary).sentence


def test_a_curve_spans_its_values_and_the_points_beside_it() -> None:
    alone = str(charts.line_chart([0.0, 1.0], [0.86, 0.88], form=charts.percent))
    assert "0 %" not in re.findall(r">([\d.]+ %)<", alone)
    points = [charts.Point(2, 0.93, "tone-greedy", "held-out, greedy, after RL")]
    drawn = str(charts.line_chart([0.0, 1.0], [0.86, 0.88], form=charts.percent, points_beside=points))
    assert "<title>held-out, greedy, after RL: 93 %</title>" in drawn
    places = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)]
    assert max(places) == places[-1] == charts.SMALL[0] - 10
    assert all(10 <= height <= charts.SMALL[1] - 26 for height in heights)
    assert min(heights) == heights[-1], "the point is the highest"


def test_turns_stand_side_by_side_for_each_policy() -> None:
    first = {"after": {"correct": 0.5, "correct_ci": [0.4, 0.6]}, "added": {}, "taken": {"answer_nats": 2.0}}
    second = {
        "after": {"correct": 0.75, "correct_ci": [0.6, 0.8]},
        "added": {"correct": 0.25, "correct_ci": [0.1, 0.3]},
        "repair": {"gain": -0.2, "gain_ci": [-0.3, -0.1]},
        "taken": {"answer_nats": 9.0, "answer_nats_correct": 3.0, "answer_nats_wrong": 10.0},
    }
    one, two = turn_rows([[first, second], [first]])
    assert one[1] == [("–", ""), ("–", "")]
    assert two[0] == [("75.0 %", "60.0 – 80.0"), ("–", "")]
    assert two[1][0] == ("+25.0 pts", "+10.0 … +30.0")
    assert two[2][0] == ("-20.0 pts", "-30.0 … -10.0")
    assert two[3][0] == ("9.00", "3.00 / 10.00")


@given(st.text(max_size=200), st.text(max_size=200))
def test_highlighting_shows_exactly_the_source_and_no_markup_of_it(source: str, previous: str) -> None:
    shown = str(highlighted(source, previous))
    text = re.sub(r'</?span[^>]*>|</?i(?: class="\w+")?>', "", shown)
    assert not re.search(r"<", text)
    lines = re.findall(r'<span class="line[^"]*">(.*?)</span>', shown, re.DOTALL)
    assert len(lines) == len(source.rstrip("\n").split("\n"))


def test_sources_that_are_too_long_have_no_colour_and_no_marks() -> None:
    assert "<i" not in str(highlighted("import torch\n" * (MOST_CHARACTERS // 13 + 1)))
    assert "line new" not in str(highlighted("b\n" * 5_000, "a\n" * 5_000))


def test_new_lines_are_marked() -> None:
    shown = str(highlighted("a = 1\nb = 3\nc = 4", "a = 1\nc = 4"))
    assert shown.count("line new") == 1
    assert '<span class="line new">b' in shown


@given(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), min_size=1, max_size=80),
    st.booleans(),
)
def test_line_chart_survives_any_values(ys: list[float | None], smooth: bool) -> None:
    finite = [None if y is not None and abs(y) > 1e100 and y not in (float("inf"), float("-inf")) else y for y in ys]
    drawn = str(charts.line_chart([float(x) for x in range(len(finite))], finite, smooth=smooth))
    assert drawn.startswith("<svg")
    assert "nan" not in drawn
    assert "inf" not in drawn


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_ticks_cover_the_range_with_few_round_values(first: float, second: float) -> None:
    low, high = min(first, second), max(first, second)
    marks = charts.ticks(low, high)
    assert marks == sorted(marks)
    slack = (
        1e-6 * max(abs(low), abs(high)) + 1e-290
    )  # a millionth of the range is not seen, nor what is next to nothing
    assert marks[0] <= low + slack
    assert marks[-1] >= high - slack
    assert 2 <= len(marks) <= 12


def test_text_in_charts_is_escaped() -> None:
    drawn = str(charts.stacked_columns([("<b>", {"correct": 1.0})], ["correct"]))
    assert "<b>" not in drawn
    assert "&lt;b&gt;" in drawn


def test_histogram_heights_are_shares_of_all_attempts() -> None:
    drawn = str(charts.speed_histogram([("tone-after", "after", [2.1, 2.1, 0.5])], {"after": 10}))
    assert "20.0 % of trajectories" in drawn
    assert "10.0 % of trajectories" in drawn


def test_figures_are_written_in_their_unit() -> None:
    assert [shown(name, 0.5) for name in ("correct", "mean_return", "geomean_speedup")] == ["50.0 %", "0.50", "0.50×"]
    assert shown("correct", None) == "–"
    assert interval_text("correct", [0.25, 0.75]) == "25.0 – 75.0"
    assert interval_text("mean_return", [0.25, 0.75]) == "0.25 – 0.75"
    assert interval_text("correct", None) == ""


def test_rows_stand_in_the_report_s_order_with_a_tone_that_follows_the_interval() -> None:
    figures = {"mean_turns": 2.0, "mean_return": 0.5, "fast_1": 0.2, "fast_0": 0.4, "correct": 0.4, "pass_4": None}
    policy = figures | {f"{name}_ci": None if value is None else [value, value] for name, value in figures.items()}
    heldout = {
        "before": policy,
        "after": policy,
        "delta_correct": 0.2,
        "delta_correct_ci": [0.1, 0.3],
        "delta_mean_turns": -1.0,
        "delta_mean_turns_ci": [-1.5, -0.5],
    }
    rows = {row["name"]: row for row in comparison_rows(heldout)}
    assert list(rows) == ["correct", "fast_1", "pass_4", "mean_return", "mean_turns"]
    assert (rows["correct"]["change"], rows["correct"]["tone"]) == ("+20.0 pts", "gain")
    assert rows["mean_turns"]["tone"] == "unclear", "fewer turns are neither good nor bad"
    assert (rows["fast_1"]["change"], rows["fast_1"]["mark"]) == ("–", "")
    assert rows["fast_1"]["timed"]
    assert not rows["correct"]["timed"]


@pytest.mark.parametrize(("turns", "is_shown"), [(1.0, False), (1.4, True)])
def test_figures_of_turns_are_left_out_where_each_attempt_has_one(turns: float, is_shown: bool) -> None:
    names = ("correct", "first_correct", "best_reward", "mean_turns")
    before = dict.fromkeys(names, 0.5) | {f"{name}_ci": [0.4, 0.6] for name in names} | {"mean_turns": 1.0}
    rows = comparison_rows({"before": before, "after": before | {"mean_turns": turns}})
    assert [row["name"] for row in rows] == (
        ["correct", "best_reward", "mean_turns", "first_correct"] if is_shown else ["correct"]
    )


def test_bars_show_value_and_interval_and_leave_missing_ones_out() -> None:
    bars = [charts.Bar("tone-before", "before", 0.25, (0.125, 0.5)), charts.Bar("tone-after", "after", None, None)]
    drawn = str(charts.interval_bars([("turn 1", bars)], ceiling=1.0))
    assert drawn.count("<rect") == drawn.count("whisker") == 1
    assert "<title>before, turn 1: 25 % (12 % … 50 %)</title>" in drawn
    assert "nothing to draw" in charts.interval_bars([("turn 1", bars[1:])])


@given(st.dictionaries(st.sampled_from(["correct", "incorrect", "timeout"]), st.floats(0.01, 0.3), min_size=1))
def test_a_stacked_column_is_as_high_as_its_shares(shares: dict[str, float]) -> None:
    drawn = str(charts.stacked_columns([("held-out", shares)], ["correct", "incorrect", "timeout"]))
    heights = [float(height) for height in re.findall(r'<rect[^>]* height="([\d.]+)"', drawn)]
    whole = charts.WIDE[1] - 10 - 28
    assert sum(heights) == pytest.approx(whole * sum(shares.values()), abs=0.02)
    assert len(heights) == len(shares)


@given(st.floats(-5, 5), st.floats(0, 2), st.floats(0.1, 3))
def test_a_difference_stays_within_its_mark(value: float, half: float, reach: float) -> None:
    drawn = str(charts.difference_mark(value, (value - half, value + half), reach, "tone-gain"))
    places = [float(place) for place in re.findall(r'(?:cx="|interval tone-gain" d="M|H)(-?[\d.]+)', drawn)]
    assert len(places) == 3
    assert all(0 <= place <= 150 for place in places)


def test_an_evaluation_is_told_in_one_line(tmp_path: Path):
    figures = {
        "correct": 0.125,
        "correct_ci": [0.08, 0.17],
        "fast_1": 0.0,
        "mean_return": -0.004,
        "geomean_speedup": None,
    }
    (tmp_path / "evaluation.json").write_text(json.dumps({"overall": figures}))
    line = heldout_line(tmp_path)
    assert line.startswith("correct 12.5 % (8.0 – 17.0), faster than eager 0.0 %, mean return ")
    assert "speedup" not in line


def test_nothing_is_shown_as_minus_zero():
    figures = {"delta_mean_return": -0.0001, "delta_mean_return_ci": [-0.02, -0.0004]}
    assert with_interval(figures, "delta_mean_return", "+.2f") == "+0.00 [-0.02, +0.00]"
    assert shown("mean_return", -0.001) == "0.00"
    assert interval_text("correct", [-0.0001, 0.5], sign="+") == "+0.0 – +50.0"
