"""A real SGLang server behind our engine, from start to end: a multi-turn run with weight pushes, the canary, speed, a kill.

    python tools/gpu/sglang_end_to_end.py --site SGLANG_SITE_FOLDER --out FOLDER      (on a machine with a GPU)
    python tools/gpu/sglang_end_to_end.py --double --out FOLDER                       (anywhere, against the double)

Parts come in the order of their importance, each with a time limit, and print their result as JSON when they are done; all results
are written to FOLDER/sglang.json after each part. A part that fails says why and is counted; the exit code is 1 then. The
server's log is printed, and kept in FOLDER, where a part fails.
"""

import argparse
import asyncio
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import torch
from sglang_policies import EPISODE, TextJudge, Trainer, judged_example, problem_rows
from sglang_proof import BATCH, Proof, canary_result, kill_program, server_config, serving

from kernels_eval import Judge, JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.rewards import reward_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.sglang.api import SglangApi
from tasks.rollout.engines.sglang.canary import reference_logprobs
from tasks.rollout.episode import RolloutContext, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop
from tasks.rollout.judge_client import AsyncJudge, JudgeClient
from tasks.trajectories.schema import TURNS_FILE, Trajectory
from tasks.trajectories.writer import write_trajectories


class Run:
    """State that the parts share."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.double: bool = arguments.double
        self.samples = 2 if self.double else 8
        self.site: Path | None = None if self.double else arguments.site
        self.folder = folder
        self.proof = Proof(arguments.out, arguments.budget, patience=20 if self.double else 1)
        self.judge_workers: int = arguments.judge_workers
        self.trainer: Trainer
        self.judge: AsyncJudge

    async def prepare(self) -> dict[str, Any]:
        """Teach a small policy to write kernels that are right, wrong and broken."""
        self.trainer = await asyncio.to_thread(Trainer, self.folder, "cuda" if torch.cuda.is_available() else "cpu")
        loss = await asyncio.to_thread(self.trainer.train, 10 if self.double else 300, 3e-3)
        return machine() | {"vocabulary": len(self.trainer.tokenizer), "loss": round(loss, 4)}

    async def open_judge(self) -> dict[str, Any]:
        """Start the real judge, and see that it tells right from wrong."""
        config = JudgeConfig(workers=self.judge_workers, compile="never", trials=1, device="cpu")
        judge = await asyncio.to_thread(Judge, config)
        problem, right, wrong = judged_example()
        statuses = [(await judge.evaluate_async(problem, kernel)).status.value for kernel in (right, wrong)]
        assert statuses == ["correct", "incorrect"], statuses
        self.judge = judge
        return {"statuses": statuses}

    async def roll_out(self, engine: Any, policy: CheckpointRef, iteration: int) -> list[Trajectory]:
        """Play multi-turn episodes on the problems, each several times."""
        context = RolloutContext(
            run_id="gpu",
            policy_digest=policy.digest,
            tokenizer=self.trainer.tokenizer,
            episode=EPISODE,
            sampling=SamplingConfig(max_new_tokens=256),
            backend="triton",
        )
        rows = problem_rows()
        judge_client = JudgeClient(self.judge, lambda verdict, answer: reward_of("kernelbench", verdict, answer), 30.0)
        plans = plan_episodes(rows, rows[0].split, len(rows), self.samples, iteration, seed=0)
        return await EpisodeLoop(
            context, engine, judge_client, config=RolloutConfig(generation_patience_s=60.0, watch_after_s=20.0)
        ).run(plans)

    async def iteration(
        self, engine: Any, weights: Any, policies: dict[str, CheckpointRef], number: int, push: str
    ) -> dict[str, Any]:
        """One training iteration: roll out, publish, learn from it, push the new weights, canary."""
        policy = policies["current"]
        await engine.serve(policy, self.trainer.tokenizer)
        counts = Counter(engine.counts)
        began = time.monotonic()
        trajectories = await self.roll_out(engine, policy, number)
        rollout_s = time.monotonic() - began
        figures = await asyncio.to_thread(described, trajectories, policy, self.samples)
        batch = write_trajectories(trajectories, EPISODE.gamma, self.folder / f"iteration={number}")
        assert batch.turns == figures["turns"]
        assert (batch.path / TURNS_FILE).exists()
        used = engine.counts - counts
        loss = await asyncio.to_thread(self.trainer.learn, trajectories, EPISODE.gamma, 2e-4)
        following = await asyncio.to_thread(self.trainer.save, f"policy-{number + 1}")
        weights.push = push
        pushes = Counter(weights.pushes)
        began = time.monotonic()
        await engine.serve(following, self.trainer.tokenizer)
        assert dict(weights.pushes - pushes) == {push: 1}
        policies["current"] = following
        return figures | {
            "rollout_s": round(rollout_s, 2),
            "tokens_per_s": round(figures["generated_tokens"] / rollout_s, 1),
            "share_of_prompts_found_in_the_cache": round(used["cached_tokens"] / max(used["prompt_tokens"], 1), 3),
            "attempts": used["attempts"],
            "failures": used["failures"],
            "loss": round(loss, 5),
            "push_and_canary_s": round(time.monotonic() - began, 3),
            "canary": canary_result(weights),
        }


def described(trajectories: Sequence[Trajectory], policy: CheckpointRef, samples: int) -> dict[str, Any]:
    """Check what must hold of trajectories, and return their figures."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    assert len(trajectories) == len({t.trajectory_id for t in trajectories}) == len(problem_rows()) * samples
    for trajectory in trajectories:
        for before, after in zip(trajectory.turns, trajectory.turns[1:], strict=False):
            begin = (*before.prompt_token_ids, *before.response_token_ids)
            assert after.prompt_token_ids[: len(begin)] == begin, "a turn begins with the one before, token for token"
    statuses = Counter(turn.verdict.status.value for turn in turns)
    assert statuses["infrastructure_error"] <= len(turns) / 100, f"the judge does not judge: {statuses}"
    lengths = Counter(len(trajectory.turns) for trajectory in trajectories)
    assert lengths[3] >= len(trajectories) / 2, f"expected several turns, found {lengths}"
    sequences = [turn.prompt_token_ids + turn.response_token_ids for turn in turns]
    differences: list[float] = []
    for turn, scores in zip(turns, reference_logprobs(policy.path, "float32", sequences), strict=True):
        expected = scores[len(turn.prompt_token_ids) - 1 :]
        differences += [abs(a - b) for a, b in zip(turn.response_logprobs, expected, strict=True)]
    reasons = Counter(turn.finish_reason for turn in turns)
    rewards = [turn.reward for turn in turns if turn.reward is not None]
    return {
        "policy": policy.digest,
        "trajectories": len(trajectories),
        "turns": len(turns),
        "turns_of_a_trajectory": dict(sorted(lengths.items())),
        "statuses": dict(statuses),
        "finish_reasons": dict(reasons),
        "mean_reward": round(statistics.fmean(rewards), 4),
        "generated_tokens": sum(len(turn.response_token_ids) for turn in turns),
        "logprob_mean_difference_from_fp32": statistics.fmean(differences),
        "logprob_max_difference_from_fp32": max(differences),
    }


async def refused(serve: Awaitable[None], expected: str) -> str:
    """Return the refusal; it must be one, of this kind."""
    text = "none: the canary let other weights pass"
    try:
        await serve
    except InfrastructureError as error:
        text = str(error)
    assert expected in text, text
    return text


async def all_parts(run: Run) -> None:
    """Everything, the most important first."""
    proof = run.proof
    if not await proof.part("prepare", run.prepare, 90):
        return
    trainer, first = run.trainer, run.trainer.save("policy-0")
    async with serving(proof, server_config(run.site), first, trainer.tokenizer) as (engine, weights, server):
        # While the server starts.
        if not await proof.part("judge", run.open_judge, 60):
            run.judge = TextJudge()  # says nothing of the judge, but lets the engine show what it can

        async def start() -> dict[str, Any]:
            await engine.serve(first, trainer.tokenizer)
            return {"context_tokens": engine.context_tokens, "canary": canary_result(weights)}

        if not await proof.part("start_and_canary", start, 250):
            return
        policies = {"current": first}

        async def iterate(number: int, push: str) -> None:
            name = f"iteration_{number}_push_from_{push}"
            await proof.part(name, lambda: run.iteration(engine, weights, policies, number, push), 60)

        await iterate(0, "disk")
        await iterate(1, "disk")
        await proof.part("stale_weights_are_refused", lambda: stale(trainer, engine, weights), 30)
        await proof.part("different_weights_are_refused", lambda: different(trainer, engine, weights, server), 30)
        await proof.part("speed_small", lambda: speed(engine, 128, 64 if run.double else 512, 2), 40)
        await iterate(2, "tensors")
        await iterate(3, "tensors")
        if not run.double:
            await large_policy_parts(run)
        # Last: a server that does not come back keeps nothing else from being shown.
        await proof.part("killed_server_comes_back", lambda: killed(engine, weights, server), 150, needs_s=30)


async def stale(trainer: Trainer, engine: Any, weights: Any) -> dict[str, Any]:
    """The server takes the label and keeps the weights; the update itself is of a usual size."""
    await asyncio.to_thread(trainer.train, 1, 1e-4)
    policy, honest = trainer.save("never_loaded"), SglangApi.load_weights
    weights.push = "disk"

    async def label_only(self: SglangApi, folder: str, version: str, timeout_s: float) -> None:
        await self._post("/update_weight_version", {"new_version": version}, timeout_s)

    SglangApi.load_weights = label_only
    try:
        text = await refused(engine.serve(policy, trainer.tokenizer), "still answers from the weights before")
    finally:
        SglangApi.load_weights = honest
    found = canary_result(weights)
    await engine.serve(policy, trainer.tokenizer)
    return {"refusal": text, "canary": found, "canary_once_it_is_loaded": canary_result(weights)}


async def different(trainer: Trainer, engine: Any, weights: Any, server: Any) -> dict[str, Any]:
    """The server holds one policy under the label of another."""
    import httpx

    other = trainer.save_random("other", seed=9)
    async with httpx.AsyncClient(trust_env=False) as client:
        current = await SglangApi(server.url(), client).weight_version()
    lie = other.model_copy(update={"digest": current})
    text = await refused(engine.serve(lie, trainer.tokenizer), "expected a mean of at most")
    found = canary_result(weights)
    await engine.serve(other, trainer.tokenizer)
    return {"refusal": text, "canary": found, "canary_once_it_is_loaded": canary_result(weights)}


async def killed(engine: Any, weights: Any, server: Any) -> dict[str, Any]:
    """The program that serves is killed under load; every request is answered all the same."""
    began = time.monotonic()
    kill_program(server)
    answers = await generate(engine, some_requests(16, 64), SamplingConfig(max_new_tokens=16))
    assert all(answer.finish_reason is not FinishReason.FAULT for answer in answers)
    state = await asyncio.to_thread(server.state)
    assert state.restarts == 1
    return {"back_and_answered_after_s": round(time.monotonic() - began, 1), "canary": canary_result(weights)}


async def large_policy_parts(run: Run) -> None:
    """Speed, canary and both pushes at the shape of Qwen3-0.6B, on a second server."""
    proof, trainer = run.proof, run.trainer
    if proof.left_s() < 110:
        return
    policy = await asyncio.to_thread(trainer.save_large, "large")
    async with serving(proof, server_config(run.site), policy, trainer.tokenizer) as (engine, weights, _):

        async def start() -> dict[str, Any]:
            await engine.serve(policy, trainer.tokenizer)
            return {"canary": canary_result(weights)}

        async def push(way: str) -> dict[str, Any]:
            weights.push = way
            began = time.monotonic()
            again = policy.model_copy(update={"digest": f"large-by-{way}"})
            served = await weights.prepare(again, trainer.tokenizer)
            import httpx

            async with httpx.AsyncClient(trust_env=False) as client:
                (member,) = engine._pool.members
                await weights._push(SglangApi(member.url, client), member, served)
            pushed = time.monotonic() - began
            await engine.serve(again, trainer.tokenizer)
            return {"push_s": round(pushed, 3), "pushes": dict(weights.pushes), "canary": canary_result(weights)}

        if await proof.part("large_start_and_canary", start, 120):
            await proof.part("large_speed", lambda: speed(engine, 128, 512, 2), 40)
            await proof.part("large_push_as_tensors", lambda: push("tensors"), 30)
            await proof.part("large_push_from_disk", lambda: push("disk"), 30)


async def speed(engine: Any, prompt: int, new: int, rounds: int) -> dict[str, Any]:
    """Tokens a second through our engine, log-probabilities included, `BATCH` requests at a time."""
    sampling = SamplingConfig(max_new_tokens=new)
    await generate(engine, some_requests(BATCH, prompt, salt=7), SamplingConfig(max_new_tokens=8))
    began = time.monotonic()
    answers = await generate(engine, some_requests(BATCH * rounds, prompt), sampling)
    seconds = time.monotonic() - began
    tokens = sum(len(answer.token_ids) for answer in answers)
    return {
        "batch": BATCH,
        "requests": len(answers),
        "prompt_tokens": prompt,
        "generated_tokens": tokens,
        "tokens_per_s": round(tokens / seconds, 1),
        "finish_reasons": dict(Counter(answer.finish_reason.value for answer in answers)),
    }


async def generate(engine: Any, requests: Sequence[GenerationRequest], sampling: SamplingConfig) -> list[Generation]:
    """Return the responses in the order of the requests."""
    found = {index: generation async for index, generation in engine.generate(requests, sampling)}
    return [found[index] for index in range(len(requests))]


def some_requests(count: int, length: int, salt: int = 0) -> list[GenerationRequest]:
    """Return prompts that share no beginning."""
    return [
        GenerationRequest(f"r{n}", tuple(10 + (n * 31 + k * 7 + salt) % 400 for k in range(length)), n, f"{salt}-{n}")
        for n in range(count)
    ]


def machine() -> dict[str, Any]:
    """Return what this runs on."""
    import transformers
    import triton

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    driver = "none"
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "gpu": gpu,
        "driver": driver,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
    }


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--site", type=Path, help="folder of SGLang's packages: only the server sees it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--double", action="store_true", help="use the double instead of a real server")
    parser.add_argument("--budget", type=float, default=430.0, help="seconds for everything")
    parser.add_argument("--judge-workers", type=int, default=8)
    arguments = parser.parse_args()
    if not arguments.double and arguments.site is None:
        parser.error("--site or --double")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    arguments.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="kernelmill-gpu-"))
    asyncio.run(to_the_end(Run(arguments, folder)))


async def to_the_end(run: Run) -> None:
    """Do all parts, and end the process: a thread that a part gave up on may still be at it, and the loop would wait for it."""
    try:
        await all_parts(run)
    except Exception:  # noqa: BLE001 - what was shown so far is reported all the same
        traceback.print_exc()
        run.proof.parts["the run itself"] = {"passed": False}
    judge = getattr(run, "judge", None)
    if isinstance(judge, Judge):
        judge.close()
    shutil.rmtree(run.folder, ignore_errors=True)
    parts = run.proof.parts
    failed = [name for name, result in parts.items() if result.get("passed") is False]
    print(f"{len(parts)} parts, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}", flush=True)
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
