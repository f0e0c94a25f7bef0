"""Tables of results: the newest figure of a setting wins, the word for a gain follows its interval, pages are up to date."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import results_table as table

ROOT = table.ROOT


def record(folder: Path, name: str, change: list[float], metric: str = "mean return, greedy", **more: Any) -> None:
    figure = {"setting": "agents-gpu", "problems": 8, "metric": metric, "before": 1.0, "after": 1.25}
    content = {
        "date": name[:10], "title": "t", "hardware": "2 CPU cores", "speeds": "estimated", "body": [],
        "figures": [{**figure, "change": change}], **more,
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_the_newest_record_is_shown_and_the_tenth_of_a_day_is_newer_than_the_ninth(tmp_path: Path):
    record(tmp_path, "2026-11-25-10", [0.30, 0.10, 0.50])
    record(tmp_path, "2026-11-25-9", [0.20, 0.10, 0.40])
    record(tmp_path, "2026-11-24-11", [0.10, 0.05, 0.20])
    made = table.results_table(table.read(tmp_path))
    assert "+0.30 [+0.10, +0.50]" in made
    assert "2026-11-25-10" in made
    assert "2026-11-25-9" not in made
    assert made.count("\n") == 2


@pytest.mark.parametrize(
    ("change", "gain"),
    [
        ([0.1, 0.01, 0.2], "yes"),
        ([-0.1, -0.2, -0.01], "no"),
        ([0.1, -0.01, 0.2], "unclear"),
        ([0.1, 0.0, 0.2], "unclear"),
        ([0.0, 0.0, 0.0], "unclear"),
    ],
)
def test_the_word_follows_the_interval(tmp_path: Path, change: list[float], gain: str):
    record(tmp_path, "2026-11-25-1", change)
    assert table.readme_table(table.read(tmp_path)).splitlines()[-1].endswith(f"| {gain} |")


def test_a_setting_without_the_readmes_metric_shows_its_own_by_name(tmp_path: Path):
    record(tmp_path, "2026-11-25-1", [0.3, 0.2, 0.5], metric="correct, greedy")
    assert "| agents-gpu: correct, greedy |" in table.readme_table(table.read(tmp_path))
    record(tmp_path, "2026-11-25-2", [0.3, 0.2, 0.5])
    assert "| agents-gpu |" in table.readme_table(table.read(tmp_path))


@pytest.mark.parametrize(
    ("name", "change", "more"),
    [
        ("2026-11-25-1", [0.3, 0.4, 0.5], {}),
        ("2026-11-25-1", [0.3, 0.2, 0.5], {"date": "2026-11-24"}),
        ("2026-11-25-1", [0.3, 0.2, 0.5], {"speeds": "guessed"}),
        ("2026-11-25-first", [0.3, 0.2, 0.5], {}),
    ],
)
def test_a_record_that_is_not_as_described_is_refused(
    tmp_path: Path, name: str, change: list[float], more: dict[str, Any]
):
    record(tmp_path, name, change, **more)
    with pytest.raises(ValueError, match=re.escape(name)):
        table.read(tmp_path)


def test_a_page_keeps_what_stands_around_its_table():
    page = f"above\n\n{table.BEGIN}\n\n| old |\n\n{table.END}\n\nbelow\n"
    assert table.replaced(page, "| new |") == page.replace("old", "new")
    with pytest.raises(ValueError, match="expected the marks"):
        table.replaced("above", "| new |")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/results.md", "docs/all-results.md"])
def test_pages_show_what_the_records_say(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    made = table.tables(table.read(table.LAB))[page]
    assert table.replaced(text, made) == text, "run: python tools/results_table.py"


def test_every_record_has_what_a_reader_needs():
    for path in table.LAB.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert found["title"], path.name
        assert found["hardware"], path.name
        assert found["body"], path.name


@pytest.mark.parametrize(("page", "least"), [("docs/results.md", 10), ("docs/all-results.md", 5)])
def test_every_figure_that_the_page_states_stands_in_a_record(page: str, least: int):
    """Every change with its interval, as `+0.10 [+0.03, +0.20]`, outside the table that is made."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = text.partition(table.BEGIN)[0] + text.partition(table.END)[2]
    records = " ".join(path.read_text(encoding="utf-8") for path in table.LAB.glob("*.json"))
    stated = re.findall(r"[+−]\d+\.\d+ \[[+−]\d[^\]]+\]", " ".join(prose.split()))
    assert len(stated) > least
    assert not [figure for figure in stated if figure not in records]
