"""CPU time of a verdict on correct kernels for held-out problems, by what the judge is asked to do with them.

    python benchmarks/judge_parts.py [--kernels 126] [--config deployments/configs/local.yaml]

One worker judges the same kernels, of the bundled suite's held-out problems in styles drawn at random: at reduced sizes
only (as in most rollouts); with one run at the full size; compiled; both (as in held-out evaluation, but with machine
code that is known by then); and both once more, where every verdict is found in the cache. CPU seconds are those of all
the judge's processes. Other work on the cores changes them too: compare runs on one machine, beside each other.
"""

import argparse
import os
import random
import tempfile

from judge_throughput import cpu_s

from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import Judge, JudgeConfig, Problem
from tasks.problems.row import Split
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import FIXED_STYLES, kernel_source
from tasks.problems.synthetic.suite import generate_problems

WARM_UP = 3
MODES = {
    "reduced sizes": {"compile": "never", "full_size_share": 0.0},
    "and the full size": {"compile": "never", "full_size_share": 1.0},
    "and compiled": {"compile": "correct", "compile_share": 1.0, "full_size_share": 0.0},
    "both, machine code known": {"compile": "correct", "compile_share": 1.0, "full_size_share": 1.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=126)
    parser.add_argument("--config", default="deployments/configs/local.yaml")
    options = parser.parse_args()
    config = load_configuration(options.config)
    kernels = heldout_kernels(config, options.kernels)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {len(kernels)} kernels; ms of CPU time a verdict:")
    with tempfile.TemporaryDirectory() as cache:
        judging = JudgeConfig.model_validate(config.judge.model_dump() | {"workers": 1, "cache_dir": cache})
        with Judge(judging) as judge:
            for name, changes in MODES.items():
                print(f"  {name}: {milliseconds(judge, kernels, changes):.0f}", flush=True)
        with Judge(judging) as judge:
            settings = MODES["both, machine code known"]
            print(f"  verdict from the cache: {milliseconds(judge, kernels, settings):.1f}", flush=True)


def heldout_kernels(config: RunConfig, count: int) -> list[tuple[Problem, str]]:
    """Return different kernels, over all held-out problems in turn."""
    generator = random.Random(0)
    rows = [row for row in generate_problems(config.problems) if row.split is Split.HELDOUT]
    found: list[tuple[Problem, str]] = []
    for number in range(count):
        row = rows[number % len(rows)]
        source = kernel_source(parse_composition(row.composition), generator.choice(FIXED_STYLES))
        found.append((row.problem, f"{source}# {number}\n"))
    return found


def milliseconds(judge: Judge, kernels: list[tuple[Problem, str]], settings: dict[str, object]) -> float:
    """Return the CPU time of a verdict on average, of warm processes."""
    for problem, kernel in kernels[:WARM_UP]:
        judge.submit(problem, f"{kernel}# warm\n", settings=settings).result()
    before = cpu_s(os.getpid())
    futures = [judge.submit(problem, kernel, settings=settings) for problem, kernel in kernels]
    wrong = sum(not future.result().correct for future in futures)
    spent = cpu_s(os.getpid()) - before
    if wrong:
        print(f"  {wrong} kernels were not found correct", flush=True)
    return 1e3 * spent / len(kernels)


if __name__ == "__main__":
    main()
