"""Mutation score of the judge: the share of wrong mutants of honest kernels that it refuses.

    python benchmarks/judge_mutants.py --mutants 2000 [--device cuda] [--truth truth.json] [--out score.json]

Draws mutants of the red team's honest kernels (kernels_eval/redteam/mutation.py; the seed decides which), has child
processes decide which are wrong (mutant_truth.py: at the problem's own size, compiled on a GPU or in Triton's
interpreter), and judges all of them without a GPU. Reported by operator: mutants, those that are equal to the kernel,
those that are wrong, and those of them that the judge found correct, with a list. `--truth` reads the decisions from a
file, or writes them there if it does not exist: a GPU decides, another machine judges.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from kernels_eval import Judge, JudgeConfig, Problem  # noqa: E402
from kernels_eval.redteam.case import Case  # noqa: E402
from kernels_eval.redteam.mutation import Mutant, draw_mutants  # noqa: E402
from kernels_eval.redteam.suite import FOLDER, load_cases  # noqa: E402

PROCESSES = multiprocessing.get_context("forkserver")

LIMIT_S = 60.0
"""Seconds that one mutant may take, its compilation included."""
SLOWEST_START_S = 120.0
WRONG = ("wrong", "fails")


@dataclass
class Entry:
    """A mutant of a case, whether it is wrong, and what the judge says."""

    case: Case
    mutant: Mutant
    truth: str = "unknown"
    """`equal`, `wrong`, `fails` (it raises, crashes or does not end), or `unknown`: the kernel itself cannot run."""
    status: str = ""
    category: str = ""

    @property
    def name(self) -> str:
        return f"{self.case.path.relative_to(FOLDER)}:{self.mutant.line} {self.mutant.operator}"


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    entries = draw(options.mutants, options.seed, options.only)
    if options.truth is None or not options.truth.exists():
        decide(entries, options.device, options.processes)
        if options.truth is not None:
            options.truth.write_text(json.dumps({key(entry): entry.truth for entry in entries}), encoding="utf-8")
    else:
        found = json.loads(options.truth.read_text(encoding="utf-8"))
        for entry in entries:
            entry.truth = found.get(key(entry), "unknown")
    if not options.truth_only:
        judge(entries, options.workers)
    report(entries, options.truth_only)
    if options.out is not None:
        options.out.write_text(json.dumps([described(entry) for entry in entries], indent=1), encoding="utf-8")
    return 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="Only cases whose path contains this text.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="Where truth is decided.")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="Of those that decide truth.")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="Of the judge.")
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--truth-only", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


def draw(count: int, seed: int, only: str) -> list[Entry]:
    """Draw as many mutants of each case, more of the first ones if the number does not divide."""
    cases = [case for case in load_cases() if case.is_honest and only in str(case.path.relative_to(FOLDER))]
    entries: list[Entry] = []
    for place, case in enumerate(cases):
        share = count // len(cases) + (place < count % len(cases))
        entries += [Entry(case, mutant) for mutant in draw_mutants(case.kernel, share, seed * len(cases) + place)]
    return entries


def key(entry: Entry) -> str:
    return f"{entry.case.path.relative_to(FOLDER)}\n{entry.mutant.source}"


def decide(entries: list[Entry], device: str, processes: int) -> None:
    """Fill in the truth of every mutant, in processes that are forked from one that has imported torch and triton."""
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)})
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    PROCESSES.set_forkserver_preload(["mutant_truth", "triton"])
    by_case: dict[Path, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_case[entry.case.path].append(entry)
    with ThreadPoolExecutor(processes) as pool:
        for number, _ in enumerate(pool.map(lambda some: decide_case(some, device), by_case.values()), start=1):
            print(f"\rtruth: {number} of {len(by_case)} kernels", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    os.environ.pop("TRITON_INTERPRET", None)


def decide_case(entries: list[Entry], device: str) -> None:
    """Run a child process until each mutant is decided; one that a mutant ended is started again after it."""
    left = list(range(len(entries)))
    while left:
        before = len(left)
        for number, found in conversation(entries, list(left), device):
            if number < 0:
                if found == "unfit":
                    return
            elif found == "started":
                entries[number].truth = "fails"
                left.remove(number)
            else:
                entries[number].truth = found
        if len(left) == before:  # it ended before it began
            return


def conversation(entries: list[Entry], numbers: list[int], device: str) -> Iterator[tuple[int, str]]:
    """Yield what a child says of mutants; it is killed if it is silent for too long."""
    sources = {number: entries[number].mutant.source for number in numbers}
    here, there = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=decide_mutants, args=(entries[0].case.path, device, sources, there), daemon=True)
    child.start()
    there.close()
    limit = SLOWEST_START_S
    with contextlib.suppress(EOFError):
        while here.poll(limit):
            yield here.recv()
            limit = LIMIT_S
    child.kill()
    child.join()


def decide_mutants(*arguments: Any) -> None:
    """Import torch in the child alone."""
    import mutant_truth

    mutant_truth.decide_mutants(*arguments)


def judge(entries: list[Entry], workers: int) -> None:
    """Fill in the judge's verdict of every mutant whose truth is known."""
    known = [entry for entry in entries if entry.truth != "unknown"]
    with Judge(JudgeConfig(device="cpu", workers=workers, compile="never")) as judging:
        futures = [
            judging.submit(
                Problem(problem_id=entry.case.path.stem, source=entry.case.problem),
                entry.mutant.source,
                None,
                {"policy": "strict", **entry.case.settings},
            )
            for entry in known
        ]
        for number, (entry, future) in enumerate(zip(known, futures, strict=True), start=1):
            verdict = future.result()
            entry.status, entry.category = verdict.status, verdict.error_category or ""
            print(f"\rjudged: {number} of {len(known)} mutants", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def report(entries: list[Entry], truth_only: bool) -> None:
    print(f"{'operator':28s} mutants unknown  equal  fails  wrong survived")
    for operator in sorted({entry.mutant.operator for entry in entries}):
        print(row(operator, [entry for entry in entries if entry.mutant.operator == operator]))
    print(row("all", entries))
    if truth_only:
        return
    for title, truths in (("mutation score", WRONG), ("of those that run to the end", WRONG[:1])):
        wrong = [entry for entry in entries if entry.truth in truths]
        killed = sum(entry.status != "correct" for entry in wrong)
        print(f"{title}: {killed} of {len(wrong)} killed ({killed / max(1, len(wrong)):.2%})")
    refused = Counter(entry.category for entry in entries if entry.truth == "equal" and entry.status != "correct")
    print(f"equal on this machine's runs, and refused: {refused.total()} {dict(refused.most_common())}")
    for entry in entries:
        if entry.truth in WRONG and entry.status == "correct":
            print(f"SURVIVED {entry.name} ({entry.truth})\n{difference(entry)}")


def row(name: str, entries: list[Entry]) -> str:
    truths = Counter(entry.truth for entry in entries)
    survived = sum(entry.truth in WRONG and entry.status == "correct" for entry in entries)
    counts = [len(entries), *(truths[truth] for truth in ("unknown", "equal", "fails", "wrong")), survived]
    return f"{name:28s} " + " ".join(f"{count:6d}" for count in counts)


def difference(entry: Entry) -> str:
    """Return the lines that the mutation changed, as the syntax tree prints them."""
    import ast
    import difflib

    before = ast.unparse(ast.parse(entry.case.kernel)).splitlines()
    lines = difflib.unified_diff(before, entry.mutant.source.splitlines(), lineterm="", n=0)
    return "\n".join(f"    {line}" for line in lines if line[:1] in "+-" and line[:3] not in ("---", "+++"))


def described(entry: Entry) -> dict[str, str | int]:
    path = str(entry.case.path.relative_to(FOLDER))
    return {
        "case": path,
        "operator": entry.mutant.operator,
        "line": entry.mutant.line,
        "truth": entry.truth,
        "status": entry.status,
        "category": entry.category,
        "change": difference(entry),
    }


if __name__ == "__main__":
    raise SystemExit(main())
