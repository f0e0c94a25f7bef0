"""Tables of the pages of results, docs/index.md and README.md, made from the records in docs/lab.

    python tools/results_table.py            # writes the tables
    python tools/results_table.py --check    # exits with 1 if a page differs from the records

A record is a JSON file, `DATE-NUMBER.json`, whose name gives its order. It has `date`, `title`, `hardware`, `speeds`
(`measured` or `estimated`; without figures also `measured and estimated`), `command` (optional), `figures`, and `body`:
prose, tables (`columns`, `rows`) and code. A figure has `setting`, `problems`, `metric`, `before`, `after` (null: not
reported), and `change`. That is the change with the ends of its 95 % interval, paired by problem. `above_more_sft` and
`above_rejection` (optional) have the same three numbers for the change above more SFT, and above rejection sampling
with as many judged kernels. A table shows the newest figure of each setting and metric.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LAB = ROOT / "docs" / "lab"
METRICS = ("final reward, greedy", "mean return, greedy", "correct, greedy", "mean return, sampled", "correct, sampled")
USUAL = "mean return, greedy"
"""Metric that the short table does not name."""
MAIN_SETTINGS = (
    "local, six seeds", "SmolLM2-135M on KernelBench levels 1 and 2, formulas and focus, three seeds",
    "one-gpu, seed 1", "agents-gpu",
)  # fmt: skip
"""Of the short tables, which show the primary outcome of each: the first of METRICS that a record has."""
BEGIN, END = "<!-- made by tools/results_table.py -->", "<!-- end of what is made -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One change, with the record that it stands in."""

    record: str
    hardware: str
    speeds: str
    setting: str
    problems: int
    metric: str
    before: float
    after: float | None
    change: tuple[float, float, float]
    """Change, lower and upper end of its interval."""
    above_more_sft: tuple[float, float, float] | None
    above_rejection: tuple[float, float, float] | None

    @property
    def gain(self) -> str:
        """`yes` if the interval lies above zero, `no` if it lies below, else `unclear`."""
        _, low, high = self.change
        return "yes" if low > 0 else "no" if high < 0 else "unclear"


def read(folder: Path) -> list[Figure]:
    """Return the figures of all records, oldest first. Raises ValueError for a record that is not as described."""
    found: list[Figure] = []
    for path in sorted(folder.glob("*.json"), key=_order):
        record = json.loads(path.read_text(encoding="utf-8"))
        known = ("measured", "estimated") if record["figures"] else ("measured", "estimated", "measured and estimated")
        if not path.name.startswith(record["date"]) or record["speeds"] not in known:
            raise ValueError(f"{path.name}: expected its date in its name, and speeds measured or estimated")
        found += [_figure(path.stem, record, entry) for entry in record["figures"]]
    return found


def newest(figures: list[Figure]) -> dict[tuple[str, str], Figure]:
    """Return the last figure of each setting and metric."""
    return {(figure.setting, figure.metric): figure for figure in figures}


def results_table(figures: list[Figure], settings: Sequence[str] = (), metrics: int = len(METRICS)) -> str:
    """Return the rows of the settings, by default all of them, each with so many metrics at most."""
    rows = [
        "| setting | hardware, speeds | problems | metric | before | after | change | gain | above more SFT "
        "| above rejection sampling | record |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    last = newest(figures)
    for setting in settings or sorted({setting for setting, _ in last}):
        for figure in [last[setting, metric] for metric in METRICS if (setting, metric) in last][:metrics]:
            cells = (
                setting, f"{figure.hardware}, {figure.speeds}", figure.problems, figure.metric, _number(figure.before),
                _number(figure.after), _change(figure.change), figure.gain, _change(figure.above_more_sft),
                _change(figure.above_rejection), f"[{figure.record}](lab/{figure.record}.json)",
            )  # fmt: skip
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def readme_table(figures: list[Figure]) -> str:
    """Return a row for each of MAIN_SETTINGS that has a record. A metric other than the usual one is named."""
    rows = ["| setting | hardware, speeds | before | after | interval of change | gain |", "|---|---|---|---|---|---|"]
    last = newest(figures)
    for setting in MAIN_SETTINGS:
        found = [last[setting, metric] for metric in METRICS if (setting, metric) in last]
        if found:
            figure = found[0]
            low, high = map(_signed, figure.change[1:])
            cells = (
                setting if figure.metric == USUAL else f"{setting}: {figure.metric}",
                f"{figure.hardware}, {figure.speeds}", _number(figure.before), _number(figure.after),
                f"[{low}, {high}]", figure.gain,
            )  # fmt: skip
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def tables(figures: list[Figure]) -> dict[str, str]:
    """Return the table of each page."""
    short = readme_table(figures)
    return {
        "docs/all-results.md": results_table(figures),
        "docs/results.md": results_table(figures, MAIN_SETTINGS, metrics=1),
        "docs/index.md": short,
        "README.md": short,
    }


def replaced(page: str, table: str) -> str:
    """Return a page's text with another table between its two marks. Raises ValueError if it has none."""
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"expected the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the tables, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page differs")
    is_check = parser.parse_args(arguments).check
    figures = read(LAB)
    stale: list[str] = []
    for name, table in tables(figures).items():
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        made = replaced(text, table)
        if made != text:
            stale.append(name)
            if not is_check:
                page.write_text(made, encoding="utf-8")
    if stale:
        print(f"{'differs from' if is_check else 'written from'} docs/lab: {', '.join(stale)}")
    return int(is_check and bool(stale))


def _order(path: Path) -> tuple[str, int]:
    found = re.fullmatch(r"(\d{4}-\d{2}-\d{2})-(\d+)", path.stem)
    if found is None:
        raise ValueError(f"{path.name}: expected a name such as 2026-11-26-1.json")
    return found[1], int(found[2])


def _figure(name: str, record: dict[str, Any], entry: dict[str, Any]) -> Figure:
    change, low, high = entry["change"]
    if not low <= change <= high:
        raise ValueError(f"{name}: the change of {entry['setting']}, {entry['metric']} lies outside its interval")
    more, rejection = entry.get("above_more_sft"), entry.get("above_rejection")
    return Figure(
        name, record["hardware"], record["speeds"], entry["setting"], entry["problems"], entry["metric"],
        entry["before"], entry["after"], (change, low, high), None if more is None else tuple(more),
        None if rejection is None else tuple(rejection),
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _signed(value: float) -> str:
    return f"{value + 0.0:+.2f}".replace("-", "−")


def _change(values: tuple[float, float, float] | None) -> str:
    if values is None:
        return ""
    change, low, high = map(_signed, values)
    return f"{change} [{low}, {high}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
