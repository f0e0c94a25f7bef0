"""Kernels that the judge without a GPU knows, judged on one: the red team's cases for the CPU, and a file of others.

    python3 tools/gpu/cases_on_gpu.py [--kinds honest,hacks] [--items FILE.jsonl] [--workers 8] [--budget SECONDS]

Needs one NVIDIA GPU. A line of FILE has `name`, `problem`, `kernel` and `expected`, the status of the judge without a
GPU. Writes `$OUT/cases_gpu.json`: each kernel's verdict, and those on which the two judges differ.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

from kernels_eval import Judge, JudgeConfig, Problem, Verdict  # noqa: E402
from kernels_eval.redteam.suite import load_cases  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
_PLAIN = {"policy", "min_own_time"}
"""Settings of a case that mean the same on a GPU."""


class Item(NamedTuple):
    """A kernel, and the statuses that are expected."""

    name: str
    group: str
    problem: str
    kernel: str
    expected: tuple[str, ...]
    settings: dict[str, str]


def red_team(kinds: list[str]) -> Iterator[Item]:
    """Yield the red team's cases whose settings mean the same on a GPU."""
    for case in load_cases():
        if ("honest" if case.is_honest else "hacks") in kinds and set(case.settings) <= _PLAIN:
            settings = {"policy": "strict", **case.settings}
            yield Item(case.path.stem, case.group, case.problem, case.kernel, tuple(case.expected), settings)


def of_file(path: Path) -> Iterator[Item]:
    """Yield the kernels of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Item(row["name"], row["group"], row["problem"], row["kernel"], (row["expected"],), {"policy": "strict"})


def row_of(item: Item, verdict: Verdict) -> dict[str, Any]:
    """Return what is kept of a verdict."""
    return {
        "name": item.name,
        "group": item.group,
        "expected": list(item.expected),
        "status": str(verdict.status),
        "category": str(verdict.error_category or ""),
        "message": (verdict.error_message or "")[:400],
        "speedup": verdict.speedup,
        "differs": verdict.status not in item.expected,
    }


def judged(items: list[Item], config: JudgeConfig, budget_s: float) -> Iterator[dict[str, Any]]:
    """Yield the row of each kernel that was begun in `budget_s`, in their order."""
    started = time.monotonic()
    with Judge(config) as judge:
        waiting: list[tuple[Item, Future[Verdict]]] = []
        for item in items:
            if time.monotonic() - started > budget_s:
                break
            while len(waiting) >= 3 * config.workers:
                before, future = waiting.pop(0)
                yield row_of(before, future.result())
            problem = Problem(problem_id=item.name, source=item.problem)
            waiting.append((item, judge.submit(problem, item.kernel, None, item.settings)))
        for before, future in waiting:
            yield row_of(before, future.result())


def main() -> None:
    """Judge them all, as many at a time as there are workers, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="honest,hacks")
    parser.add_argument("--items", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--memory", type=float, default=88.0, help="GB of the GPU for the judge")
    parser.add_argument("--budget", type=float, default=500.0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    items = [*(of_file(given.items) if given.items else ()), *red_team(given.kinds.split(","))]
    memory = {"device_memory_gb": given.memory} if given.device == "cuda" else {}
    settings = {"device": given.device, "workers": given.workers, "compile_timeout_s": 30.0, **memory}
    started, rows = time.monotonic(), list[dict[str, Any]]()
    for row in judged(items, JudgeConfig.model_validate(settings), given.budget):
        rows.append(row)
        if row["differs"]:
            told = f"{row['group']}/{row['name']}: {row['expected']} but {row['status']} {row['category']}"
            print(f"{told} {row['message'][:150]!r}", flush=True)
        found = {"judged": len(rows), "of": len(items), "seconds": round(time.monotonic() - started)}
        if len(rows) % 20 == 0 or len(rows) == len(items):
            (OUT / "cases_gpu.json").write_text(json.dumps({**found, "rows": rows}, indent=1))
    (OUT / "cases_gpu.json").write_text(json.dumps({**found, "rows": rows}, indent=1))
    print(f"{found}, {sum(row['differs'] for row in rows)} differ")
    print(Counter((",".join(row["expected"]), row["status"]) for row in rows))


if __name__ == "__main__":
    main()
