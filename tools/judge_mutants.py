"""Mutation score of the judge: the share of wrong mutants of honest kernels that it refuses.

    python tools/judge_mutants.py --mutants 2500 --out mutants.jsonl [--jobs 1] [--budget-s 3600] [--device cuda]

Draws mutants of the red team's honest kernels (kernels_eval/redteam/mutation.py; the seed decides which), has child
processes decide which are wrong (mutant_truth.py: at the problem's own size, compiled on a GPU or in Triton's own
interpreter), and judges all of them without a GPU. One that is wrong and found correct is judged once more as held-out
evaluation does. `--out` gets one line for each mutant when its kernel's mutants are done (`Entry`); a later call
with the same file goes on where the first one ended. `--truth` takes the decisions from such a file of another run: a
GPU decides, another machine judges, or a changed judge judges again. mutant_report.py prints the score.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from mutant_report import Entry, key, read_entries, report  # noqa: E402

from kernels_eval import Judge, JudgeConfig, Problem, Verdict  # noqa: E402
from kernels_eval.redteam.case import Case  # noqa: E402
from kernels_eval.redteam.mutation import draw_mutants  # noqa: E402
from kernels_eval.redteam.suite import FOLDER, load_cases  # noqa: E402

PROCESSES = multiprocessing.get_context("forkserver")

LIMIT_S = 60.0
"""Seconds that one mutant may take on a GPU, its compilation included."""
SLACK_S, SLACK = 5.0, 5.0
"""On a CPU it may take `SLACK_S`, and `SLACK` times as long as the kernel that was not mutated."""
SLOWEST_START_S = 120.0
HELD_OUT = {"full_size_share": 1.0, "compile": "correct", "compile_share": 1.0}
"""Settings of held-out evaluation that can change a verdict."""


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    entries = draw(options.mutants, options.seed, options.only)
    done = read_entries(options.out) if options.out is not None else {}
    known = read_entries(options.truth) if options.truth is not None else {}
    for entry in entries:
        if key(entry) in known:
            entry.truth, entry.cause = known[key(entry)].truth, known[key(entry)].cause
    left = [entry for entry in entries if key(entry) not in done]
    run(left, options)
    report([done.get(key(entry), entry) for entry in entries], options.truth_only)
    return 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="Only cases whose path contains this text.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="Where truth is decided.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="Kernels at the same time.")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="No kernel is begun after it.")
    parser.add_argument("--truth", type=Path, help="File of an earlier run whose truths are taken.")
    parser.add_argument("--truth-only", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


def draw(count: int, seed: int, only: str) -> list[Entry]:
    """Draw as many mutants of each case, more of the first ones if the number does not divide; cases in random order.

    What the budget leaves is a sample of all cases.
    """
    cases = [case for case in load_cases() if case.is_honest and only in str(case.path.relative_to(FOLDER))]
    random.Random(seed).shuffle(cases)
    entries: list[Entry] = []
    for place, case in enumerate(cases):
        share = count // len(cases) + (place < count % len(cases))
        entries += [Entry.of(case, mutant) for mutant in draw_mutants(case.kernel, share, seed * len(cases) + place)]
    return entries


def run(entries: list[Entry], options: argparse.Namespace) -> None:
    """Decide and judge, kernel by kernel, and write what is done."""
    start_fork_server(options.device)
    by_case: dict[Path, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_case[entry.case.path].append(entry)
    deadline = time.monotonic() + options.budget_s
    lock = threading.Lock()
    finished: list[Path] = []

    def work(path: Path) -> None:
        some = by_case[path]
        if time.monotonic() > deadline:
            return
        if any(entry.truth == "unknown" and not entry.cause for entry in some):
            decide_case(some, options.device)
        if judging is not None:
            judge(judging, some)
        with lock:
            finished.append(path)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.writelines(entry.line() + "\n" for entry in some)
            print(f"\r{len(finished)} of {len(by_case)} kernels", end="", file=sys.stderr, flush=True)

    with contextlib.ExitStack() as stack:
        judging = None
        if not options.truth_only:
            judging = stack.enter_context(Judge(JudgeConfig(device="cpu", workers=options.jobs)))
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        for _ in pool.map(work, by_case):
            pass
    print(file=sys.stderr)


def start_fork_server(device: str) -> None:
    """Start the process that imports torch and triton once; the interpreter is chosen when triton is imported."""
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)})
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    PROCESSES.set_forkserver_preload(["mutant_truth", "guarded_interpreter" if device == "cpu" else "triton"])
    forkserver.ensure_running()
    os.environ.pop("TRITON_INTERPRET", None)


def decide_case(entries: list[Entry], device: str) -> None:
    """Run a child process until each mutant is decided; one that a mutant ended is started again after it."""
    left = list(range(len(entries)))
    while left:
        before = len(left)
        for number, found in conversation(entries, list(left), device):
            truth, _, cause = found.partition(": ")
            if number < 0:
                if truth in ("unfit", "slow"):
                    for entry in entries:
                        entry.truth, entry.cause = "unknown", found
                    return
            elif found == "started":
                entries[number].truth, entries[number].cause = "fails", "crashes or does not end"
                left.remove(number)
            else:
                entries[number].truth, entries[number].cause = truth, cause
        if len(left) == before:  # it ended before it began
            for number in left:
                entries[number].cause = "unfit: the process ended"
            return


def conversation(entries: list[Entry], numbers: list[int], device: str) -> Iterator[tuple[int, str]]:
    """Yield what a child says of mutants; it is killed if it is silent for too long."""
    sources = {number: entries[number].source for number in numbers}
    here, there = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=decide_mutants, args=(entries[0].case.path, device, sources, there), daemon=True)
    child.start()
    there.close()
    limit = SLOWEST_START_S
    try:
        while here.poll(limit):
            number, found = here.recv()
            if found.startswith("ready "):
                limit = LIMIT_S if device == "cuda" else SLACK_S + SLACK * float(found.removeprefix("ready "))
            yield number, found
    except EOFError:
        pass  # it ended
    finally:
        child.kill()
        child.join()


def decide_mutants(*arguments: Any) -> None:
    """Import torch in the child alone."""
    import mutant_truth

    mutant_truth.decide_mutants(*arguments)


def judge(judging: Judge, entries: list[Entry]) -> None:
    """Fill in the judge's verdict of every mutant whose truth is known."""
    known = [entry for entry in entries if entry.truth != "unknown"]
    for entry, verdict in zip(known, verdicts(judging, known, {"compile": "never"}), strict=True):
        entry.status, entry.category = verdict.status, verdict.error_category or ""
        entry.message = (verdict.error_message or "")[:400]
    survivors = [entry for entry in known if entry.survives]
    for entry, verdict in zip(survivors, verdicts(judging, survivors, HELD_OUT), strict=True):
        entry.held_out = verdict.status


def verdicts(judging: Judge, entries: list[Entry], settings: dict[str, Any]) -> list[Verdict]:
    futures = [
        judging.submit(problem(entry.case), entry.source, None, {"policy": "strict", **entry.case.settings, **settings})
        for entry in entries
    ]
    return [future.result() for future in futures]


def problem(case: Case) -> Problem:
    return Problem(problem_id=case.path.stem, source=case.problem)


if __name__ == "__main__":
    raise SystemExit(main())
