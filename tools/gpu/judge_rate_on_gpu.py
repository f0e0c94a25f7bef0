"""Verdicts a minute of a judge on a GPU, on kernels such as a policy writes: all different, two in five with a mistake.

    python3 tools/gpu/judge_rate_on_gpu.py [--workers 8] [--memory 44] [--kernels 300] [--ahead]

Compositions, shapes (10 us to 1 ms), styles and tunings as in the corpus for SFT. The first kernels, two for each
worker, are not counted: they start the workers' processes. Prints one line of JSON: the rate, numbers by status, and
seconds of a verdict by phase, and for which it had the device or waited for it. Needs what kernels_eval needs.
`--device cpu` rehearses it.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from kernels_eval import Judge, JudgeConfig, Problem  # noqa: E402
from tasks.problems.config import ProblemsConfig  # noqa: E402
from tasks.problems.synthetic.sources import Style, kernel_source  # noqa: E402
from tasks.problems.synthetic.suite import draw_shape, draw_training_compositions, problem_of  # noqa: E402
from tasks.problems.synthetic.tuning import draw_tuning  # noqa: E402

MISTAKES = 0.4


def draw_kernels(count: int, sizes: Any) -> list[tuple[Problem, str]]:
    """Return problems with a kernel each; some problems come several times, no kernel does."""
    config = ProblemsConfig(train=1, heldout=8, harder=0, sizes=sizes)
    generator = random.Random(0)
    found: dict[str, tuple[Problem, str]] = {}
    for composition in draw_training_compositions(config, max(count // 3, 1), seed=0):
        shape = draw_shape(composition, generator, sizes=sizes)
        problem = problem_of(composition, shape)
        for style in (Style.FUSED, Style.SMALL_BLOCKS, Style.STEPWISE, Style.FUSED):
            wrong = [generator.choice(composition.names)] if generator.random() < MISTAKES else []
            tuning = draw_tuning(composition, shape.columns, generator)
            kernel = kernel_source(composition, style, wrong, tuning)
            found.setdefault(problem.source + kernel, (problem, kernel))
    kernels = list(found.values())
    generator.shuffle(kernels)
    return kernels[:count]


def seconds_of(judge: Judge) -> Counter[str]:
    """Return the seconds of all workers' verdicts until now, by phase, and for which they had or awaited the device."""
    found = Counter[str]()
    for report in judge.statuses.workers():
        found.update(report.phases_s)  # pyright: ignore[reportArgumentType]
        device = {f"device {name}": seconds for name, seconds in report.device_s.items()}
        found.update(device)  # pyright: ignore[reportArgumentType]
    return found


def main() -> None:
    """Judge them, as many at a time as there are workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--memory", type=float, default=44.0, help="GB of the GPU for the judge")
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--ahead", action="store_true", help="compile kernels while they wait (judge.compile_ahead)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    on_gpu = given.device == "cuda"
    first = 2 * given.workers
    kernels = draw_kernels(first + given.kernels, "gpu" if on_gpu else "small")
    memory = {"device_memory_gb": given.memory} if on_gpu else {}
    settings = {"device": given.device, "workers": given.workers, "compile_ahead": given.ahead, **memory}
    with Judge(JudgeConfig.model_validate(settings)) as judge:
        judge.evaluate_many(kernels[:first])
        before = seconds_of(judge)
        began = time.perf_counter()
        verdicts = judge.evaluate_many(kernels[first:])
        spent = time.perf_counter() - began
        after = seconds_of(judge)
    found = {
        "kernels": len(verdicts),
        "workers": given.workers,
        "compiled ahead": given.ahead,
        "verdicts a minute": round(60 * len(verdicts) / spent, 1),
        "statuses": Counter(verdict.status.value for verdict in verdicts),
        "seconds of a verdict": {name: round((after[name] - before[name]) / len(verdicts), 3) for name in after},
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
