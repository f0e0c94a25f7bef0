"""Judge problems at KernelBench's sizes on a real GPU: which are judged, in which time and memory, beside its procedure.

    python3 tools/gpu/kernelbench_sizes_on_gpu.py [--workers 1] [--budget 500] [--peer] [--compiled] [--as-is GB]
        [--every N] [--shuffled SEED]
    python3 tools/gpu/kernelbench_sizes_on_gpu.py --pool W [--pool-gb 1.0] [--first N] [--peer] [--script]

Needs torch, triton, pydantic, pydantic-settings, pyyaml and cachetools. Every kernel (kernelbench_problems.py) should be
`correct`; what is not is printed. Each problem is judged twice, by another text of the same kernel: the second time its
reference and the worker are warm. Seconds of the warm verdict by phase (kernels_eval.gpu.timing.phases) stand in its row, and
their medians in a table at the end; `outside` is what the worker does not see. `--peer`: the same pairs by
kernelbench_peer.py, warm as the judge is; `--compiled`: once more with the kernel's machine code from Triton's cache,
which has no new kernel's; `--as-is`: with inputs made on the CPU too, where they have at most so many GB (6 GB take a
minute). Writes `$OUT/kernelbench_sizes.json` after each problem. `--shuffled`: in a random order, so that what the budget
allows is a random sample, and so are the `--first` N.

`--pool`: the problems with at most `--pool-gb` GB of inputs, each in three texts of its kernel, by so many workers at
once, after one pass to warm up; with `--peer` then beside the peer's rate on the same problems, alone on the GPU, with
inputs made on the CPU and on the GPU, and with `--script` by a new process for each kernel, as KernelBench's script has
it. Writes `$OUT/kernelbench_pool.json`.

`--tiny` rehearses without a GPU, at small sizes; there the judge sees that a kernel which copies computes nothing
(`decoy_kernel`), and the element-wise ones are correct.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

import torch  # noqa: E402
from kernelbench_peer import Peer, script_seconds  # noqa: E402
from kernelbench_problems import Operator, operators  # noqa: E402
from timing_on_gpu import device_memory, say  # noqa: E402

from kernels_eval import Judge, JudgeConfig, Verdict  # noqa: E402
from kernels_eval.gpu.timing.phases import Phase  # noqa: E402

_TEXTS = 3
_OUTSIDE = "outside"


def input_gb(operator: Operator) -> float:
    """Return the size of a problem's inputs in GB."""
    with torch.device("meta"):
        tensors = [eval(value, {"torch": torch, **operator.sizes}) for value in operator.inputs.values()]
    return sum(value.nbytes for value in tensors if isinstance(value, torch.Tensor)) / 1e9


def submit(judge: Judge, operator: Operator, text: str) -> Any:
    """Queue one text of a kernel; a reference's own code counts as the kernel's only under `mixed`."""
    settings = {} if operator.kernel else {"policy": "mixed"}
    return judge.submit(operator.problem, f"{operator.candidate}# {text}", "triton", settings)


def is_correct(operator: Operator, verdict: Verdict) -> bool:
    """Return if a kernel is correct, as it should be; print why if it is not."""
    if not verdict.correct:
        reason = f"{verdict.status.value} [{verdict.error_category}] {(verdict.error_message or '')[:400]}"
        say(f"  NOT CORRECT {operator.name}, {input_gb(operator):.1f} GB: {reason}")
    return verdict.correct


def phases(judge: Judge) -> Counter[str]:
    """Return the seconds of all verdicts so far by phase."""
    spent: Counter[str] = Counter()
    for report in judge.statuses.workers():
        spent.update(report.phases_s)  # pyright: ignore[reportArgumentType]
    return spent


def judged(judge: Judge, operator: Operator) -> dict[str, Any]:
    """Judge one problem twice."""
    seconds: list[float] = []
    for text in ("first", "warm"):
        before, started = phases(judge), time.monotonic()
        verdict = submit(judge, operator, text).result()
        seconds.append(round(time.monotonic() - started, 3))
    spent = {name: round(value - before[name], 3) for name, value in phases(judge).items()}
    is_correct(operator, verdict)
    return {
        "status": verdict.status.value,
        "category": verdict.error_category,
        "first_s": seconds[0],
        "warm_s": seconds[1],
        "phases_s": {**spent, _OUTSIDE: round(seconds[1] - sum(spent.values()), 3)},
        "candidate_ms": verdict.candidate_ms,
        "reference_ms": verdict.reference_ms,
        "memory": device_memory() if judge.config.device == "cuda" else "",
    }


def phase_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of medians, and of the shares of all seconds, by phase."""
    total = sum(row["warm_s"] for row in rows)
    lines = ["| phase | median, s | largest, s | share of all seconds |", "|---|---|---|---|"]
    for name in (*(phase.value for phase in Phase), _OUTSIDE):
        values = [row["phases_s"].get(name, 0.0) for row in rows]
        lines.append(f"| {name} | {median(values):.3f} | {max(values):.3f} | {sum(values) / total:.1%} |")
    return "\n".join(lines)


def pool(judge: Judge, chosen: Sequence[Operator]) -> tuple[list[Operator], dict[str, Any]]:
    """Judge problems in three texts with all workers at once; returns which ones were judged, and what it took.

    One pass before warms up, and leaves out what is not judged, for example because it does not fit into a worker.
    """
    warmed = [(operator, submit(judge, operator, "warm-up")) for operator in chosen]
    fitting = [operator for operator, future in warmed if is_correct(operator, future.result())]
    before, started = phases(judge), time.monotonic()
    futures = [(operator, submit(judge, operator, str(text))) for text in range(_TEXTS) for operator in fitting]
    right = [is_correct(operator, future.result()) for operator, future in futures]
    seconds = time.monotonic() - started
    spent = phases(judge)
    return fitting, {
        "problems": len(fitting),
        "left out": [operator.name for operator in chosen if operator not in fitting],
        "verdicts": len(right),
        "correct": sum(right),
        "seconds": round(seconds, 2),
        "verdicts_per_minute": round(60 * len(right) / seconds, 1),
        "mean_phases_s": {name: round((spent[name] - before[name]) / max(len(right), 1), 3) for name in spent},
        "memory": device_memory() if judge.config.device == "cuda" else "",
    }


def peer_rates(chosen: Sequence[Operator], places: Sequence[str], until: float) -> dict[str, Any]:
    """Return the peer's verdicts a minute by how it is run, and the number of problems that it judged in all ways."""
    warm = [place for place in places if place != "script"]
    peer = Peer() if warm else None
    seconds: dict[str, list[float]] = {place: [] for place in places}
    for operator in chosen:
        if time.monotonic() > until:
            break
        found = peer.evaluate(operator.problem, operator.candidate, warm) if peer is not None else {}
        if "script" in places:
            found["script"] = script_seconds(operator.problem, operator.candidate)
        say(f"  peer, {operator.name}: {json.dumps(found)}")
        if all("seconds" in found.get(place, {}) for place in places):
            for place, values in seconds.items():
                values.append(found[place]["seconds"])
    if peer is not None:
        peer.close()
    rates = {place: round(60 * len(values) / sum(values), 2) for place, values in seconds.items() if sum(values)}
    return {"problems": len(seconds[places[0]]), **rates}


_PLACES = {
    "cpu": "as it is, inputs made on the CPU",
    "cuda": "inputs made on the GPU",
    "script": "a process for each kernel",
}


def run_pool(given: argparse.Namespace, chosen: Sequence[Operator], config: JudgeConfig, began: float) -> None:
    """Measure a pool of workers, and print its rate beside the peer's."""
    chosen = [operator for operator in chosen if input_gb(operator) <= given.pool_gb]
    out = Path(os.environ.get("OUT", ".")) / "kernelbench_pool.json"
    with Judge(config) as judge:
        fitting, found = pool(judge, chosen)
    found["workers"] = config.workers
    say(json.dumps(found))
    places = [*["cpu", "cuda"] * given.peer, *["script"] * given.script]
    if places:
        rates = found["peer_per_minute"] = peer_rates(fitting, places, began + given.budget)
        for place in rates.keys() & _PLACES:
            ratio = found[f"over the peer ({place})"] = round(found["verdicts_per_minute"] / rates[place], 2)
            say(
                f"{found['verdicts_per_minute']} verdicts a minute; the peer, {_PLACES[place]}: {rates[place]}"
                f" ({rates['problems']} problems); {ratio} times"
            )
    out.write_text(json.dumps(found, indent=1), encoding="utf-8")


def summary(right: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the number and the median time of the problems judged correct, and the peer's time over ours."""
    found: dict[str, Any] = {
        "correct": len(right),
        "warm_s": median(row["warm_s"] for row in right) if right else None,
    }
    for where in ("cuda", "compiled", "cpu"):
        pairs = [
            (row["peer"][where]["seconds"], row["warm_s"])
            for row in right
            if "seconds" in row.get("peer", {}).get(where, {})
        ]
        if pairs:
            found[f"peer ({where}) over ours: median"] = median(peer / ours for peer, ours in pairs)
            found[f"peer ({where}) over ours: all together"] = sum(peer for peer, _ in pairs) / sum(
                ours for _, ours in pairs
            )
    return found


def options() -> argparse.Namespace:
    """Return what the command line gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--budget", type=float, default=500.0, help="seconds; no problem starts later")
    parser.add_argument("--every", type=int, default=1, help="every so many problems")
    parser.add_argument("--shuffled", type=int, default=None, metavar="SEED", help="in a random order")
    parser.add_argument("--names", default="", help="of the problems, separated by semicolons; all by default")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="with --peer: also with compiled kernels")
    parser.add_argument(
        "--as-is", type=float, default=0.0, metavar="GB", help="with --peer: also with inputs of the CPU"
    )
    parser.add_argument("--pool", type=int, default=0, metavar="W", help="workers at once; nothing else is measured")
    parser.add_argument("--pool-gb", type=float, default=1.0, metavar="GB", help="inputs of its problems at most")
    parser.add_argument("--first", type=int, default=None, metavar="N", help="so many problems")
    parser.add_argument("--script", action="store_true", help="with --pool: also a process of the peer for each kernel")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def main() -> None:
    given = options()
    out = Path(os.environ.get("OUT", ".")) / "kernelbench_sizes.json"
    began = time.monotonic()
    chosen = [operator.small() if given.tiny else operator for operator in operators()][:: given.every]
    if given.names:
        chosen = [operator for operator in chosen if operator.name in given.names.split(";")]
    if given.shuffled is not None:
        random.Random(given.shuffled).shuffle(chosen)
    chosen = chosen[: given.first]
    rows: dict[str, dict[str, Any]] = {}
    device = "cpu" if given.tiny else "cuda"
    # The share of own kernels is small by construction: what they copy, a library computed.
    workers = given.pool or given.workers
    config = JudgeConfig(workers=workers, device=device, min_own_time=0.0, timeout_s=60.0, compile_timeout_s=60.0)
    if given.pool:
        run_pool(given, chosen, config, began)
        return
    peer = Peer() if given.peer else None
    with Judge(config) as judge:
        for operator in chosen:
            if time.monotonic() - began > given.budget:
                break
            row = rows[operator.name] = judged(judge, operator)
            if peer is not None:
                places = ["cuda", *["compiled"] * given.compiled, *["cpu"] * (input_gb(operator) <= given.as_is)]
                row["peer"] = peer.evaluate(operator.problem, operator.candidate, places)
            say(f"  {operator.name}: {json.dumps(row)}")
            out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if peer is not None:
        peer.close()
    right = [row for row in rows.values() if row["status"] == "correct"]
    if right:
        say(phase_table(right))
    say(json.dumps({"problems": len(rows), "of": len(chosen), **summary(right)}))


if __name__ == "__main__":
    main()
