"""Random search against the estimate: kernels that the judge without a GPU calls correct and faster than their parents.

    python benchmarks/estimate_search.py FOUND.json [--tries 3000] [--minutes 30] [--seed 0] [--only WORD …]
    python benchmarks/estimate_search.py FOUND.json --measure MEASURED.json      # on a machine with a GPU

The roots are the good kernels of the estimate's pairs, one a problem. Each try changes a kept kernel at random
(`benchmarks/estimate_mutations.py`). It is kept if it is correct and its estimate is by `--least` better than its
parent's, both as the interpreter alone has it and with the compiler's figures. A policy that is rewarded by the
estimate would find the same kernels. The 50 with the largest rise over their roots are written, at most five a problem,
with their parents and estimates.

`--measure`: times each of them, its parent and its root by the judge's device `cuda`, and prints the share whose rise
over the root is not there: the estimate has it at least 1.1 times as fast, the GPU does not. Smaller rises are told
apart: those that made a kernel slower by a tenth. Not comparable is what is not correct on the GPU.
"""

import argparse
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from estimate_mutations import mutated
from estimate_pairs import all_pairs, equal_pairs
from estimate_pairs_of_memory import memory_pairs
from estimate_pairs_of_work import work_pairs

from kernels_eval import Judge, JudgeConfig, Verdict

MOST, MOST_A_PROBLEM = 50, 5
RISE = 1.1
_NEVER = 1e9


@dataclass
class Kernel:
    """A kept kernel."""

    problem: str
    source: str
    quick: float
    """Estimated speed-up over the reference, by the interpreter alone."""
    estimate: float
    """The same with registers, spills and shared memory, as a verdict has it."""
    parent: "Kernel | None" = None
    changes: list[str] = field(default_factory=list)
    """Operators from the parent to it."""

    @property
    def root(self) -> "Kernel":
        """The kernel that the search began with."""
        return self if self.parent is None else self.parent.root

    @property
    def rise(self) -> float:
        """Its estimate over its root's."""
        return self.estimate / self.root.estimate

    @property
    def path(self) -> list[str]:
        """Operators from the root to it."""
        return [] if self.parent is None else [*self.parent.path, *self.changes]


def roots(judge: Judge, only: list[str]) -> dict[str, list[Kernel]]:
    """Return the kernels to begin with, by the name of their problem's first pair."""
    named: dict[str, tuple[str, str]] = {}
    known: set[str] = set()
    for pair in [*all_pairs(), *equal_pairs(), *memory_pairs(), *work_pairs()]:
        if pair.problem not in known and (not only or any(word in pair.name for word in only)):
            known.add(pair.problem)
            named[pair.name] = (pair.problem, pair.good)
    quick, whole = (judged(judge, list(named.values()), compile) for compile in ("never", "correct"))
    kept = {
        name: [Kernel(*sources, before.speedup, after.speedup)]
        for (name, sources), before, after in zip(named.items(), quick, whole, strict=True)
        if before.speedup is not None and after.speedup is not None
    }
    print(f"{len(kept)} of {len(named)} roots are correct", flush=True)
    return kept


def judged(judge: Judge, items: list[tuple[str, str]], compile: str) -> list[Verdict]:
    """Return the verdicts on pairs of a problem and a kernel. `compile`: the setting of that name."""
    tickets = [judge.submit(problem, kernel, None, {"compile": compile}) for problem, kernel in items]
    return [ticket.result() for ticket in tickets]


def search(judge: Judge, options: argparse.Namespace) -> tuple[dict[str, list[Kernel]], Counter[str]]:
    """Return the kept kernels by problem, and the numbers of tries by outcome."""
    rng, ends = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    found = roots(judge, options.only)
    tried = {kernel.source for kernels in found.values() for kernel in kernels}
    outcomes: Counter[str] = Counter()
    while outcomes.total() < options.tries and time.monotonic() < ends:
        batch: list[tuple[str, Kernel, str, list[str]]] = []
        while len(batch) < options.batch:
            name = rng.choice([*found])
            parent = max(rng.choices(found[name], k=2), key=lambda kernel: kernel.estimate)
            source, changes = mutated(parent.source, rng)
            if changes and source not in tried:
                tried.add(source)
                batch.append((name, parent, source, changes))
        for (name, parent, source, changes), verdict in zip(batch, _quick(judge, batch), strict=True):
            if verdict.speedup is None or verdict.speedup <= options.least * parent.quick:
                outcomes[str(verdict.status) if verdict.speedup is None else "correct, no faster"] += 1
                continue
            (whole,) = judged(judge, [(parent.problem, source)], "correct")
            if whole.speedup is not None and whole.speedup > options.least * parent.estimate:
                outcomes["kept"] += 1
                found[name].append(Kernel(parent.problem, source, verdict.speedup, whole.speedup, parent, changes))
                print(f"{found[name][-1].rise:7.2f}x  {name}: {', '.join(found[name][-1].path)}", flush=True)
            else:
                outcomes["no faster once compiled"] += 1
        print(f"{outcomes.total()} tries: {dict(outcomes)}", flush=True)
    return found, outcomes


def _quick(judge: Judge, batch: list[tuple[str, Kernel, str, list[str]]]) -> list[Verdict]:
    return judged(judge, [(parent.problem, source) for _, parent, source, _ in batch], "never")


def record(found: dict[str, list[Kernel]], outcomes: Counter[str], seed: int) -> dict[str, Any]:
    """Return what is written: counts, and the kernels with the largest rise."""
    best: list[tuple[str, Kernel]] = []
    for name, kernels in found.items():
        risen = sorted((each for each in kernels if each.parent), key=lambda each: -each.rise)
        best += [(name, kernel) for kernel in risen[:MOST_A_PROBLEM]]
    best.sort(key=lambda each: -each[1].rise)
    rows = [
        {
            "problem": name,
            "rise": round(kernel.rise, 3),
            "estimates": {role: round(each.estimate, 4) for role, each in _line(kernel).items()},
            "changes": kernel.path,
            "problem_source": kernel.problem,
            "sources": {role: each.source for role, each in _line(kernel).items()},
        }
        for name, kernel in best[:MOST]
    ]
    return {"seed": seed, "tries": outcomes.total(), "outcomes": dict(outcomes), "kernels": rows}


def _line(kernel: Kernel) -> dict[str, Kernel]:
    assert kernel.parent is not None
    return {"kernel": kernel, "parent": kernel.parent, "root": kernel.root}


def measure(judge: Judge, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with measured speed-ups; null where a kernel is not correct on the GPU."""
    items = [(row["problem_source"], source) for row in rows for source in row["sources"].values()]
    verdicts = iter(judge.evaluate_many(items))
    for row in rows:
        judged = {role: next(verdicts) for role in row["sources"]}
        row["measured"] = {role: verdict.speedup for role, verdict in judged.items()}
        row["statuses"] = {role: str(verdict.status) for role, verdict in judged.items()}
        of, root = row["measured"]["kernel"], row["measured"]["root"]
        row["measured_rise"] = of / root if of and root else None
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Return in a line how many rises of measured rows are not there; of small ones, how many made a kernel slower."""
    both = [row for row in rows if row["measured_rise"] is not None]
    large, small = ([row for row in both if (row["rise"] >= RISE) is is_large] for is_large in (True, False))
    missed = sum(row["measured_rise"] < RISE for row in large)
    slower = sum(row["measured_rise"] < 1 / RISE for row in small)
    return (
        f"{missed} of {len(large)} rises are not there; {slower} of {len(small)} below {RISE} are slower by as much; "
        f"{len(rows) - len(both)} were not comparable"
    )


def main() -> None:
    """Search, or measure what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("found", type=Path)
    parser.add_argument("--tries", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--least", type=float, default=1.01)
    parser.add_argument("--only", nargs="*", default=[], help="words of the names of pairs")
    parser.add_argument("--measure", type=Path)
    options = parser.parse_args()
    if options.measure is None:
        # Running at the full size would find wrong kernels, and leaves the estimate as it is.
        config = JudgeConfig(
            workers=options.workers, device="cpu", timeout_s=20, full_size_share=0, full_size_speedup=_NEVER
        )
        with Judge(config) as judge:
            result = record(*search(judge, options), options.seed)
        options.found.write_text(json.dumps(result, indent=1))
        for row in result["kernels"]:
            print(f"{row['rise']:7.2f}x  {row['problem']}: {', '.join(row['changes'])}")
        return
    result = json.loads(options.found.read_text(encoding="utf-8"))
    with Judge(JudgeConfig(workers=options.workers, device="cuda")) as judge:
        result["kernels"] = measure(judge, result["kernels"])
    options.measure.write_text(json.dumps(result, indent=1))
    print(summary(result["kernels"]))


if __name__ == "__main__":
    main()
