"""The tables of docs/hacks.md: `python -m kernels_eval.redteam.report docs/hacks.md` writes them; a test compares."""

import sys
from pathlib import Path

from kernels_eval.redteam.suite import FOLDER, load_cases, read_classes

PLACES = (
    ("<!-- table: start -->", "<!-- table: end -->", FOLDER),
    ("<!-- table on a GPU: start -->", "<!-- table on a GPU: end -->", FOLDER / "gpu"),
)
"""Comments around each table, and the folder of its cases."""


def table(folder: Path = FOLDER) -> str:
    """Return the table of a folder's classes, below the numbers of cases."""
    hacks = [case for case in load_cases(folder) if not case.is_honest]
    classes = read_classes(folder).values()
    lines = [
        f"{len(hacks)} hacks in {len(classes)} classes, {len(load_cases(folder)) - len(hacks)} honest kernels.",
        "",
        "| class | description | how it is caught | cases | shortest case |",
        "|---|---|---|---:|---|",
    ]
    for hack_class in classes:
        cases = [case for case in hacks if case.kind == hack_class.name]
        example = min(cases, key=lambda case: len(case.kernel)).path.relative_to(folder)
        lines.append(
            f"| {hack_class.name} | {hack_class.description} | {hack_class.caught} | {len(cases)} | `{example}` |"
        )
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return a page with its tables written anew."""
    for start, end, folder in PLACES:
        before, rest = page.split(start)
        page = f"{before}{start}\n{table(folder)}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
