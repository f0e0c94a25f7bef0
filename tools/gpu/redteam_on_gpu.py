"""Attacks on a judge on a GPU, honest kernels, and small problems under little memory: less than five minutes.

    python3 tools/gpu/redteam_on_gpu.py [--parts attacks,honest,memory] [--only TEXT] [--budget SECONDS]

Needs one NVIDIA GPU. Writes `$OUT/redteam_gpu.json` after every step: each attack is `refused`, `no gain` (less than 5 %
over the honest kernel of the same problem), `gain`, or `fault`; counts by class; honest kernels refused; verdicts of 64
kernels by eight workers of 4 GiB, after a problem that leaves its worker no room. Exit code 1 if an attack gains or
chooses a fault, an honest kernel is refused, or a small problem does not fit.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

from judge_on_gpu import COMPOSITIONS, brief, generated  # noqa: E402
from redteam_sources import ATTACKS, pointwise, pointwise_problem  # noqa: E402

from kernels_eval import Judge, JudgeConfig, Verdict  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
GAIN = 1.05
STARTED = time.monotonic()
FOUND: dict[str, Any] = {}


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f}] {text}", flush=True)


def keep() -> None:
    partial = OUT / "redteam_gpu.json.partial"
    partial.write_text(json.dumps(FOUND, indent=1, default=str))
    partial.replace(OUT / "redteam_gpu.json")


def outcome(verdict: Verdict, honest: Verdict) -> tuple[str, float | None]:
    """Return the outcome of an attack, and its gain over the honest kernel."""
    if verdict.is_fault:
        return "fault", None
    if not verdict.correct or verdict.speedup is None:
        return "refused", None
    gain = verdict.speedup / honest.speedup if honest.speedup else None
    return ("gain" if gain is None or gain > GAIN else "no gain"), gain


def attacks(only: str, budget_s: float) -> int:
    """Judge each attack after the honest kernel of its problem, by one worker; returns how many gained."""
    rows: dict[str, Any] = {}
    FOUND["attacks"] = rows
    honest: dict[tuple[str, str], Verdict] = {}
    with Judge(JudgeConfig(workers=1, device="cuda", compile_timeout_s=15.0)) as judge:
        for name, attack in ATTACKS.items():
            if only not in name and only not in attack.kind:
                continue
            if time.monotonic() - STARTED > budget_s:
                rows[name] = {"kind": attack.kind, "outcome": "not run"}
                continue
            key = attack.problem, attack.honest
            # A slowed reference gains most where the reference was never timed: there the attack comes first.
            if key not in honest and attack.kind != "slowed reference":
                honest[key] = judge.evaluate(*key)
            started = time.monotonic()
            problem = attack.problem + "# again\n" if attack.kind == "slowed reference" else attack.problem
            verdict = judge.submit(problem, attack.kernel, None, attack.settings).result()
            spent_s = time.monotonic() - started
            if key not in honest:
                honest[key] = judge.evaluate(*key)
            found, gain = outcome(verdict, honest[key])
            rows[name] = {
                "kind": attack.kind,
                "outcome": found,
                "gain": gain,
                "seconds": spent_s,
                "honest": brief(honest[key]),
                **verdict.model_dump(
                    mode="json",
                    include={"status", "error_category", "error_message", "speedup", "candidate_ms", "reference_ms"},
                ),
            }
            keep()
            say(f"{found:8s} {'' if gain is None else f'{gain:.2f} '}{name} ({spent_s:.1f} s): {brief(verdict)}")
    kinds = sorted({row["kind"] for row in rows.values()})
    FOUND["by class"] = {
        kind: Counter(row["outcome"] for row in rows.values() if row["kind"] == kind) for kind in kinds
    }
    for kind, counts in FOUND["by class"].items():
        say(f"{kind}: {dict(counts)}")
    return sum(row["outcome"] in ("gain", "fault") for row in rows.values())


def honest_kernels(workers: int, budget_s: float) -> int:
    """Judge honest kernels of 3 to 60 us; returns how many were refused."""
    items: list[tuple[str, str, str]] = []
    for rows in (256, 512, 1024, 2048, 4096, 8192, 16384):
        items.append((f"pointwise {rows}", pointwise_problem(rows), pointwise()))
    for attack in {each.honest: each for each in ATTACKS.values()}.values():
        items.append(("honest kernel of an attack", attack.problem, attack.honest))
    for key, rows, columns, inner in COMPOSITIONS:
        for style in ("fused", "small_blocks"):
            for part in (4, 16):
                items.append((f"{key} {style} /{part}", *generated(key, rows // part, columns, inner, style)))
    refused: dict[str, Any] = {}
    times: list[float] = []
    judged = 0
    with Judge(JudgeConfig(workers=workers, device="cuda")) as judge:
        for repeat in range(4):
            if time.monotonic() - STARTED > budget_s:
                break
            verdicts = judge.evaluate_many([(problem, f"{kernel}# {repeat}") for _, problem, kernel in items])
            for (name, _, _), verdict in zip(items, verdicts, strict=True):
                judged += 1
                if verdict.correct and verdict.candidate_ms is not None:
                    times.append(1e3 * verdict.candidate_ms)
                else:
                    refused[f"{name} # {repeat}"] = brief(verdict)
                    say(f"honest kernel refused: {name}: {brief(verdict)}")
    times.sort()
    spread = {"least": times[0], "median": times[len(times) // 2], "most": times[-1]} if times else {}
    FOUND["honest"] = {"kernels": len(items), "judged": judged, "refused": refused, "us": spread, "workers": workers}
    say(f"honest: {len(refused)} of {judged} refused; {spread}")
    keep()
    return len(refused)


def small_problems() -> int:
    """Judge 64 kernels of 1 MiB by eight workers of 4 GiB, each after a large problem; returns how many had faults."""
    large = pointwise_problem(163840)  # 640 MiB in and out: nothing is left beside both and the candidate's part
    small = pointwise_problem(256)
    with Judge(JudgeConfig(workers=8, device="cuda", device_memory_gb=32)) as judge:
        before = judge.evaluate_many([(large, f"{pointwise()}# {number}") for number in range(16)])
        after = judge.evaluate_many([(small, f"{pointwise()}# {number}") for number in range(64)])
    counts = [Counter(f"{v.status} {v.error_category or ''}".strip() for v in given) for given in (before, after)]
    FOUND["memory"] = {
        "large": counts[0],
        "small": counts[1],
        "messages": sorted({v.error_message or "" for v in (*before, *after)})[:6],
    }
    say(f"memory: large {dict(counts[0])}, small {dict(counts[1])}: {FOUND['memory']['messages']}")
    keep()
    return sum(not verdict.correct for verdict in after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="memory,attacks,honest")
    parser.add_argument("--only", default="", help="attacks whose class or name contains this text")
    parser.add_argument("--budget", type=float, default=280.0)
    given = parser.parse_args()
    failures = 0
    for part in given.parts.split(","):
        say(f"=== {part}")
        if part == "memory":
            failures += small_problems()
        elif part == "attacks":
            failures += attacks(given.only, 0.7 * given.budget)
        else:
            failures += honest_kernels(4, 0.9 * given.budget)
    FOUND["seconds"] = time.monotonic() - STARTED
    keep()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
