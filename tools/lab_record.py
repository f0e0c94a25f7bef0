"""A record of docs/lab, made from the summaries of finished runs (tools/results_table.py says what a record is).

    python tools/lab_record.py "The demo, two seeds" "local, seed 0=runs/local-655f755e" \\
        --command "make train" --note "Beside other work." --out docs/lab/2026-11-27-1.json

The body has the admission of each run's suite, the changes on standard and harder problems, and the learning curve.
`--pool "local, two seeds"` adds what the runs come to together (`tasks.evaluation.pooling`).
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tasks.evaluation.pooling import Pooled, pool_folders

FIGURES = {
    "final reward": "mean_reward",
    "mean return": "mean_return",
    "correct": "correct",
    "first reward": "first_reward",
    "first correct": "first_correct",
}
"""Figures of a record by their names in tables."""
DECODINGS = {"greedy": "heldout_greedy", "sampled": "heldout"}
CHANGES = {"RL − SFT": "", "RL − rejection sampling": "over_rejection", "RL − more SFT": "over_control"}
"""Changes of a run, and the part of its summary that has them."""
_DIGESTS = {"problem set": "problems", "SFT data": "pairs", "SFT": "policy after SFT", "": "policy after RL"}
"""Stages whose digests a record has, by their words; the last one is the last update's."""
POOLED = {
    "after RL − before RL": "change",
    "after RL − more SFT": "above_more_sft",
    "after RL − rejection sampling": "above_rejection",
}
"""Names of pooled changes, and where a figure has them."""


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("title")
    parser.add_argument("runs", nargs="+", metavar="SETTING=FOLDER", help="a run's folder, by its name in the tables")
    parser.add_argument("--hardware", default="2 CPU cores")
    parser.add_argument("--command", required=True, help="the command that repeats the runs")
    parser.add_argument("--pool", metavar="SETTING", help="name of all runs together")
    parser.add_argument("--note", action="append", default=[], help="a paragraph of the body; repeatable")
    parser.add_argument("--out", type=Path, required=True, help="docs/lab/DATE-NUMBER.json; the name gives the date")
    arguments = parser.parse_args()
    folders = {setting: Path(folder) for setting, _, folder in (named.rpartition("=") for named in arguments.runs)}
    summaries: dict[str, dict[str, Any]] = {
        setting: json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for setting, folder in folders.items()
    }
    figures = [figure for setting, summary in summaries.items() for figure in figures_of(setting, summary)]
    pooled = pool_folders(list(folders.values())) if arguments.pool else []
    content = {
        "date": arguments.out.name[:10],
        "title": arguments.title,
        "hardware": arguments.hardware,
        "speeds": "estimated" if next(iter(summaries.values()))["timing_source"] == "roofline" else "measured",
        "command": arguments.command,
        "figures": [*figures, *pooled_figures(arguments.pool, figures, pooled)],
        "body": [*arguments.note, *([pooled_table(pooled)] if pooled else []), *body_of(summaries)],
    }
    arguments.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def figures_of(setting: str, summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the figures of a run for the tables of results: on the standard held-out problems."""
    for decoding, part in DECODINGS.items():
        heldout = summary.get(part)
        if not heldout:
            continue
        for name, figure in FIGURES.items():
            entry = {
                "setting": setting,
                "problems": heldout["n"],
                "metric": f"{name}, {decoding}",
                "before": round(heldout["before"][figure], 5),
                "after": round(heldout["after"][figure], 5),
                "change": _change(heldout, figure),
            }
            for key, source in (("above_more_sft", "over_control"), ("above_rejection", "over_rejection")):
                if source in heldout:
                    entry[key] = _change(heldout[source], figure)
            yield entry


def pooled_figures(
    setting: str, figures: Sequence[Mapping[str, Any]], pooled: Sequence[Pooled]
) -> Iterator[dict[str, Any]]:
    """Yield the figures of all runs together: means before and after, and the pooled changes."""
    for decoding in DECODINGS:
        for name, figure in FIGURES.items():
            of_runs = [each for each in figures if each["metric"] == f"{name}, {decoding}"]
            changes = {
                POOLED[each.contrast.policies]: [round(value, 5) for value in each.change]
                for each in pooled
                if each.contrast[1:] == ("standard", decoding, figure) and each.contrast.policies in POOLED
            }
            if "change" in changes:
                means = {key: round(fmean(each[key] for each in of_runs), 5) for key in ("before", "after")}
                problems = of_runs[0]["problems"]
                yield {"setting": setting, "problems": problems, "metric": f"{name}, {decoding}", **means, **changes}


def pooled_table(pooled: Sequence[Pooled]) -> dict[str, Any]:
    """Return the pooled changes of the record's figures, on standard and harder problems."""
    names = {figure: name for name, figure in FIGURES.items()}
    rows = [
        [policies, problems, f"{names[figure]}, {decoding}", _words(each.change), f"{each.heterogeneity:.2f}"]
        for each in pooled
        for policies, problems, decoding, figure in [each.contrast]
        if figure in names
    ]
    return {"columns": ["change, pooled", "problems", "figure", "with interval", "I²"], "rows": rows}


def body_of(summaries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tables of a record's body."""
    return [
        {"columns": ["run", "admission", "found", "expected", "met"], "rows": list(_admission_rows(summaries))},
        {
            "columns": ["run", "problems", "decoding", "change", *FIGURES],
            "rows": [row for setting, summary in summaries.items() for row in _change_rows(setting, summary)],
        },
        {"columns": ["run", "mean reward of each iteration's batch", "right"], "rows": list(_curve_rows(summaries))},
        {"columns": ["run", *_DIGESTS.values()], "rows": list(_digest_rows(summaries))},
    ]


def _admission_rows(summaries: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    words = {True: "yes", False: "no", None: "not measured"}
    for setting, summary in summaries.items():
        for each in summary["admission"]:
            found = "" if each["found"] is None else f"{each['found']:.2f}"
            yield [setting, each["name"], found, each["expected"], words[each["is_met"]]]


def _change_rows(setting: str, summary: Mapping[str, Any]) -> Iterator[list[str]]:
    for decoding, part in DECODINGS.items():
        standard = summary.get(part) or {}
        for problems, heldout in (("standard", standard), ("harder", standard.get("harder") or {})):
            for name, source in CHANGES.items():
                deltas = heldout.get(source) if source else heldout
                if deltas:
                    changes = [_words(_change(deltas, figure)) for figure in FIGURES.values()]
                    yield [setting, problems, decoding, name, *changes]


def _curve_rows(summaries: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    for setting, summary in summaries.items():
        iterations = summary["iterations"]
        curves = [" ".join(f"{each[name]:.2f}" for each in iterations) for name in ("mean_reward", "correct")]
        yield [setting, *curves]


def _digest_rows(summaries: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    for setting, summary in summaries.items():
        digests = summary["digests"]
        last = f"update {len(summary['iterations']) - 1}"
        yield [setting, *(digests.get(stage or last, "") for stage in _DIGESTS)]


def _change(deltas: Mapping[str, Any], figure: str) -> list[float]:
    return [round(value, 5) for value in (deltas[f"delta_{figure}"], *deltas[f"delta_{figure}_ci"])]


def _words(change: Sequence[float]) -> str:
    value, low, high = (f"{number:+.2f}".replace("-", "−") for number in change)
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
