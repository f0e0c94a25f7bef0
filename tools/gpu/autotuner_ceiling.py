"""Measure how much speed a policy could find: for held-out problems every tuning of the fused kernel, timed on the GPU.

Beside them stand eager PyTorch, `torch.compile`, and the four styles with fixed launch parameters. Kernels are compiled
in many processes first and timed in one afterwards. `--tiny-cpu` tries the script without a GPU, in Triton's
interpreter. The summary says which share of the best speed each of them reaches, and how much of it an autotuner gets
that tries so many tunings, drawn at random.

    python tools/gpu/autotuner_ceiling.py --out ceiling.json --budget 300
"""

import argparse
import json
import os
import random
import runpy
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import exp, log
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROUND = 10
"""Problems that are compiled together before they are timed."""
CHUNK = 6
"""Variants that one process compiles before it takes others."""
DRAWS = (1, 2, 4, 8, 16, 32)
"""Numbers of tunings of which an autotuner takes the best."""


def main() -> None:
    """Measure round by round until the budget is spent; write all that was measured after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--variants", type=int, default=48, help="tunings of a problem at most, drawn at random")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) - 2, 1))
    parser.add_argument("--budget", type=float, default=300.0, help="seconds; no round starts that might exceed it")
    parser.add_argument("--tiny-cpu", action="store_true")
    arguments = parser.parse_args()
    device = "cpu" if arguments.tiny_cpu else "cuda"
    began, slowest = time.monotonic(), 0.0
    problems = _problems(arguments.problems, "small" if arguments.tiny_cpu else "gpu", arguments.variants)
    measured: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool,
    ):
        for at in range(0, len(problems), ROUND):
            started = time.monotonic()
            if started - began + slowest > arguments.budget:
                break
            chosen = problems[at : at + ROUND]
            wrong = _compile_all(pool, chosen, Path(folder), device)
            compiled = time.monotonic()
            measured += [_time_problem(problem, Path(folder), device, wrong) for problem in chosen]
            slowest = max(slowest, time.monotonic() - started)
            print(f"{len(measured)} problems: compiled {compiled - started:.0f} s, timed", flush=True)
            arguments.out.write_text(json.dumps({"summary": summary(measured), "problems": measured}, indent=1))
    print(json.dumps(summary(measured), indent=1))


def summary(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return geometric means over the problems of speed-ups against eager, and shares of the best speed."""
    generator = random.Random(0)
    best = [min(problem["tunings"].values()) for problem in measured]
    names = [name for name in measured[0]["others"] if all(name in problem["others"] for problem in measured)]
    eager = [problem["others"]["eager"] for problem in measured]

    def mean(ratios: Sequence[float]) -> float:
        return round(exp(statistics.fmean(log(ratio) for ratio in ratios)), 3)

    def share_of(count: int) -> float:
        draws = [
            [min(generator.choices(list(problem["tunings"].values()), k=count)) for problem in measured]
            for _ in range(200)
        ]
        return mean([top / found for drawn in draws for top, found in zip(best, drawn, strict=True)])

    return {
        "problems": len(measured),
        "tunings": sum(len(problem["tunings"]) for problem in measured),
        "failed": sum(len(problem["failed"]) for problem in measured),
        "best_against_eager": mean([before / after for before, after in zip(eager, best, strict=True)]),
        "share_of_best": {
            name: mean([top / problem["others"][name] for top, problem in zip(best, measured, strict=True)])
            for name in names
        },
        "share_of_best_by_random_tunings": {str(count): share_of(count) for count in DRAWS},
    }


def _problems(count: int, sizes: Any, variants: int) -> list[dict[str, Any]]:
    """Return the held-out problems with the sources to measure, by name."""
    from tasks.problems.config import ProblemsConfig
    from tasks.problems.row import Split
    from tasks.problems.synthetic.composition import parse_composition
    from tasks.problems.synthetic.sources import FIXED_STYLES, Style, kernel_source
    from tasks.problems.synthetic.suite import columns_of, generate_problems
    from tasks.problems.synthetic.tuning import tunings

    generator = random.Random(0)
    found = []
    for row in generate_problems(ProblemsConfig(train=1, heldout=count, harder=0, sizes=sizes)):
        if row.split is not Split.HELDOUT:
            continue
        composition = parse_composition(row.composition or "")
        every = tunings(composition, columns_of(row.problem))
        drawn = generator.sample(every, min(variants, len(every)))
        sources = {f"style {style}": kernel_source(composition, style) for style in FIXED_STYLES}
        sources |= {
            json.dumps(tuning.model_dump(exclude_none=True)): kernel_source(composition, Style.FUSED, tuning=tuning)
            for tuning in drawn
        }
        found.append({"id": row.problem.problem_id, "source": row.problem.source, "kernels": sources})
    return found


def _compile_all(
    pool: ProcessPoolExecutor, problems: Sequence[dict[str, Any]], folder: Path, device: str
) -> dict[str, dict[str, str]]:
    """Run every kernel once, in many processes, so that it lies in Triton's cache; return what failed, by problem."""
    futures = {}
    for problem in problems:
        names = list(problem["kernels"])
        for at in range(0, len(names), CHUNK):
            part = {name: problem["kernels"][name] for name in names[at : at + CHUNK]}
            futures[pool.submit(_check, problem["source"], part, folder, device)] = problem["id"]
        futures[pool.submit(_check, problem["source"], {"compile": None}, folder, device)] = problem["id"]
    wrong: dict[str, dict[str, str]] = {}
    for future in as_completed(futures):
        wrong.setdefault(futures[future], {}).update(future.result())
    return wrong


def _check(problem_source: str, kernels: dict[str, str | None], folder: Path, device: str) -> dict[str, str]:
    """Run kernels (None: `torch.compile` of the problem) and compare with the problem; return what is wrong."""
    import torch

    model, inputs = _made(problem_source, folder, device)
    wanted = model(*inputs)
    wrong = {}
    for name, source in kernels.items():
        try:
            run = torch.compile(model) if source is None else _kernel(source, model, problem_source, folder, device)
            torch.testing.assert_close(run(*inputs), wanted, rtol=2e-3, atol=2e-3)
        except Exception as error:  # noqa: BLE001 - a kernel may fail in any way
            wrong[name] = f"{type(error).__name__}: {str(error)[:200]}"
    return wrong


def _time_problem(problem: dict[str, Any], folder: Path, device: str, wrong: dict[str, dict[str, str]]) -> Any:
    """Return milliseconds of every kernel of a problem that is right, and what failed."""
    import torch

    failed = dict(wrong.get(problem["id"], {}))
    model, inputs = _made(problem["source"], folder, device)
    others = {"eager": _milliseconds(lambda: model(*inputs), device)}
    tunings = {}
    if "compile" not in failed:
        compiled = torch.compile(model)
        others["compile"] = _milliseconds(lambda: compiled(*inputs), device)
    for name, source in problem["kernels"].items():
        if name not in failed:
            run = _kernel(source, model, problem["source"], folder, device)
            into = others if name.startswith("style") else tunings
            into[name] = _milliseconds(lambda run=run: run(*inputs), device)  # type: ignore[misc]
    torch.compiler.reset()
    return {"id": problem["id"], "others": others, "tunings": tunings, "failed": failed}


def _milliseconds(run: Callable[[], Any], device: str) -> float:
    """Return the median time of a call, the cache of the GPU emptied before each."""
    if device == "cpu":
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) * 1000
    from triton.testing import do_bench

    spent: Any = do_bench(run, warmup=4, rep=16, return_mode="median")
    return float(spent)


def _made(problem_source: str, folder: Path, device: str) -> tuple[Any, Any]:
    """Return the problem's model and its inputs on the device, the same in every process."""
    import torch

    module = _module(problem_source, folder)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    with torch.device(device):
        return module.Model(*module.get_init_inputs()), module.get_inputs()


def _kernel(source: str, model: Any, problem_source: str, folder: Path, device: str) -> Any:
    """Return `ModelNew` with the parameters of the problem's model."""
    import torch

    with torch.device(device):
        made = _module(source, folder).ModelNew(*_module(problem_source, folder).get_init_inputs())
    made.load_state_dict(model.state_dict())
    return made


def _module(source: str, folder: Path) -> Any:
    """Import a source from a file, which Triton needs to read it."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=folder, delete=False) as file:
        file.write(source)
    return SimpleNamespace(**runpy.run_path(file.name))


if __name__ == "__main__":
    main()
