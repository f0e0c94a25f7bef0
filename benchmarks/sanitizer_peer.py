"""Recall and false alarms of the judge without a GPU, beside the sanitizer of triton-viz, on the same small kernels.

    python benchmarks/sanitizer_peer.py OUT.json [--peer PYTHON]

`--peer`: a Python that has triton-viz, torch and numpy; without it the judge alone is measured. Each kernel of
`benchmarks/sanitizer_cases.py` is judged with its error and without. A detection is any verdict but `correct`; a false
alarm is any other verdict on the mended twin. `named`: the verdict names the error itself (`out_of_bounds`,
`data_race`, or an element that nobody wrote), not its consequence. The peer detects what its report says, in a process
for each kernel; it looks for accesses out of bounds alone.
"""

import argparse
import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from sanitizer_cases import Case, Kind, all_cases

from kernels_eval import Judge, JudgeConfig, Verdict

_NAMES = {Kind.BOUNDS: ("out_of_bounds",), Kind.RACE: ("data_race",), Kind.UNWRITTEN: ()}
_PEER = """
import json, os, sys, types
import torch, triton, triton_viz
from triton_viz.clients import Sanitizer
jit = triton.jit
triton.jit = lambda kernel: triton_viz.trace(Sanitizer(abort_on_error=True))(jit(kernel))

def run(files):
    problem, kernel = (types.ModuleType(name) for name in ("problem", "kernel"))
    for path, module in zip(files, (problem, kernel)):
        exec(compile(open(path).read(), path, "exec"), module.__dict__)
    torch.manual_seed(0)
    kernel.ModelNew()(*problem.get_inputs())
    print("NOTHING FOUND", flush=True)

for number, files in enumerate(json.load(open(sys.argv[1]))):
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{files[1]}.said", os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
        run(files)
        sys.exit()
    os.waitpid(child, 0)
"""


def peer_says(python: str, pairs: list[tuple[str, str]], folder: Path) -> list[str]:
    """Return for each problem and kernel `nothing`, `out of bounds`, or the last line of what the peer said."""
    files: list[tuple[str, str]] = []
    for number, texts in enumerate(pairs):
        paths = [folder / f"{number}_{name}.py" for name in ("problem", "kernel")]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        files.append((str(paths[0]), str(paths[1])))
    (folder / "peer.py").write_text(_PEER, encoding="utf-8")
    (folder / "files.json").write_text(json.dumps(files), encoding="utf-8")
    subprocess.run([python, str(folder / "peer.py"), str(folder / "files.json")], check=True)
    return [_peer_said(Path(f"{kernel}.said").read_text(encoding="utf-8", errors="replace")) for _, kernel in files]


def _peer_said(text: str) -> str:
    if "NOTHING FOUND" in text:
        return "nothing"
    if "ILLEGAL MEMORY ACCESS DETECTED" in text:
        return "out of bounds"
    return (text.strip().splitlines() or ["ended without a word"])[-1][:200]


def judge_says(verdict: Verdict, kind: Kind) -> tuple[str, bool]:
    """Return a verdict in words, and True if it names the error itself."""
    said = verdict.error_category or str(verdict.status)
    is_unwritten = kind is Kind.UNWRITTEN and "written" in (verdict.error_message or "")
    return said, said in _NAMES[kind] or is_unwritten


def measured(cases: list[Case], peer: str | None, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each case."""
    pairs = [(case.problem, kernel) for case in cases for kernel in (case.wrong, case.right)]
    with Judge(JudgeConfig(workers=1, device="cpu", compile="never", timeout_s=30)) as judge:
        verdicts = judge.evaluate_many(pairs)
    said = peer_says(peer, pairs, folder) if peer else ["not run" for _ in pairs]
    rows: list[dict[str, Any]] = []
    for place, case in enumerate(cases):
        wrong, right = verdicts[2 * place : 2 * place + 2]
        found, is_named = judge_says(wrong, case.kind)
        rows.append(
            {
                "case": case.name, "kind": str(case.kind), "judge": found, "named": is_named,
                "message": wrong.error_message, "judge on the twin": judge_says(right, case.kind)[0],
                "twin's message": right.error_message, "peer": said[2 * place], "peer on the twin": said[2 * place + 1],
            }
        )  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return recall and false alarms by class as Markdown."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    lines = ["| class | kernels | judge: found | named | false alarms | triton-viz: found | false alarms | errors |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for kind, found in kinds.items():
        cells = [
            kind, len(found), sum(row["judge"] != "correct" for row in found), sum(row["named"] for row in found),
            sum(row["judge on the twin"] != "correct" for row in found),
            sum(row["peer"] == "out of bounds" for row in found),
            sum(row["peer on the twin"] == "out of bounds" for row in found),
            sum(row["peer on the twin"] not in ("nothing", "out of bounds", "not run") for row in found),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--peer")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    cases = [case for case in all_cases() if not options.only or any(word in case.name for word in options.only)]
    folder = options.out.with_suffix(".kernels")
    folder.mkdir(exist_ok=True)
    rows = measured(cases, options.peer, folder)
    options.out.write_text(json.dumps(rows, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()
