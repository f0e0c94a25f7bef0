"""Acceptance run of the judge on a real GPU, of less than eight minutes.

    python3 tools/gpu/judge_on_gpu.py [--parts b,c,d,g,a,f,e] [--budget SECONDS]

Needs torch, triton, nvcc, ninja, pydantic, cachetools and one NVIDIA GPU; nothing else. Parts, the most important first: b spread
of ten repeats of five families, c hacks and honest kernels, d measured speedups beside the roofline's estimates, g a
judge on the CPU and one on the device in one process, a smoke of each piece, f CUDA C++, e verdicts a minute against a
fresh process for each kernel. Prints as it goes; writes `$OUT/judge_gpu.json` after every step. Each part has a
process, a folder for temporary files and a time of its own; what it leaves running is killed and waited for before the
next one begins, so that none finds the device, or a lock, in another's hands.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median, pstdev
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

import gpu_probes  # noqa: E402
import gpu_sources as sources  # noqa: E402

from kernels_eval import Judge, JudgeConfig, Verdict  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
STARTED = time.monotonic()
FOUND: dict[str, Any] = {}
BUDGET_S = 460.0
_GRACE_S = 15.0


class PartTimeoutError(Exception):
    """A part took longer than it may."""


def say(text: str = "") -> None:
    line = f"[{time.monotonic() - STARTED:6.1f}] {text}" if text else ""
    print(line, flush=True)
    with (OUT / "judge_gpu.log").open("a") as log:
        log.write(line + "\n")


def keep(name: str, value: Any) -> None:
    FOUND[name] = value
    partial = OUT / "judge_gpu.json.partial"
    partial.write_text(json.dumps(FOUND, indent=1, default=str))
    partial.replace(OUT / "judge_gpu.json")


def left_s() -> float:
    return BUDGET_S - (time.monotonic() - STARTED)


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise PartTimeoutError(f"longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, min(seconds, left_s())))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def part(name: str, seconds: float, run: Callable[[], Any]) -> None:
    """Run one part, in this process."""
    started = time.monotonic()
    try:
        with limited(seconds):
            found = run()
        keep(name, found)
    except BaseException as error:  # noqa: BLE001 (one part's failure must not cost the others)
        say(f"    FAILED: {type(error).__name__}: {error}")
        say("    " + traceback.format_exc()[-1500:].replace("\n", "\n    "))
        keep(name, {**FOUND.get(name, {}), "error": f"{type(error).__name__}: {error}"})
    say(f"    ({time.monotonic() - started:.1f} s)")


def part_in_a_process(key: str) -> None:
    """Run one part in a process group of its own, and see to it that nothing of it is left."""
    name, seconds, _ = PARTS[key]
    say()
    say(f"=== {name}")
    if left_s() < 10:
        say("    no time left")
        keep(name, {"error": "no time left"})
        return
    with tempfile.TemporaryDirectory(prefix=f"judge-on-gpu-{key}-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, str(Path(__file__).resolve()), "--only", key, "--budget", str(left_s())]
        ran = subprocess.Popen(command, env={**os.environ, "TMPDIR": folder, "OUT": str(OUT)}, start_new_session=True)
        try:
            code = ran.wait(timeout=min(seconds, left_s()) + _GRACE_S)
        except subprocess.TimeoutExpired:
            code = "killed: it did not end"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)
        ran.wait()
        remember()
        if code:
            say(f"    the part's process: {code}")
            keep(name, {**FOUND.get(name, {}), "exit": code})
        left = wait_for_idle_device()
        if left:
            say(f"    still on the device: {left}")


def wait_for_idle_device() -> list[str]:
    """Wait until no process of this machine holds the device; returns those that still do (in a container: none)."""
    command = ["nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader"]
    listed: list[str] = []
    for _ in range(20):
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return []
        listed = [line for line in ran.stdout.splitlines() if line.split(",")[0].strip().isdigit()]
        if not listed:
            return []
        time.sleep(0.5)
    return listed


def remember() -> None:
    """Read what was found so far, by this process or another."""
    with contextlib.suppress(FileNotFoundError):
        FOUND.update(json.loads((OUT / "judge_gpu.json").read_text()))


def brief(verdict: Verdict) -> str:
    times = ""
    if verdict.candidate_ms is not None and verdict.reference_ms is not None and verdict.speedup is not None:
        times = f" {1e3 * verdict.candidate_ms:.2f} µs against {1e3 * verdict.reference_ms:.2f}: {verdict.speedup:.3f}x"
    why = f" [{verdict.error_category}] {(verdict.error_message or '')[:160]}" if verdict.error_category else ""
    return f"{verdict.status}{times}{why}"


def smoke() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in gpu_probes.PROBES:
        said = run_probe(name)
        found[name] = said
        keep("a smoke", found)
        say(f"  {name}: {json.dumps(said, default=str)[:1500]}")
    started = time.monotonic()
    with Judge(JudgeConfig(workers=1, device="cuda")) as judge:
        for number in range(3):
            verdict = judge.evaluate(sources.ROW_PROBLEM, f"{sources.ROW_KERNEL}# {number}")
            spent = time.monotonic() - started
            found[f"verdict {number}"] = {**verdict.model_dump(mode="json"), "seconds": spent}
            say(f"  verdict {number} after {spent:.2f} s: {brief(verdict)}; {verdict.sandbox}; {verdict.hardware}")
            say(f"    resources: {[used.model_dump() for used in verdict.resources]}")
            started = time.monotonic()
    return found


def run_probe(name: str) -> Any:
    command = [sys.executable, str(Path(gpu_probes.__file__)), name]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=ROOT)
    except subprocess.TimeoutExpired as error:
        return {"error": "timeout", "stderr": str(error.stderr)[-1500:]}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    said: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": f"exit {ran.returncode}"}
    if "error" in said or ran.returncode:
        said["stderr"] = ran.stderr[-2500:]
    return said


FAMILIES = {
    "elementwise": ("gelu>double>sigmoid>increment", 16384, 1024, 0),
    "softmax": ("relu>double>softmax", 16384, 1024, 0),
    "normalisation": ("layer_norm>gelu>halve", 16384, 1024, 0),
    "reduction": ("square>tanh>sum", 16384, 1024, 0),
    "matmul": ("linear>relu>softmax", 16384, 128, 256),
}


def generated(key: str, rows: int, columns: int, inner: int, style: str) -> tuple[str, str]:
    from tasks.problems.synthetic.composition import parse_composition
    from tasks.problems.synthetic.sources import Shape, Style, kernel_source, problem_source

    composition = parse_composition(key)
    problem = problem_source(composition, Shape(rows=rows, columns=columns, inner=inner))
    return problem, kernel_source(composition, Style(style))


def spread() -> dict[str, Any]:
    """Ten repeats of an honest kernel of each family, in turn, so that a drift of the device shows too."""
    repeats = 10
    verdicts: dict[str, list[Verdict]] = {family: [] for family in FAMILIES}
    with Judge(JudgeConfig(workers=1, device="cuda", trials=2)) as judge:
        for number in range(repeats):
            for family, (key, rows, columns, inner) in FAMILIES.items():
                problem, kernel = generated(key, rows, columns, inner, "fused")
                verdicts[family].append(judge.evaluate(problem, f"{kernel}# repeat {number}"))
    found: dict[str, Any] = {}
    for family, given in verdicts.items():
        right = [verdict for verdict in given if verdict.correct]
        if len(right) < repeats:
            wrong = next(verdict for verdict in given if not verdict.correct)
            say(f"  {family}: only {len(right)} of {repeats} correct; {brief(wrong)}")
        if not right:
            found[family] = {"error": brief(given[0])}
            continue
        row: dict[str, Any] = {"correct": len(right)}
        for name in ("candidate_ms", "reference_ms", "speedup"):
            values = [float(getattr(verdict, name)) for verdict in right]
            row[name] = {
                "median": median(values),
                "range": (max(values) - min(values)) / median(values),
                "deviation": pstdev(values) / mean(values),
                "values": values,
            }
        found[family] = row
        say(
            f"  {family:14s} {1e3 * row['candidate_ms']['median']:8.2f} µs (range {row['candidate_ms']['range']:.2%}, "
            f"deviation {row['candidate_ms']['deviation']:.2%}); reference {1e3 * row['reference_ms']['median']:8.2f} µs "
            f"(range {row['reference_ms']['range']:.2%}); speedup {row['speedup']['median']:.3f} "
            f"(range {row['speedup']['range']:.2%})"
        )
    return found


def cases() -> dict[str, Any]:
    found: dict[str, Any] = {}
    config = JudgeConfig(workers=1, device="cuda", compile_timeout_s=15.0)
    with Judge(config) as judge:
        base = {
            problem: judge.evaluate(problem, kernel)
            for problem, kernel in (
                (sources.ROW_PROBLEM, sources.ROW_KERNEL),
                (sources.LINEAR_PROBLEM, sources.LINEAR_KERNEL),
            )
        }
        for problem, verdict in base.items():
            say(f"  base ({'row' if problem == sources.ROW_PROBLEM else 'linear'}): {brief(verdict)}")
        caught = passed = 0
        for name, case in {**sources.HONEST, **sources.HACKS}.items():
            started = time.monotonic()
            settings = {key: value for key, value in case.settings.items() if key != "compile_timeout_s"}
            verdict = judge.submit(case.problem, case.kernel, None, settings).result()
            good = judged_well(case, verdict, base.get(case.problem))
            honest = case.expect == "correct"
            passed += honest and good
            caught += (not honest) and good
            found[name] = {
                "good": good,
                "expect": case.expect,
                "seconds": time.monotonic() - started,
                **verdict.model_dump(
                    mode="json", include={"status", "error_category", "error_message", "speedup", "candidate_ms"}
                ),
            }
            keep("c cases", found)
            say(
                f"  {'ok ' if good else 'BAD'} {name} ({case.expect}, {found[name]['seconds']:.1f} s): {brief(verdict)}"
            )
        found["hacks caught"] = f"{caught}/{len(sources.HACKS)}"
        found["honest passed"] = f"{passed}/{len(sources.HONEST)}"
        say(f"  hacks caught {found['hacks caught']}, honest passed {found['honest passed']}")
    return found


def judged_well(case: sources.Case, verdict: Verdict, base: Verdict | None) -> bool:
    if verdict.is_fault:  # what spoils its own measurement has no verdict and no reward
        return case.expect != "correct" and verdict.error_category in ("clock_disagreement", "slowed_reference")
    if case.expect == "correct":
        return verdict.correct
    if case.expect == "refused" or not verdict.correct:
        return not verdict.correct
    assert verdict.speedup is not None
    return base is not None and base.speedup is not None and verdict.speedup <= case.limit * base.speedup


COMPOSITIONS = [
    ("relu", 16384, 1024, 0),
    ("gelu>double>sigmoid>increment", 16384, 1024, 0),
    ("softmax", 16384, 1024, 0),
    ("relu>double>softmax", 8192, 512, 0),
    ("layer_norm>gelu>halve", 16384, 1024, 0),
    ("rms_norm>silu", 8192, 2048, 0),
    ("square>tanh>sum", 16384, 1024, 0),
    ("abs>log1p_abs>mean", 16384, 512, 0),
    ("sigmoid>transpose", 8192, 1024, 0),
    ("tanh>flip_columns", 16384, 1024, 0),
    ("add_tensor>relu>third", 16384, 1024, 0),
    ("scale_columns>shift_columns>gelu", 16384, 1024, 0),
    ("subtract_max>gaussian>divide_by_l1", 16384, 1024, 0),
    ("scale_rows>softplus>complement", 4096, 256, 0),
    ("elu>hardswish>increment>double>halve>negate", 16384, 1024, 0),
    ("silu>log_softmax", 8192, 1024, 0),
    ("linear>relu>softmax", 16384, 128, 256),
    ("matmul>gelu>double", 16384, 64, 128),
    ("linear>layer_norm>tanh", 8192, 64, 96),
    ("cosine>amax", 4096, 64, 0),
]
STYLES = ("fused", "stepwise", "small_blocks", "extra_passes")


def interpreted(items: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Judge on the CPU, in a process of its own."""
    command = [sys.executable, str(Path(gpu_probes.__file__)), "interpret"]
    ran = subprocess.run(command, input=json.dumps(items), capture_output=True, text=True, timeout=60, cwd=ROOT)
    found = json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else None
    if not isinstance(found, list):
        say(f"  no estimates: {found or ran.stderr[-1500:]}")
        return [{} for _ in items]
    return found


def together() -> dict[str, Any]:
    """A judge on the CPU and one on the device in one process."""
    problem, kernel = generated("relu>double>softmax", 4096, 512, 0, "fused")
    found: dict[str, Any] = {}
    estimates = gpu_probes.interpret([(problem, kernel)] * 4, processes=4)
    found["interpreted"] = [estimate.get("status") for estimate in estimates]
    with Judge(JudgeConfig(workers=1, device="cuda")) as judge:
        found["device"] = brief(judge.evaluate(problem, kernel))
    say(f"  {found}")
    return found


def table() -> dict[str, Any]:
    items: list[tuple[str, str, str, str]] = []
    for key, rows, columns, inner in COMPOSITIONS:
        for style in STYLES:
            if style == "stepwise" and ">" not in key:
                continue
            problem, kernel = generated(key, rows, columns, inner, style)
            items.append((f"{key}/{rows}x{columns}", style, problem, kernel))
    found: dict[str, Any] = {"rows": []}
    estimates = interpreted([(problem, kernel) for _, _, problem, kernel in items])
    say(f"  {sum(1 for estimate in estimates if estimate.get('speedup'))} of {len(items)} estimated")
    with Judge(JudgeConfig(workers=1, device="cuda", trials=2, timing_rounds=4)) as judge:
        for (name, style, problem, kernel), estimate in zip(items, estimates, strict=True):
            if left_s() < 10:
                say("  no time for the rest of the table")
                break
            verdict = judge.evaluate(problem, kernel)
            row = {
                "problem": name,
                "style": style,
                "status": verdict.status,
                "message": verdict.error_message,
                "candidate_ms": verdict.candidate_ms,
                "reference_ms": verdict.reference_ms,
                "speedup": verdict.speedup,
                "estimate": {key: estimate.get(key) for key in ("status", "candidate_ms", "reference_ms", "speedup")},
                "launches": estimate.get("launches", []),
                "eager": estimate.get("eager", []),
            }
            found["rows"].append(row)
            guess = row["estimate"]
            if verdict.correct and verdict.candidate_ms and verdict.reference_ms:
                say(
                    f"  {name:52s} {style:13s} {1e3 * verdict.candidate_ms:8.2f} µs, reference {1e3 * verdict.reference_ms:8.2f}, "
                    f"speedup {verdict.speedup:6.2f} | estimated {1e3 * (guess['candidate_ms'] or 0):8.2f}, "
                    f"{1e3 * (guess['reference_ms'] or 0):8.2f}, {guess['speedup'] or 0:6.2f}"
                )
            else:
                say(f"  {name:52s} {style:13s} {brief(verdict)}")
            keep("d table", found)
    return found


def throughput() -> dict[str, Any]:
    """Verdicts a minute over a mix: honest, wrong, not compiling, refused."""
    problem, _ = generated("relu>double>softmax", 8192, 512, 0, "fused")
    kernels: list[str] = []
    for number in range(40):
        _, kernel = generated("relu>double>softmax", 8192, 512, 0, STYLES[number % 4])
        if number % 5 == 3:
            kernel = kernel.replace("x * 2.0", "x * 2.5")
        if number % 10 == 4:
            kernel = kernel.replace("tl.maximum(x, 0.0)", "tl.maximum(nothing, 0.0)")
        if number % 10 == 9:
            kernel = kernel.replace("        return", "        x = torch.relu(x)\n        return")
        # A name of its own, so that nothing compiled before can be used.
        kernels.append(kernel.replace("_kernel", f"_kernel_{number}"))
    found: dict[str, Any] = {}
    for workers in (4, 1, 8, 2):
        if left_s() < 40:
            break
        with Judge(JudgeConfig(workers=workers, device="cuda")) as judge:
            judge.evaluate_many([(problem, f"{kernels[0]}# warm {index}") for index in range(workers)])
            started = time.monotonic()
            verdicts = judge.evaluate_many([(problem, f"{kernel}# {workers}") for kernel in kernels])
            spent = time.monotonic() - started
        counts: dict[str, int] = {}
        for verdict in verdicts:
            counts[str(verdict.status)] = counts.get(str(verdict.status), 0) + 1
        speeds = [verdict.speedup for verdict in verdicts[0::4] if verdict.speedup]
        found[f"{workers} workers"] = {
            "per_minute": 60 * len(verdicts) / spent,
            "counts": counts,
            "fused speedups": speeds,
        }
        say(
            f"  {workers} workers: {60 * len(verdicts) / spent:.0f} verdicts a minute; {counts}; fused speedups {[round(speed, 2) for speed in speeds]}"
        )
        keep("e throughput", found)
    spent = [gpu_probes.fresh_process(problem, kernel) for kernel in kernels[:3] if left_s() > 15]
    if spent:
        found["fresh process"] = {"per_minute": 60 / mean(spent), "seconds": spent}
        say(
            f"  a fresh process for each kernel: {60 / mean(spent):.1f} a minute ({', '.join(f'{value:.1f}' for value in spent)} s)"
        )
        rates = [value["per_minute"] for key, value in found.items() if "workers" in key]
        found["ratio"] = [rate * mean(spent) / 60 for rate in rates]
        say(f"  ratio: {', '.join(f'{ratio:.1f}' for ratio in found['ratio'])}")
    return found


def cuda() -> dict[str, Any]:
    found: dict[str, Any] = {}
    config = JudgeConfig(workers=4, device="cuda", compile_timeout_s=40.0)
    with Judge(config) as judge:
        futures = {
            name: judge.submit(case.problem, case.kernel, "cuda", None) for name, case in sources.CUDA_CASES.items()
        }
        for name, case in sources.CUDA_CASES.items():
            started = time.monotonic()
            verdict = futures[name].result()
            good = judged_well(case, verdict, None)
            found[name] = {"good": good, **verdict.model_dump(mode="json")}
            say(f"  {'ok ' if good else 'BAD'} {name} (+{time.monotonic() - started:.1f} s): {brief(verdict)}")
            say(f"    resources: {[used.model_dump() for used in verdict.resources]}")
            keep("f CUDA C++", found)
        started = time.monotonic()
        again = judge.submit(
            sources.CUDA_PROBLEM, sources.CUDA_CASES["CUDA C++: plain"].kernel, "cuda", {"trials": 3}
        ).result()
        found["again, already built"] = {"seconds": time.monotonic() - started, "verdict": brief(again)}
        say(f"  again, already built: {time.monotonic() - started:.1f} s: {brief(again)}")
    return found


PARTS: dict[str, tuple[str, float, Callable[[], Any]]] = {
    "b": ("b spread", 110, spread),
    "c": ("c cases", 150, cases),
    "d": ("d table", 130, table),
    "g": ("g judges together", 45, together),
    "a": ("a smoke", 120, smoke),
    "f": ("f CUDA C++", 120, cuda),
    "e": ("e throughput", 110, throughput),
}


def main() -> None:
    global BUDGET_S
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--budget", type=float, default=BUDGET_S)
    parser.add_argument("--only", choices=PARTS, help="one part, in this process")
    arguments = parser.parse_args()
    BUDGET_S = arguments.budget
    OUT.mkdir(parents=True, exist_ok=True)
    if arguments.only:
        remember()
        part(*PARTS[arguments.only])
        os._exit(0)  # what a failed part left open goes with its process group
    for name in ("judge_gpu.log", "judge_gpu.json"):
        (OUT / name).unlink(missing_ok=True)
    for key in arguments.parts.split(","):
        part_in_a_process(key)
    say()
    say("done")


if __name__ == "__main__":
    main()
