"""Evaluations per minute of the judge and of one fresh process per kernel, and the latency of one verdict.

    python benchmarks/judge_throughput.py [--workers 1 2 4] [--rounds 3] [--kernelbench CHECKOUT]

Both sides get the same kernels, time limit, W workers and, by affinity, W cores: ratios, of wall and of CPU time, are
per core. Rounds alternate; median and spread are printed. The fresh process has every advantage: it imports only
torch and triton, runs a cheaper trial (rows cut as far as ours, no float64 oracle, no sandbox, no counting of traffic),
and an alarm set after the imports ends hanging kernels. It judges every `--peer-every`-th kernel of each kind.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from judge_mix import SHARES, Kind, Sample, mixed_kernels

from kernels_eval import Judge, JudgeConfig, Status
from kernels_eval.sandbox.limits import children_of

PRELUDE = """
import json, os, sys
job = json.load(sys.stdin)
os.environ["TRITON_INTERPRET"] = "1"
import linecache, signal, time, torch, triton
torch.set_num_threads(1)
def load(source, name):
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {"__name__": name}
    exec(compile(source, name, "exec"), namespace)
    return namespace
"""
PEER = """
signal.setitimer(signal.ITIMER_REAL, job["timeout_s"])
reference = load(job["problem"], "problem")
torch.manual_seed(0)
model = reference["Model"](*reference["get_init_inputs"]())
candidate = load(job["kernel"], "kernel")
torch.manual_seed(0)
new = candidate["ModelNew"](*reference["get_init_inputs"]())
right = True
with torch.no_grad():
    for trial in range(job["trials"]):
        torch.manual_seed(trial + 1)
        inputs = reference["get_inputs"]()
        rows = inputs[0].shape[0]
        inputs = [x[:job["rows"]].contiguous() if x.dim() and x.shape[0] == rows else x for x in inputs]
        expected, found = model(*inputs), new(*inputs)
        right = right and found.shape == expected.shape and torch.allclose(found, expected, atol=1e-4, rtol=1e-4)
print("correct" if right else "incorrect")
"""
KERNELBENCH = """
import json, sys
job = json.load(sys.stdin)
sys.path[:0] = [job["checkout"] + "/src", job["checkout"]]
import torch
assert torch.cuda.is_available(), "KernelBench's evaluation needs a GPU"
try:
    from kernelbench.eval import eval_kernel_against_ref
except ImportError:
    from src.eval import eval_kernel_against_ref
result = eval_kernel_against_ref(job["problem"], job["kernel"], num_correct_trials=job["trials"], num_perf_trials=100,
    measure_performance=True, backend="triton", device=torch.device("cuda:0"))
print("correct" if result and result.correctness else "incorrect")
"""
TIMED = """
seconds = []
for problem, kernel in job["pairs"]:
    reference = load(problem, "problem")
    with torch.no_grad():
        for repeat in range(2):
            spent = 0.0
            inputs = reference["get_inputs"]()
            count = inputs[0].shape[0]
            began = time.perf_counter()
            new = load(kernel, "kernel")["ModelNew"](*reference["get_init_inputs"]())
            spent += time.perf_counter() - began
            for rows in job["rows"]:
                cut = [x[:rows].contiguous() if x.dim() and x.shape[0] == count else x for x in inputs]
                began = time.perf_counter()
                new(*cut)
                spent += time.perf_counter() - began
        seconds.append(spent)
print(json.dumps(seconds))
"""
ROWS = 8
"""Leading size that the judge starts with."""
STATUSES = {
    Kind.HONEST: {Status.CORRECT},
    # A mistake may have no effect, or write past the end of a tensor.
    Kind.WRONG: {Status.INCORRECT, Status.CORRECT, Status.RUNTIME_ERROR},
    Kind.NOT_COMPILING: {Status.COMPILE_ERROR},
    Kind.HANGING: {Status.TIMEOUT},
}


def main() -> None:
    options = parse()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.kernels} kernels: ", end="")
    print(", ".join(f"{round(options.kernels * share)} {kind}" for kind, share in SHARES.items()), flush=True)
    if not options.latency_only:
        for workers in options.workers:
            measure(workers, options)
    measure_latency(options)
    if options.kernelbench:
        measure_kernelbench(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument(
        "--peer-every", type=int, default=10, help="the fresh process judges every n-th kernel of a kind"
    )
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds that a kernel may run")
    parser.add_argument("--latency-only", action="store_true")
    parser.add_argument("--kernelbench", type=Path, help="checkout whose eval_kernel_against_ref is measured too (GPU)")
    return parser.parse_args()


def measure(workers: int, options: argparse.Namespace) -> None:
    """Alternate rounds of ours and the fresh process on `workers` cores, and print the medians."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(everywhere)[:workers]))
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    try:
        config = JudgeConfig(workers=workers, compile="never", timeout_s=options.timeout)
        with Judge(config) as judge:
            warm = mixed_kernels(4 * workers, seed=10_000, shares={Kind.HONEST: 1.0})
            judge.evaluate_many([(sample.problem, sample.kernel) for sample in warm])
            for number in range(options.rounds):
                samples = mixed_kernels(options.kernels, seed=number)
                ours.append(our_round(judge, samples))
                theirs.append(their_round(samples, options.peer_every, workers, options.timeout))
    finally:
        os.sched_setaffinity(0, everywhere)
    for name in ("all", "without hanging"):
        mine, peers = [one[name] for one in ours], [one[name] for one in theirs]
        compare(f"{workers} workers on {workers} cores, {name}", mine, peers, "evaluations/min", mine, peers)
    for name in ("all", "without hanging"):
        mine, peers = ([1e3 * one[f"{name}: cpu_s"] for one in side] for side in (ours, theirs))
        compare(f"{workers} workers, {name}", mine, peers, "ms of CPU time an evaluation", peers, mine)


def compare(what: str, mine: list[float], peers: list[float], unit: str, over: list[float], under: list[float]) -> None:
    """Print both sides and the ratio `over` / `under` of the rounds."""
    ratios = spread([a / b for a, b in zip(over, under, strict=True)], 1)
    print(f"{what}: {spread(mine)} {unit}, fresh processes {spread(peers)}, ratio {ratios}", flush=True)


def our_round(judge: Judge, samples: list[Sample]) -> dict[str, float]:
    began, cpu = time.perf_counter(), cpu_s(os.getpid())
    verdicts = judge.evaluate_many([(sample.problem, sample.kernel) for sample in samples])
    seconds, spent = time.perf_counter() - began, cpu_s(os.getpid()) - cpu
    for sample, verdict in zip(samples, verdicts, strict=True):
        if verdict.status not in STATUSES[sample.kind]:
            print(f"  not as expected: {sample.kind}: {verdict.status}: {verdict.error_message}", flush=True)
    quick = [sample for sample in samples if sample.kind is not Kind.HANGING]
    began, cpu = time.perf_counter(), cpu_s(os.getpid())
    judge.evaluate_many([(sample.problem, sample.kernel + "# again\n") for sample in quick])
    return {
        "all": 60 * len(samples) / seconds,
        "without hanging": 60 * len(quick) / (time.perf_counter() - began),
        "all: cpu_s": spent / len(samples),
        "without hanging: cpu_s": (cpu_s(os.getpid()) - cpu) / len(quick),
    }


def cpu_s(process: int) -> float:
    """Return the CPU seconds of a process, of its reaped children, and of all its living children."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_s(child) for child in children_of(process))


def their_round(samples: list[Sample], every: int, workers: int, timeout_s: float) -> dict[str, float]:
    """Judge every n-th kernel of each kind in fresh processes; the kinds' shares give the time of the whole mix."""
    settings = {"trials": 2, "rows": ROWS, "timeout_s": timeout_s}
    seconds: dict[Kind, float] = {}
    spent: dict[Kind, float] = {}
    for kind in SHARES:
        mine = [sample for sample in samples if sample.kind is kind][::every]
        # A multiple of the workers: otherwise some would be idle at the end.
        mine = mine[: max(workers, len(mine) // workers * workers)]
        mine += mine[: -len(mine) % workers]
        jobs = [{**settings, "problem": sample.problem, "kernel": sample.kernel} for sample in mine]
        began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with ThreadPoolExecutor(workers) as pool:
            said = list(pool.map(lambda job: fresh_process(PRELUDE + PEER, job), jobs))
        seconds[kind] = (time.perf_counter() - began) / len(mine)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent[kind] = (after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime) / len(mine)
        if kind is Kind.HONEST and said.count("correct") < len(said):
            print(f"  fresh processes found {said.count('correct')} of {len(said)} honest kernels correct", flush=True)
    quick = {kind: share for kind, share in SHARES.items() if kind is not Kind.HANGING}
    return {
        "all": 60 / sum(seconds[kind] * share for kind, share in SHARES.items()),
        "without hanging": 60 * sum(quick.values()) / sum(seconds[kind] * share for kind, share in quick.items()),
        "all: cpu_s": sum(spent[kind] * share for kind, share in SHARES.items()),
        "without hanging: cpu_s": sum(spent[kind] * share for kind, share in quick.items()) / sum(quick.values()),
    }


def fresh_process(program: str, job: dict[str, object], folder: str | None = None) -> str:
    """Run one kernel in a fresh process; return the last line of its output, or of its error."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, env=environment, cwd=folder)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit {done.returncode}"


def measure_latency(options: argparse.Namespace) -> None:
    """Print the latency of single warm verdicts on known problems, and of the kernel's own run in a warm process."""
    samples = mixed_kernels(60, seed=77, shares={Kind.HONEST: 1.0}, problems=10)
    by_problem = random.Random(0).sample(samples, len(samples))
    pairs = [(one.problem, one.kernel) for one in by_problem]
    own = json.loads(fresh_process(PRELUDE + TIMED, {"pairs": pairs, "rows": [ROWS, 2 * ROWS]}))
    for compile_ in ("never", "correct"):
        latencies: list[float] = []
        with Judge(JudgeConfig(workers=1, compile=compile_, timeout_s=options.timeout)) as judge:
            for extra in ("# warm\n", ""):  # the first pass builds references and compiles; texts differ
                latencies = []
                for one in by_problem:
                    began = time.perf_counter()
                    judge.evaluate(one.problem, one.kernel + extra)
                    latencies.append(time.perf_counter() - began)
        over = [1e3 * (latency - run) for latency, run in zip(latencies, own, strict=True)]
        what = "" if compile_ == "never" else ", compilation of the kernel found in the cache"
        print(
            f"latency of one warm verdict{what}: median {1e3 * statistics.median(latencies):.0f} ms, "
            f"the kernel's own run {1e3 * statistics.median(own):.0f} ms, over it {statistics.median(over):.0f} ms "
            f"(90 % below {statistics.quantiles(over, n=10)[-1]:.0f} ms)",
            flush=True,
        )


def measure_kernelbench(options: argparse.Namespace) -> None:
    """Compare with KernelBench's evaluation on the device, in a process per kernel as its scripts do."""
    samples = [one for one in mixed_kernels(20, seed=5) if one.kind is not Kind.HANGING]
    checkout = str(options.kernelbench.resolve())
    jobs = [{"problem": one.problem, "kernel": one.kernel, "trials": 5, "checkout": checkout} for one in samples]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        said = [fresh_process(KERNELBENCH, job, folder) for job in jobs]
        theirs = time.perf_counter() - began
    if not any(answer in ("correct", "incorrect") for answer in said):
        print(f"KernelBench: not measured: {said[0]}")
        return
    with Judge(JudgeConfig(workers=1, device="cuda", timeout_s=30.0)) as judge:
        judge.evaluate(samples[0].problem, samples[0].kernel + "# warm\n")
        began = time.perf_counter()
        judge.evaluate_many([(one.problem, one.kernel) for one in samples])
        ours = time.perf_counter() - began
    print(
        f"on a device: {60 * len(samples) / ours:.0f} evaluations/min, KernelBench {60 * len(samples) / theirs:.1f}, "
        f"ratio {theirs / ours:.1f} ({said.count('correct')} of {len(said)} correct by KernelBench)"
    )


def spread(values: list[float], digits: int = 0) -> str:
    """Return median and range as text."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f} … {max(values):.{digits}f}]"


if __name__ == "__main__":
    main()
