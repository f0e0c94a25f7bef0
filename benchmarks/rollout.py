"""Rollouts on a CPU: tokens generated per second against TRL's GRPO trainer, and judging hidden behind generation.

    python benchmarks/rollout.py [--repeats 7] [--threads 2] [--json FILE] [--only generation|overlap] [--workload NAME]

**Generation.** The embedded engine and `trl.GRPOTrainer`'s own generation (`_generate_single_turn`) get the same model,
prompts as token ids, sampling (T = 1, top-p 1, top-k off), limit and batch size, in one process, alternated. Tokens
count up to and including the end-of-turn token. The engine also returns log-probabilities; TRL computes those later,
which is not counted. Ratios are of wall and of CPU time. Workloads: `full` never ends early (random weights,
2 prompts × 8 samples, 128 tokens); `instruct` is the same with 8 prompts of full instructions; `trained` is a policy
that has learnt to answer (64 problems of the bundled suite × 8 samples, up to 120 tokens), in different lengths.

**Overlap.** A real rollout of the trained policy with the real judge, three turns; then the same rollout with recorded
verdicts (generation alone), and the same kernels judged all at once (judging alone). `hidden` is the share of judging
that costs the rollout no time: 1 − (rollout − generation alone) / judging alone. It is 0 if one follows the other, and
at most `possible`, min(1, generation alone / judging alone). It is lower if both compete for the same cores.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from peers import require_peers
from rollout_workloads import EPISODE, PROBLEMS, Workload, make_workloads

from kernels_eval import Judge
from kernels_eval.config import JudgeConfig
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import Split
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines import GenerationRequest, stop_tokens
from tasks.rollout.engines.local.engine import TransformersEngine
from tasks.rollout.episode_loop import RolloutCounts
from tasks.rollout.worker import RolloutRequest, roll_out
from tasks.trajectories.reader import read_turns


class Ours:
    """The embedded engine."""

    name = "kernelmill"

    def __init__(self, work: Workload) -> None:
        stops = frozenset[int]() if work.endless else stop_tokens(work.model.generation_config, work.tokenizer)
        self.work = work
        self.engine = TransformersEngine(work.model, stops, work.batch_size)

    def generate(self, seed: int) -> int:
        """Return the number of generated tokens."""
        requests = [
            GenerationRequest(str(place), prompt, seed=1_000_003 * seed + place)
            for place, prompt in enumerate(self.work.repeated)
        ]

        async def drain() -> int:
            answers = self.engine.generate(requests, self.work.sampling)
            return sum([len(answer.token_ids) async for _, answer in answers])

        return asyncio.run(drain())


class Trl:
    """GRPOTrainer's generation."""

    name = "trl"

    def __init__(self, work: Workload, folder: Path) -> None:
        import datasets
        from trl import GRPOConfig, GRPOTrainer

        self.work = work
        arguments = GRPOConfig(
            output_dir=str(folder / f"trl-{work.name}"),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=work.batch_size,
            num_generations=work.samples,
            max_completion_length=work.max_new_tokens,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            report_to=[],
            generation_kwargs={"eos_token_id": None} if work.endless else None,
        )
        self.trainer = GRPOTrainer(
            model=work.model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=datasets.Dataset.from_list([{"prompt": "x"}] * work.batch_size),
            processing_class=work.tokenizer,
        )
        if work.endless:
            self.trainer.eos_token_ids = [-1]  # nothing ends early
        work.model.eval()

    def generate(self, seed: int) -> int:
        """Return the number of generated tokens, up to and including the end of each turn."""
        torch.manual_seed(seed)
        prompts, size = [list(prompt) for prompt in self.work.repeated], self.work.batch_size
        total = 0
        for start in range(0, len(prompts), size):
            answers, _ = self.trainer._generate_single_turn(prompts[start : start + size], None, {}, self.work.samples)
            total += sum(map(len, answers))
        return total


def measure_generation(work: Workload, repeats: int, folder: Path) -> dict[str, Any]:
    """Return tokens per second of both sides, alternated, and the median ratio of the pairs."""
    with redirect_stdout(StringIO()):
        sides = [Ours(work), Trl(work, folder)]
    rates, costs, counts = ({side.name: list[float]() for side in sides} for _ in range(3))
    for repeat in range(-1, repeats):  # the first pair warms up
        for side in sides if repeat % 2 else reversed(sides):
            began, began_cpu = time.perf_counter(), time.process_time()
            tokens = side.generate(repeat + 1)
            rate, cost = tokens / (time.perf_counter() - began), (time.process_time() - began_cpu) / tokens
            if repeat >= 0:
                rates[side.name].append(rate)
                costs[side.name].append(cost)
                counts[side.name].append(tokens)
    ratios = [ours / theirs for ours, theirs in zip(rates["kernelmill"], rates["trl"], strict=True)]
    cpu_ratios = [theirs / ours for ours, theirs in zip(costs["kernelmill"], costs["trl"], strict=True)]
    return {
        "workload": work.name,
        "parameters": sum(parameter.numel() for parameter in work.model.parameters()),
        "sequences": len(work.repeated),
        "batch_size": work.batch_size,
        "max_new_tokens": work.max_new_tokens,
        **{f"{name}_tokens_per_s": statistics.median(values) for name, values in rates.items()},
        **{f"{name}_tokens_a_sequence": statistics.mean(found) / len(work.repeated) for name, found in counts.items()},
        "prompt_tokens": statistics.mean(map(len, work.prompts)),
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "cpu_ratio": statistics.median(cpu_ratios),
        "cpu_ratios": [round(ratio, 3) for ratio in cpu_ratios],
    }


class RecordingJudge:
    """Judge that records kernels and verdicts."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.calls: list[tuple[Problem, str]] = []
        self.verdicts: dict[tuple[str, str], Verdict] = {}

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        self.calls.append((problem, kernel_source))
        verdict = await self.judge.evaluate_async(problem, kernel_source)
        self.verdicts[problem.digest, kernel_source] = verdict
        return verdict


class RecordedJudge:
    """Judge that returns recorded verdicts at once."""

    def __init__(self, verdicts: dict[tuple[str, str], Verdict]) -> None:
        self.verdicts = verdicts

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        return self.verdicts[problem.digest, kernel_source]


@contextmanager
def fresh_judge(config: JudgeConfig, problem: Problem) -> Generator[Judge]:
    """Yield a judge with started workers and an empty cache."""
    with Judge(config) as judge:
        judge.evaluate(problem, "class ModelNew: ...")
        yield judge


def measure_overlap(work: Workload, repeats: int, folder: Path) -> dict[str, Any]:
    """Return the share of the judge's time that a real rollout hides; no verdict is cached between rounds."""
    problems = build_problem_set(PROBLEMS, folder / "problems")
    first = read_problems(problems)[0].problem
    walls: list[dict[str, float]] = []
    config = RolloutConfig(
        problems_per_iteration=64, samples_per_problem=8, batch_size=256, sampling=work.sampling, episode=EPISODE
    )
    judge_config = JudgeConfig(workers=2, compile="never")
    turns = 0

    def play(judge: Any, number: int, name: str) -> tuple[float, TrajectoryBatchRef]:
        request = RolloutRequest(
            policy=CheckpointRef(uri=str(folder), digest="benchmark"), problems=problems, split=Split.TRAIN,
            config=config, judge=judge_config, run_id="benchmark", iteration=number, seed=number,
            destination=folder / f"{name}-{number}",
        )  # fmt: skip
        engine = TransformersEngine(
            work.model, stop_tokens(work.model.generation_config, work.tokenizer), config.batch_size
        )
        began = time.perf_counter()
        batch = asyncio.run(roll_out(request, engine, work.tokenizer, judge, RolloutCounts()))
        return time.perf_counter() - began, batch

    async def judge_all(judge: Judge, calls: Sequence[tuple[Problem, str]]) -> None:
        await asyncio.gather(*(judge.evaluate_async(problem, kernel) for problem, kernel in calls))

    for number in range(repeats):
        with fresh_judge(judge_config, first) as judge:
            recording = RecordingJudge(judge)
            rollout_s, batch = play(recording, number, "rollout")
        generation_s, again = play(RecordedJudge(recording.verdicts), number, "generation")
        with fresh_judge(judge_config, first) as judge:
            began = time.perf_counter()
            asyncio.run(judge_all(judge, recording.calls))
            judging_s = time.perf_counter() - began
        rows, same = (read_turns(each)["response_token_ids"].to_list() for each in (batch, again))
        assert rows == same, "generation alone has generated something else"
        turns = len(rows)
        walls.append({"rollout_s": rollout_s, "generation_s": generation_s, "judging_s": judging_s})
    hidden = [1 - (wall["rollout_s"] - wall["generation_s"]) / wall["judging_s"] for wall in walls]
    return {
        "hidden": statistics.median(hidden),
        "possible": statistics.median(min(1.0, wall["generation_s"] / wall["judging_s"]) for wall in walls),
        **{name: statistics.median(wall[name] for wall in walls) for name in walls[0]},
        "turns": turns,
        "judged": len(recording.calls),
        "rounds": [round(share, 3) for share in hidden],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sft-steps", type=int, default=250)
    parser.add_argument("--only", choices=("generation", "overlap"))
    parser.add_argument("--workload", choices=("full", "instruct", "trained"), help="generate for this one only")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.only != "overlap":
        require_peers("trl", "datasets")
    torch.set_num_threads(arguments.threads)
    results: dict[str, Any] = {"threads": arguments.threads, "torch": torch.__version__, "generation": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        needs_policy = arguments.only != "generation" or arguments.workload in (None, "trained")
        works = make_workloads(folder, arguments.sft_steps if needs_policy else 0)
        if arguments.only != "overlap":
            for work in works:
                if arguments.workload not in (None, work.name):
                    continue
                results["generation"].append(measure_generation(work, arguments.repeats, folder))
                print("generation:", json.dumps(results["generation"][-1]), flush=True)
        if arguments.only != "generation":
            results["overlap"] = measure_overlap(works[-1], max(arguments.repeats // 2, 1), folder)
            print("overlap:", json.dumps(results["overlap"]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
