"""Table of problems in KernelBench's format, as the judge takes them without a GPU: at what sizes, in how many seconds.

    python tools/kernelbench_sizes.py OUT.jsonl FILE.jsonl … [--only NAME …] [--judge] [--again] [--record RECORD.json]

Of each problem the reference is made, cut down where it is too large (kernels_eval.reference.cutting), and run as for
one verdict: two trials, each with its float64 oracle. `--judge`: a decoy is judged instead, twice: a candidate that
computes with the reference's own module, and launches a kernel that its result does not depend on. Under `policy:
mixed` it runs as an honest candidate does and is `rejected` at the end. Any other verdict is of the problem or of the
judge.

Lines that are in OUT.jsonl already are kept; with `--again` those of problems that were not judged are measured again.
The table by level is printed at the end. `--record`: all lines become a record in the form of tools/results_table.py,
and the table is written between its marks in docs/kernelbench.md. A line has `id`, `level`,
`name`, `is_judged`, `reason` (empty if it is), `judged_at` (null: the leading size alone is reduced), `first_s`: CPU
time of making the reference, and `warm_s`: CPU time of the trials, or of all of the judge's processes for the second
verdict; for the first, if that took less than 1.5 s.
"""

import argparse
import json
import os
import statistics
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kernels_eval import Judge, JudgeConfig, Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.loaders import load_entries

DECOY = """

import triton
import triton.language as tl


@triton.jit
def decoy(out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i * 2.0, mask=i < n)


class ModelNew(Model):
    def forward(self, *inputs):
        scratch = torch.empty(1024, device=inputs[0].device)
        decoy[(4,)](scratch, 1024, BLOCK=256)
        return super().forward(*inputs)
"""
_RULES = ("decoy_kernel", "library_compute")
"""Rules that a decoy breaks: a problem was judged if it is refused by one of them."""
_TICKS = os.sysconf("SC_CLK_TCK")
_TIMEOUT_S = 10.0
_MOST_WALL_S, _QUICK_S = 900.0, 1.5
PAGE = Path(__file__).parents[1] / "docs" / "kernelbench.md"
BEGIN, END = "<!-- made by tools/kernelbench_sizes.py -->", "<!-- end of what is made -->"
_LEVELS = ("level", "problems", "judged", "of them cut", "median seconds", "slowest", "above 3 s")


def run_reference(source: str, answer: Any) -> None:
    """Make a problem's reference and run it as for one verdict. Sends what a line says of it. Runs in a process."""
    import torch

    from kernels_eval.correctness.outputs import ReferenceFailedError
    from kernels_eval.cpu.own_sizes import sizes_in_words
    from kernels_eval.cpu.size_schedule import first_sizes, size_of
    from kernels_eval.reference.inputs import SecretSeed, seed_cpu_only
    from kernels_eval.reference.reference import Reference

    seed_cpu_only()
    torch.set_num_threads(1)
    spent = [time.process_time()]
    line: dict[str, Any] = {"judged_at": None, "reason": ""}
    try:
        whole = Reference(source, 1, may_be_cut=True)
        least = whole.cut or whole
        spent.append(time.process_time())
        sizes, seed = first_sizes(least), SecretSeed(b"table")
        if least is not whole:
            line["judged_at"] = sizes_in_words(whole, least, size_of(sizes, 1))
        if least.work.is_too_large(_TIMEOUT_S):
            line["reason"] = f"{least.work.in_words} a call, at the smallest sizes"
        else:
            for trial in range(2):
                size = size_of(sizes, trial)
                least.with_expected(least.draw(size, trial, seed, own=trial == 0), size, trial, seed)
    except ReferenceFailedError as failed:
        line["reason"] = str(failed)[:300]
    spent.append(time.process_time())
    line |= {"first_s": round(spent[1] - spent[0], 2), "warm_s": round(spent[-1] - spent[1], 2)}
    answer.send(line)


def references(problems: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield a line for each problem's reference. Each has a process of its own, forked from one that is warm."""
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    from kernels_eval.cpu.worker import warm_up
    from kernels_eval.interpreter.triton_patches import interpreter

    interpreter.install()
    warm_up()
    context = get_context("fork")
    for entry in problems:
        ours, theirs = context.Pipe()
        process = context.Process(target=run_reference, args=(entry.problem.source, theirs))
        process.start()
        theirs.close()
        try:
            line = ours.recv() if ours.poll(_MOST_WALL_S) else {"reason": f"not done after {_MOST_WALL_S:g} s"}
        except EOFError:
            line = {"reason": "its process died"}
        process.kill()
        process.join()
        yield line


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it started, the living and the dead."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(folder.name)] = int(fields[1])
            spent[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent.get(process, 0.0) for process in ours)


def decoys(problems: list[Any], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Yield a line for each problem's decoy, of its second verdict."""
    with Judge(JudgeConfig(workers=1, device="cpu", compile="never", timeout_s=timeout_s)) as judge:
        for entry in problems:
            problem = Problem(problem_id=entry.problem.problem_id, source=entry.problem.source)
            spent: list[float] = []
            for number in range(2):
                began = cpu_seconds()
                kernel = f"{problem.source}{DECOY}# {number}\n"
                verdict = judge.submit(problem, kernel, None, {"policy": "mixed"}).result()
                spent.append(round(cpu_seconds() - began, 2))
                if spent[0] < _QUICK_S:  # a second one takes no longer
                    break
            is_judged = verdict.error_category in _RULES
            reason = "" if is_judged else f"{verdict.status} {verdict.error_category}: {verdict.error_message}"[:300]
            yield {"judged_at": verdict.judged_at, "reason": reason, "first_s": spent[0], "warm_s": spent[-1]}


def by_level(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row of the table for each level."""
    levels: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        levels[line["level"]].append(line)
    rows: list[list[str]] = []
    for level, found in sorted(levels.items()):
        judged = [line for line in found if line["is_judged"]]
        seconds = [line["warm_s"] for line in judged] or [0.0]
        cells = (
            level, len(found), len(judged), sum(line["judged_at"] is not None for line in judged),
            f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}", sum(each > 3 for each in seconds),
        )  # fmt: skip
        rows.append([str(cell) for cell in cells])
    return rows


def summary(lines: list[dict[str, Any]]) -> str:
    """Return the table by level as Markdown, and one of the problems that were not judged."""
    not_judged = sorted((line for line in lines if not line["is_judged"]), key=lambda line: line["id"])
    refused = [[line["id"], textwrap.shorten(line["reason"], 130, placeholder=" …")] for line in not_judged]
    tables = [_markdown(_LEVELS, by_level(lines))]
    if refused:
        tables.append(_markdown(("not judged", "verdict"), refused))
    return "\n\n".join(tables)


def _markdown(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in ([*columns], ["---"] * len(columns), *rows)]
    return "\n".join(line.replace("| --- ", "|---").replace(" |---", "|---") for line in lines)


def write_record(path: Path, lines: list[dict[str, Any]], hardware: str, note: str) -> None:
    """Write all lines as a record, and the table by level into the page. `path`: DATE-NUMBER.json in docs/lab."""
    rows = [
        [line["id"], line["judged_at"] or "", str(line["warm_s"]), line["reason"]]
        for line in sorted(lines, key=lambda line: line["id"])
    ]
    levels = "Judged with a decoy each, which has to be refused as one; seconds are CPU time of the second verdict."
    record = {
        "date": path.stem.rpartition("-")[0],
        "title": "Problems of KernelBench's levels, judged without a GPU",
        "hardware": hardware,
        "speeds": "estimated",
        "command": "python tools/kernelbench_sizes.py OUT.jsonl FILE.jsonl --judge",
        "figures": [],
        "body": [
            f"{levels} {note}".strip(),
            {"columns": [*_LEVELS], "rows": by_level(lines)},
            {
                "columns": ["problem", "judged at (empty: fewer rows at most)", "s", "not judged"],
                "rows": rows,
            },
        ],
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page = f"{before}{BEGIN}\n\n{summary(lines)}\n\n[All {len(lines)} rows](lab/{path.name}).\n\n{END}{after}"
    PAGE.write_text(page, encoding="utf-8")


def main() -> None:
    """Measure the problems that are missing in the output, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--timeout", type=float, default=_TIMEOUT_S, help="timeout_s of the judge; more if others work")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--note", default="", help="what else the record is to say")
    parser.add_argument("--hardware", default="two cores of a shared machine, busy with other work")
    arguments = parser.parse_args()
    out: Path = arguments.out
    read = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    lines = {line["id"]: line for line in read}
    known = {name for name, line in lines.items() if line["is_judged"] or not arguments.again}
    configs = [ProblemsConfig(source="jsonl", path=path) for path in arguments.files]
    missing = [
        entry
        for config in configs
        for entry in load_entries(config)
        if entry.problem.problem_id not in known
        and (not arguments.only or any(part in entry.problem.problem_id for part in arguments.only))
    ]
    measured = decoys(missing, arguments.timeout) if arguments.judge else references(missing)
    with out.open("a", encoding="utf-8") as file:
        for entry, found in zip(missing, measured, strict=False):
            of = entry.problem
            line = {"id": of.problem_id, "level": of.level, "name": of.name, "is_judged": not found["reason"], **found}
            lines[line["id"]] = line
            file.write(json.dumps(line) + "\n")
            file.flush()
    print(summary(list(lines.values())))
    if arguments.record is not None:
        write_record(arguments.record, list(lines.values()), arguments.hardware, arguments.note)


if __name__ == "__main__":
    main()
