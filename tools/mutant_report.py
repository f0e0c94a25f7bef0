"""Mutants with what was found of them, as lines of JSON, and the report of the mutation score.

    python tools/mutant_report.py mutants.jsonl

A line has the case's path, the operator, the line, the mutant's source as `change` (a difference) and `digest`, `truth`
and its `cause`, and the judge's `status`, `category`, `message` and `held_out`.
"""

import ast
import difflib
import functools
import hashlib
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from kernels_eval.redteam.case import Case  # noqa: E402
from kernels_eval.redteam.mutation import Mutant  # noqa: E402
from kernels_eval.redteam.suite import FOLDER, load_cases  # noqa: E402

WRONG = ("wrong", "fails")
COLUMNS = ("unknown", "equal", "fails", "wrong")
WRITTEN = ("operator", "line_number", "truth", "cause", "status", "category", "message", "held_out")


@dataclass
class Entry:
    """A mutant of a case, whether it is wrong, and what the judge says."""

    case: Case
    operator: str
    line_number: int
    source: str
    """Empty if the entry was read from a file."""
    digest: str
    change: str
    truth: str = "unknown"
    """`equal`, `wrong`, `fails` (it raises, crashes or does not end), or `unknown`."""
    cause: str = ""
    """Proof that it is wrong, or why nothing is known: its kernel is `unfit` or `slow`."""
    status: str = ""
    category: str = ""
    message: str = ""
    held_out: str = ""
    """Status with the settings of held-out evaluation, if it is wrong and was found correct."""

    @staticmethod
    def of(case: Case, mutant: Mutant) -> "Entry":
        digest = hashlib.sha256(mutant.source.encode()).hexdigest()[:16]
        return Entry(case, mutant.operator, mutant.line, mutant.source, digest, difference(case, mutant.source))

    @property
    def place(self) -> str:
        return str(self.case.path.relative_to(FOLDER))

    @property
    def name(self) -> str:
        return f"{self.place}:{self.line_number} {self.operator}"

    @property
    def survives(self) -> bool:
        return self.truth in WRONG and self.status == "correct"

    def line(self) -> str:
        """Return it as a line of JSON."""
        found = {"case": self.place, "digest": self.digest, "change": self.change}
        return json.dumps(found | {name: getattr(self, name) for name in WRITTEN})


def key(entry: Entry) -> str:
    return f"{entry.place} {entry.digest}"


def read_entries(path: Path) -> dict[str, Entry]:
    """Read a file of lines, if it exists; the last line of a mutant counts."""
    cases = {str(case.path.relative_to(FOLDER)): case for case in load_cases()}
    found: dict[str, Entry] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = json.loads(text)
        case = cases.get(row.pop("case"))
        if case is not None:
            entry = Entry(case=case, source="", **row)
            found[key(entry)] = entry
    return found


def difference(case: Case, source: str) -> str:
    """Return the lines that the mutation changed, as the syntax tree prints them."""
    lines = difflib.unified_diff(_plain(case.kernel), source.splitlines(), lineterm="", n=0)
    return "\n".join(f"    {line}" for line in lines if line[:1] in "+-" and line[:3] not in ("---", "+++"))


@functools.lru_cache(maxsize=1)
def _plain(kernel: str) -> list[str]:
    return ast.unparse(ast.parse(kernel)).splitlines()


def report(entries: list[Entry], truth_only: bool = False) -> None:
    print(f"{'operator':28s} mutants unknown  equal  fails  wrong survived")
    for operator in sorted({entry.operator for entry in entries}):
        print(row(operator, [entry for entry in entries if entry.operator == operator]))
    print(row("all", entries))
    counts = Counter(entry.cause.split(":")[0] for entry in entries if entry.truth == "unknown" and entry.cause)
    print(f"unknown: {dict(counts)}")
    counts = Counter(entry.cause.split(":")[0] for entry in entries if entry.truth in WRONG)
    print(f"wrong by: {dict(counts.most_common())}")
    if not truth_only:
        report_score(entries)


def report_score(entries: list[Entry]) -> None:
    for title, truths in (("mutation score", WRONG), ("of those that run to the end", WRONG[:1])):
        wrong = [entry for entry in entries if entry.truth in truths]
        killed = sum(not entry.survives for entry in wrong)
        later = sum(entry.survives and entry.held_out != "correct" for entry in wrong)
        print(
            f"{title}: {killed} of {len(wrong)} killed ({killed / max(1, len(wrong)):.2%}); "
            f"as held-out evaluation judges: {killed + later} ({(killed + later) / max(1, len(wrong)):.2%})"
        )
    equal = [entry for entry in entries if entry.truth == "equal" and entry.status not in ("", "correct")]
    refused = Counter(entry.category for entry in equal)
    print(f"equal on this machine's runs, and refused: {refused.total()} {dict(refused.most_common())}")
    for entry in entries:
        if entry.survives:
            print(f"SURVIVED {entry.name} ({entry.cause}; held-out: {entry.held_out})\n{entry.change}")


def row(name: str, entries: list[Entry]) -> str:
    truths = Counter(entry.truth for entry in entries)
    survived = sum(entry.survives for entry in entries)
    counts = [len(entries), *(truths[truth] for truth in COLUMNS), survived]
    return f"{name:28s} " + " ".join(f"{count:6d}" for count in counts)


if __name__ == "__main__":
    report(list(read_entries(Path(sys.argv[1])).values()))
