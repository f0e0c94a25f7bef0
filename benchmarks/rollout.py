"""Rollouts on a CPU: generated tokens a second against TRL's GRPO trainer, and how much judging hides behind generation.

    python benchmarks/rollout.py [--repeats 7] [--threads 2] [--json FILE] [--only generation|overlap] [--workload NAME]

**Generation.** The embedded engine and `trl.GRPOTrainer`'s own generation (its transformers path, `_generate_single_turn`) get the
same model, the same prompts as token ids, the same sampling (T = 1, top-p 1, top-k off), the same limit and the same batch
size, in one process, alternated; the order within a pair changes from pair to pair. A token counts up to and including the
end-of-turn token. The engine also returns the log-probability of each token; TRL computes those later, in a forward pass
that is not counted here. `ratio` is of wall time; the ratio of CPU time a token stands beside it, which other work on the machine
disturbs less. Workloads: `full` never ends early (random weights, 2 prompts × 8 samples, 128 tokens); `instruct`
is the same with 8 prompts of full instructions, as pretrained models get them; `trained` is a policy
that has learnt to answer (64 problems of the bundled suite × 8 samples, up to 120 tokens), whose answers differ in length.

**Overlap.** A real rollout of the trained policy with the real judge, three turns. `hidden` is the share of the time in which a
verdict was being waited for while the engine generated: 1 − (judging and nothing else) / (judging). `gain` is the time that
generation and judging took, each counted alone, over the time that the rollout took.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

from kernels_eval import Judge
from kernels_eval.config import JudgeConfig
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.models.chat import encode_conversation, encode_prompt
from tasks.models.config import ModelConfig
from tasks.models.messages import Message, Role
from tasks.models.policy import new_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import Split
from tasks.references import CheckpointRef
from tasks.rollout.config import EpisodeConfig, RolloutConfig, SamplingConfig
from tasks.rollout.engines.base import Generation, GenerationRequest
from tasks.rollout.engines.transformers import TransformersEngine, stop_tokens
from tasks.rollout.prompts import answer_text, prompt_messages
from tasks.rollout.worker import RolloutRequest, roll_out
from tasks.sft.config import SftDataConfig
from tasks.sft.corpus import generate_drafts
from tasks.trajectories.reader import read_turns

PROBLEMS = ProblemsConfig(train=64, heldout=8)
EPISODE = EpisodeConfig(prompt="source", feedback="brief", max_turns=3)
MODEL = ModelConfig(vocabulary=2048, layers=2, hidden=128, intermediate=384, heads=4, key_value_heads=2, head_dim=32)
"""The model of deployments/configs/local.yaml."""
LARGER = ModelConfig(vocabulary=2048, layers=6, hidden=256, intermediate=768, heads=4, key_value_heads=2, head_dim=64)
"""5.2 million parameters."""


@dataclass(frozen=True)
class Workload:
    """Prompts for both sides."""

    name: str
    model: Any
    tokenizer: Any
    prompts: Sequence[tuple[int, ...]]
    samples: int
    max_new_tokens: int
    batch_size: int

    @property
    def endless(self) -> bool:
        """No token ends an answer: every sequence has the full length."""
        return self.name != "trained"

    @property
    def sampling(self) -> SamplingConfig:
        return SamplingConfig(max_new_tokens=self.max_new_tokens)

    @property
    def repeated(self) -> list[tuple[int, ...]]:
        return [prompt for prompt in self.prompts for _ in range(self.samples)]


def make_workloads(folder: Path, sft_steps: int) -> list[Workload]:
    """Return the workloads; the tokenizer and the trained policy are made here."""
    drafts = generate_drafts(SftDataConfig(compositions=200, styles_per_composition=2, repair_fraction=0), PROBLEMS, 0)
    pairs = [(draft.problem.source, answer_text(draft.kernel)) for draft in drafts]
    tokenizer = train_tokenizer((text for pair in pairs for text in pair), MODEL.vocabulary, folder / "tokenizer")
    trained = new_policy(MODEL, tokenizer, seed=0)
    if sft_steps:
        teach(trained, tokenizer, pairs, sft_steps)
    asked = [tuple(encode_prompt(tokenizer, prompt_messages(source, [], EPISODE))) for source, _ in pairs[:128:2]]
    instructed = [
        tuple(encode_prompt(tokenizer, prompt_messages(source, [], EpisodeConfig()))) for source, _ in pairs[:16:2]
    ]
    random_weights = new_policy(LARGER, tokenizer, seed=0).eval()
    return [
        Workload("full", random_weights, tokenizer, asked[:2], samples=8, max_new_tokens=128, batch_size=16),
        Workload("instruct", random_weights, tokenizer, instructed, samples=8, max_new_tokens=128, batch_size=64),
        Workload("trained", trained.eval(), tokenizer, asked, samples=8, max_new_tokens=120, batch_size=256),
    ]


def teach(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], steps: int) -> None:
    """Supervised fine-tuning in a few lines: long enough for answers that end by themselves."""
    encoded = [
        encode_conversation(
            tokenizer,
            [Message(role=Role.USER, content=source), Message(role=Role.ASSISTANT, content=answer, trained=True)],
        )
        for source, answer in pairs
    ]
    generator = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps + 1)
    for _ in range(steps):
        batch = generator.sample(encoded, 32)
        width = max(len(item.token_ids) for item in batch)
        ids, labels = torch.zeros((32, width), dtype=torch.long), torch.full((32, width), -100)
        for row, item in enumerate(batch):
            tokens, mask = torch.tensor(item.token_ids), torch.tensor(item.loss_mask)
            ids[row, : len(tokens)] = tokens
            labels[row, : len(tokens)] = torch.where(mask, tokens, -100)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


class Ours:
    """The embedded engine."""

    name = "kernelmill"

    def __init__(self, work: Workload) -> None:
        stops = frozenset[int]() if work.endless else stop_tokens(work.model, work.tokenizer)
        self.work = work
        self.engine = TransformersEngine(work.model, stops, work.batch_size)

    def generate(self, seed: int) -> int:
        """Return how many tokens were generated."""
        requests = [
            GenerationRequest(str(place), prompt, seed=1_000_003 * seed + place)
            for place, prompt in enumerate(self.work.repeated)
        ]

        async def drain() -> int:
            return sum(
                [len(answer.token_ids) async for _, answer in self.engine.generate(requests, self.work.sampling)]
            )

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
        """Return how many tokens were generated, up to and including the end of each turn."""
        torch.manual_seed(seed)
        prompts, size = [list(prompt) for prompt in self.work.repeated], self.work.batch_size
        total = 0
        for start in range(0, len(prompts), size):
            answers, _ = self.trainer._generate_single_turn(prompts[start : start + size], None, {}, self.work.samples)
            total += sum(map(len, answers))
        return total


def measure_generation(work: Workload, repeats: int, folder: Path) -> dict[str, Any]:
    """Return tokens a second of both sides, alternated, and the median of the ratios of the pairs."""
    with redirect_stdout(StringIO()):
        sides = [Ours(work), Trl(work, folder)]
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    costs: dict[str, list[float]] = {side.name: [] for side in sides}
    counts: dict[str, list[int]] = {side.name: [] for side in sides}
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
    parameters = sum(parameter.numel() for parameter in work.model.parameters())
    return {
        "workload": work.name,
        "parameters": parameters,
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


@dataclass
class Clock:
    """Intervals in which something was under way."""

    intervals: list[tuple[float, float]] = field(default_factory=list)

    def covered(self) -> list[tuple[float, float]]:
        """Return the union, as disjoint intervals in order."""
        union: list[tuple[float, float]] = []
        for begin, end in sorted(self.intervals):
            if union and begin <= union[-1][1]:
                union[-1] = (union[-1][0], max(end, union[-1][1]))
            else:
                union.append((begin, end))
        return union


def seconds(intervals: Sequence[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in intervals)


def common(first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]) -> float:
    """Return the seconds that two unions share."""
    return sum(
        max(0.0, min(end, other_end) - max(begin, other_begin))
        for begin, end in first
        for other_begin, other_end in second
    )


class TimedEngine:
    """An engine that notes when it generates."""

    def __init__(self, engine: TransformersEngine) -> None:
        self.engine, self.clock = engine, Clock()
        self.context_tokens, self.cohort_size = engine.context_tokens, engine.cohort_size

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        began = time.perf_counter()
        try:
            async for item in self.engine.generate(requests, sampling):
                yield item
        finally:
            self.clock.intervals.append((began, time.perf_counter()))

    async def close(self) -> None:
        await self.engine.close()


class TimedJudge:
    """A judge that notes when somebody waits for it."""

    def __init__(self, judge: Judge) -> None:
        self.judge, self.clock = judge, Clock()

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        began = time.perf_counter()
        try:
            return await self.judge.evaluate_async(problem, kernel_source)
        finally:
            self.clock.intervals.append((began, time.perf_counter()))


def measure_overlap(work: Workload, repeats: int, folder: Path) -> dict[str, Any]:
    """Return how much of the judge's time a real rollout hides; no verdict is cached between repeats."""
    problems = build_problem_set(PROBLEMS, folder / "problems")
    hidden, gains, walls, turns = [], [], [], 0
    for repeat in range(repeats):
        config = RolloutConfig(
            problems_per_iteration=64, samples_per_problem=8, batch_size=256, sampling=work.sampling, episode=EPISODE
        )
        request = RolloutRequest(
            policy=CheckpointRef(uri=str(folder), digest="benchmark"), problems=problems, split=Split.TRAIN, config=config,
            judge=JudgeConfig(workers=2, compile="never"), run_id="benchmark", iteration=repeat, seed=repeat,
            destination=folder / f"batch-{repeat}",
        )  # fmt: skip
        engine = TimedEngine(TransformersEngine(work.model, stop_tokens(work.model, work.tokenizer), config.batch_size))
        with Judge(request.judge) as judge:
            judge.evaluate(read_problems(problems)[0].problem, "class ModelNew: ...")  # its workers have started
            timed = TimedJudge(judge)
            began = time.perf_counter()
            batch = asyncio.run(roll_out(request, engine, work.tokenizer, timed, lambda _: None))
            walls.append(time.perf_counter() - began)
        generating, judging = engine.clock.covered(), timed.clock.covered()
        hidden.append(common(generating, judging) / seconds(judging))
        gains.append((seconds(generating) + seconds(judging)) / walls[-1])
        turns = len(read_turns(batch))
    return {
        "hidden": statistics.median(hidden),
        "gain": statistics.median(gains),
        "wall_s": statistics.median(walls),
        "turns": turns,
        "repeats": [round(share, 3) for share in hidden],
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
                found = measure_generation(work, arguments.repeats, folder)
                results["generation"].append(found)
                print(
                    f"generation, {found['workload']} ({found['parameters'] / 1e6:.2f} M parameters, "
                    f"{found['sequences']} sequences, prompts of {found['prompt_tokens']:.0f} tokens, answers of "
                    f"{found['kernelmill_tokens_a_sequence']:.0f} and {found['trl_tokens_a_sequence']:.0f}): kernelmill {found['kernelmill_tokens_per_s']:,.0f} tok/s, "
                    f"TRL {found['trl_tokens_per_s']:,.0f} tok/s, ratio {found['ratio']:.2f} (pairs: {found['ratios']}); "
                    f"by CPU time a token {found['cpu_ratio']:.2f} (pairs: {found['cpu_ratios']})",
                    flush=True,
                )
        if arguments.only != "generation":
            found = results["overlap"] = measure_overlap(works[-1], max(arguments.repeats // 2, 1), folder)
            print(
                f"overlap: {100 * found['hidden']:.0f} % of the judge's time hidden behind generation, generation + judge = "
                f"{found['gain']:.2f} × the rollout's {found['wall_s']:.1f} s, {found['turns']} turns",
                flush=True,
            )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
