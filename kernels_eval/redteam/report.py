"""The table of docs/hacks.md: `python -m kernels_eval.redteam.report docs/hacks.md` writes it; a test compares."""

import sys
from pathlib import Path

from kernels_eval.redteam.suite import FOLDER, load_cases, read_classes

START, END = "<!-- table: start -->", "<!-- table: end -->"


def table() -> str:
    """Return the table of classes, below the numbers of cases."""
    hacks = [case for case in load_cases() if not case.is_honest]
    classes = read_classes(FOLDER).values()
    lines = [
        f"{len(hacks)} hacks in {len(classes)} classes, {len(load_cases()) - len(hacks)} honest kernels.",
        "",
        "| class | description | how it is caught | cases | shortest case |",
        "|---|---|---|---:|---|",
    ]
    for hack_class in classes:
        cases = [case for case in hacks if case.kind == hack_class.name]
        example = min(cases, key=lambda case: len(case.kernel)).path.relative_to(FOLDER)
        lines.append(
            f"| {hack_class.name} | {hack_class.description} | {hack_class.caught} | {len(cases)} | `{example}` |"
        )
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return a page with its table written anew."""
    before, rest = page.split(START)
    return f"{before}{START}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
