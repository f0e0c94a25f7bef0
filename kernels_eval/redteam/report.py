"""The tables of docs/hacks.md. `python -m kernels_eval.redteam.report docs/hacks.md` writes them anew; a test compares."""

import sys
from pathlib import Path

from kernels_eval.redteam.suite import CLASSES, GPU_CLASSES, HACKS, HONEST

START, END = "<!-- tables: start -->", "<!-- tables: end -->"


def tables() -> str:
    """Return both tables, and the numbers of entries."""
    lines = [
        f"{len(HACKS)} hacks in {len(CLASSES)} classes, {len(HONEST)} honest kernels.",
        "",
        "| class | what it is | how it is caught | entries | for example |",
        "|---|---|---|---:|---|",
    ]
    for kind, (what, how) in CLASSES.items():
        entries = [entry for entry in HACKS if entry.kind == kind]
        lines.append(f"| {kind} | {what} | {how} | {len(entries)} | {entries[0].name} |")
    lines += ["", "| only on a GPU | what it is | how it is caught, and its entries in tests/gpu/gpu_sources.py |", "|---|---|---|"]  # fmt: skip
    lines += [f"| {kind} | {what} | {how} |" for kind, (what, how) in GPU_CLASSES.items()]
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """Return a page with its tables as they should be."""
    before, rest = page.split(START)
    return f"{before}{START}\n{tables()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
