"""Judge the generated CUDA C++ corpus on a GPU: which share is right, seconds of a build and of a verdict, speed by style.

Kernels are drawn as SFT draws them, one composition after the other in every style that suits it, built by nvcc through
the judge and run. The file is written again after each round, so that what was measured stays if the time ends.
`--no-gpu` tries the script on a machine without a GPU: kernels are compiled and none is run.

    python tools/gpu/cuda_corpus_on_gpu.py --out cuda_corpus.json --budget 300
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from kernels_eval import Judge, JudgeConfig, Problem
from kernels_eval.compile import slim_builds
from kernels_eval.compile.extension import Extension
from kernels_eval.compile.nvcc import build_library, compile_device_code
from kernels_eval.compile.slim_builds import build_slim_library, prepare_slim_builds
from tasks.problems.config import ProblemsConfig
from tasks.problems.synthetic.cuda.sources import cuda_source
from tasks.problems.synthetic.cuda.styles import styles_of
from tasks.problems.synthetic.suite import draw_shape, draw_training_compositions, problem_of

REASONS = 12
"""Failures that are kept with their message."""


def main() -> None:
    """Measure builds first, then judge round by round until the budget is spent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "cuda_corpus.json")
    parser.add_argument("--pairs", type=int, default=400, help="kernels to judge at most")
    parser.add_argument("--workers", type=int, default=4, help="kernels judged at the same time")
    parser.add_argument("--memory", type=float, default=24.0, help="GB of the GPU for the judge")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds; no round starts that might exceed it")
    parser.add_argument(
        "--load-inline", action="store_true", help="time one build as load_inline makes it, too: a minute"
    )
    parser.add_argument("--no-gpu", action="store_true")
    arguments = parser.parse_args()
    began, slowest = time.monotonic(), 0.0
    pairs = draw_pairs(arguments.pairs, "small" if arguments.no_gpu else "gpu")
    found: dict[str, Any] = {"builds": time_builds(pairs[0][2], arguments.no_gpu, arguments.load_inline), "judged": []}
    print(f"builds: {json.dumps(found['builds'])}", flush=True)
    device = "cpu" if arguments.no_gpu else "cuda"
    memory = {} if arguments.no_gpu else {"device_memory_gb": arguments.memory}
    settings = {"backend": "cuda", "device": device, "workers": arguments.workers, "compile_timeout_s": 120.0, **memory}
    with Judge(JudgeConfig.model_validate(settings)) as judge:
        for at in range(0, len(pairs), 4 * arguments.workers):
            started = time.monotonic()
            if started - began + slowest > arguments.budget:
                break
            chosen = pairs[at : at + 4 * arguments.workers]
            verdicts = judge.evaluate_many([(problem, source) for _, problem, source in chosen])
            spent = time.monotonic() - started
            slowest = max(slowest, spent)
            found["judged"] += [
                {"style": style, "problem": problem.problem_id, **_outcome(verdict)}
                for (style, problem, _), verdict in zip(chosen, verdicts, strict=True)
            ]
            found["seconds_judging"] = round(found.get("seconds_judging", 0.0) + spent, 1)
            found["summary"] = summary(found["judged"], found["seconds_judging"])
            arguments.out.write_text(json.dumps(found, indent=1))
            print(f"{len(found['judged'])} kernels, {spent:.1f} s: {json.dumps(found['summary']['all'])}", flush=True)
    print(json.dumps(found.get("summary"), indent=1), flush=True)


def draw_pairs(count: int, sizes: Any) -> list[tuple[str, Problem, str]]:
    """Return (style, problem, kernel) of training compositions, every style of one after the other."""
    config = ProblemsConfig(train=1, heldout=8, harder=0, sizes=sizes)
    generator = random.Random(0)
    found: list[tuple[str, Problem, str]] = []
    for composition in draw_training_compositions(config, max(count // 5, 1), seed=0):
        problem = problem_of(composition, draw_shape(composition, generator, sizes=sizes))
        found += [(style, problem, cuda_source(composition, style)) for style in styles_of(composition)]
    return found[:count]


def time_builds(source: str, no_gpu: bool, load_inline: bool) -> dict[str, float]:
    """Return seconds of one build outside the judge: without PyTorch's headers, and as `load_inline` makes it."""
    code = source.split('"""')[1]
    declaration = source.split('declaration = "')[1].split('"')[0]
    extension = Extension.of("generated", declaration, code, ["forward"])
    seconds: dict[str, float] = {}
    prepare_slim_builds()

    def timed(name: str, call: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            if call(extension, Path(folder)) is None:
                raise SystemExit(f"{name}: the generated source needs PyTorch's headers")
            seconds[name] = round(time.monotonic() - started, 2)

    timed("library", lambda extension, folder: build_slim_library(extension, folder, ["cuda:90"]))
    timed("device code", lambda extension, folder: compile_device_code(extension, folder, "cuda:90"))
    if load_inline and not no_gpu:
        kept = slim_builds.slim_signatures
        slim_builds.slim_signatures = lambda _: None
        timed("load_inline", lambda extension, folder: build_library(extension, folder, ["cuda:90"]))
        slim_builds.slim_signatures = kept
    return seconds


def _outcome(verdict: Any) -> dict[str, Any]:
    return {
        "status": verdict.status.value,
        "compiled": verdict.compiled,
        "correct": verdict.correct,
        "category": verdict.rejection_reason or verdict.error_category,
        "message": (verdict.error_message or "")[:300],
        "speedup": verdict.speedup,
        "candidate_ms": verdict.candidate_ms,
    }


def summary(judged: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return shares and geometric means of all and of each style, and what went wrong."""
    of_style = {
        style: [one for one in judged if one["style"] == style] for style in sorted({j["style"] for j in judged})
    }
    wrong = [one for one in judged if not one["correct"]]
    return {
        "all": {**_figures(judged), "seconds_a_kernel": round(seconds / len(judged), 2)},
        "styles": {style: _figures(ones) for style, ones in of_style.items()},
        "wrong": [{name: one[name] for name in ("style", "problem", "category", "message")} for one in wrong[:REASONS]],
    }


def _figures(ones: Sequence[dict[str, Any]]) -> dict[str, Any]:
    speeds = [one["speedup"] for one in ones if one["correct"] and one["speedup"]]
    return {
        "kernels": len(ones),
        "compiled": round(sum(one["compiled"] for one in ones) / len(ones), 4),
        "correct": round(sum(one["correct"] for one in ones) / len(ones), 4),
        "speedup": round(exp(statistics.fmean(map(log, speeds))), 3) if speeds else None,
    }


if __name__ == "__main__":
    main()
