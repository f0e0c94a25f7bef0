"""The report's small parts: words, charts, code."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.report import charts
from tasks.evaluation.report.examples import highlighted
from tasks.evaluation.report.tables import direction, headline


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


def _summary(before: float, after: float, interval: list[float]) -> dict[str, object]:
    figures = {"mean_return": 0.5, "fast_1": 0.2}
    heldout = {
        "before": {"correct": before, **figures},
        "after": {"correct": after, **figures},
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
    assert "by estimate" in unclear.details[1]


@given(st.text(max_size=200), st.text(max_size=200))
def test_highlighting_shows_exactly_the_source_and_no_markup_of_it(source: str, previous: str) -> None:
    shown = str(highlighted(source, previous))
    text = re.sub(r'</?span[^>]*>|</?i(?: class="\w+")?>', "", shown)
    assert not re.search(r"<", text)
    lines = re.findall(r'<span class="line[^"]*">(.*?)</span>', shown, re.DOTALL)
    assert len(lines) == len(source.rstrip("\n").split("\n"))


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
