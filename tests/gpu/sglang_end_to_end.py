"""A real SGLang server behind our engine, from start to end: rollouts with the real judge, weight pushes, the canary, speed.

    python tests/gpu/sglang_end_to_end.py --site SGLANG_SITE_FOLDER --out FOLDER      (on a machine with a GPU)
    python tests/gpu/sglang_end_to_end.py --double --out FOLDER                       (anywhere, against the double)

Each part prints its result as JSON when it is done; all of them are written to FOLDER/sglang.json after each part. A part that
fails says why and is counted; the exit code is 1 then. The server's log is printed where a part fails.
"""

import argparse
import asyncio
import json
import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from sglang_policies import Trainer, problem_rows

from kernels_eval import Judge, JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.rewards import reward_of
from tasks.references import CheckpointRef
from tasks.rollout.config import EpisodeConfig, SamplingConfig, SglangConfig
from tasks.rollout.driver import Driver, Setting
from tasks.rollout.engines.base import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.sglang import SglangEngine
from tasks.rollout.engines.sglang_api import SglangApi
from tasks.rollout.engines.sglang_canary import reference_logprobs
from tasks.rollout.engines.sglang_pool import Member
from tasks.rollout.engines.sglang_servers import LocalSupervisor, SglangServer
from tasks.rollout.engines.sglang_weights import WeightKeeper
from tasks.rollout.episodes import episode_task
from tasks.rollout.judging import Referee
from tasks.rollout.plan import plan_episodes
from tasks.trajectories.schema import Trajectory

EPISODE = EpisodeConfig(prompt="source", feedback="brief", max_turns=3, success_reward=10, max_zero_turns=3)
SAMPLES = 8
BATCH = 64
REPOSITORY = Path(__file__).resolve().parents[2]


class Proof:
    """What has been shown so far."""

    def __init__(self, out: Path, budget_s: float) -> None:
        self._file = out / "sglang.json"
        self._started = time.monotonic()
        self._budget_s = budget_s
        self.parts: dict[str, dict[str, Any]] = {}
        self.server: SglangServer | None = None

    def left_s(self) -> float:
        """Return what is left of the time."""
        return self._budget_s - (time.monotonic() - self._started)

    async def part(self, name: str, work: Callable[[], Awaitable[dict[str, Any]]], needs_s: float = 0) -> bool:
        """Do one part, note what it returns; true where it succeeded."""
        began = time.monotonic()
        if self.left_s() < needs_s:
            result: dict[str, Any] = {"skipped": f"needs {needs_s:g} s, {self.left_s():.0f} s are left"}
        else:
            try:
                async with asyncio.timeout(max(self.left_s(), 5)):
                    result = {"passed": True, **await work()}
            except Exception as error:  # noqa: BLE001 - the boundary: one part's failure must not hide the others' results
                result = {"passed": False, "error": f"{type(error).__name__}: {error}"}
                traceback.print_exc()
                if self.server is not None:
                    print(f"--- the server's log\n{self.server.log_text()[-6000:]}\n---", flush=True)
        result["seconds"] = round(time.monotonic() - began, 2)
        self.parts[name] = result
        print(json.dumps({name: result}), flush=True)
        self._file.write_text(json.dumps(self.parts, indent=1), encoding="utf-8")
        return bool(result.get("passed"))


def server_config(arguments: argparse.Namespace) -> SglangConfig:
    """Return the settings that start a server here: the flags that worked, or the double."""
    common = {"start_timeout_s": 240.0, "concurrency": BATCH, "request_timeout_s": 120.0, "canary_prompts": 4}
    if arguments.double:
        return SglangConfig(command=(sys.executable, str(REPOSITORY / "tests/doubles/sglang_server.py")), **common)
    compiler = shutil.which("nvcc") or str(next(Path("/usr/local").glob("cuda*/bin/nvcc")))
    return SglangConfig(
        command=("python3", "-m", "sglang.launch_server"),
        flags=(
            "--dtype", "bfloat16", "--attention-backend", "triton", "--sampling-backend", "pytorch",
            "--grammar-backend", "none", "--disable-piecewise-cuda-graph", "--skip-server-warmup",
            "--cuda-graph-max-bs", str(BATCH), "--mem-fraction-static", "0.4",
        ),
        environment={
            "PYTHONPATH": str(arguments.site.resolve()),
            "CUDA_HOME": str(Path(compiler).resolve().parents[1]),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "TORCHDYNAMO_DISABLE": "1",  # one helper is compiled otherwise: 27 s of start-up
        },
        **common,
    )  # fmt: skip


@asynccontextmanager
async def serving(proof: Proof, config: SglangConfig, policy: CheckpointRef, tokenizer: Any) -> AsyncIterator[Any]:
    """Start one supervised server and our engine on it."""
    weights = WeightKeeper(config)
    served = await weights.prepare(policy, tokenizer)
    proof.server = server = SglangServer(config, str(served.folder), served.version)
    engine = SglangEngine([Member(server.url(), LocalSupervisor(server), config.concurrency)], config, weights)
    try:
        yield engine, weights, server
    finally:
        await engine.close()
        proof.server = None


async def generate(engine: Any, requests: Sequence[GenerationRequest], sampling: SamplingConfig) -> list[Generation]:
    """Return the responses in the order of the requests."""
    found = {index: generation async for index, generation in engine.generate(requests, sampling)}
    return [found[index] for index in range(len(requests))]


async def roll_out(engine: Any, policy: CheckpointRef, tokenizer: Any, judge: Judge) -> list[Trajectory]:
    """Play multi-turn episodes on the problems, each several times."""
    setting = Setting(
        run_id="gpu",
        policy_digest=policy.digest,
        tokenizer=tokenizer,
        task=episode_task("kernelbench_multiturn"),
        episode=EPISODE,
        sampling=SamplingConfig(max_new_tokens=256),
        backend="triton",
    )
    rows = problem_rows()
    referee = Referee(judge, lambda verdict, answer: reward_of("kernelbench", verdict, answer), 120.0)
    plans = plan_episodes(rows, rows[0].split, len(rows), SAMPLES, iteration=1, seed=0)
    return await Driver(setting, engine, referee).play(plans)


def described(trajectories: Sequence[Trajectory], policy: CheckpointRef, seconds: float) -> dict[str, Any]:
    """Check what must hold of trajectories, and return their figures."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    assert len(trajectories) == len({t.trajectory_id for t in trajectories}) == len(problem_rows()) * SAMPLES
    for trajectory in trajectories:
        for before, after in zip(trajectory.turns, trajectory.turns[1:], strict=False):
            begin = (*before.prompt_token_ids, *before.response_token_ids)
            assert after.prompt_token_ids[: len(begin)] == begin, "a turn begins with the one before, token for token"
    sequences = [turn.prompt_token_ids + turn.response_token_ids for turn in turns]
    differences: list[float] = []
    for turn, scores in zip(turns, reference_logprobs(policy.path, "float32", sequences), strict=True):
        expected = scores[len(turn.prompt_token_ids) - 1 :]
        differences += [abs(a - b) for a, b in zip(turn.response_logprobs, expected, strict=True)]
    reasons = Counter(turn.finish_reason for turn in turns)
    assert FinishReason.FAULT.value not in reasons, reasons
    return {
        "trajectories": len(trajectories),
        "turns": len(turns),
        "turns_of_a_trajectory": dict(Counter(len(t.turns) for t in trajectories)),
        "statuses": dict(Counter(turn.verdict.status.value for turn in turns)),
        "finish_reasons": dict(reasons),
        "generated_tokens": sum(len(turn.response_token_ids) for turn in turns),
        "rollout_s": round(seconds, 2),
        "logprob_mean_difference_from_fp32": statistics.fmean(differences),
        "logprob_max_difference_from_fp32": max(differences),
    }


def reading_of(weights: WeightKeeper) -> dict[str, Any]:
    """Return what the canary last found."""
    (reading,) = weights.readings.values()
    return asdict(reading)


async def refused(serve: Awaitable[None], expected: str) -> str:
    """Return the refusal; it must be one, of this kind."""
    text = "none: the canary let other weights pass"
    try:
        await serve
    except InfrastructureError as error:
        text = str(error)
    assert expected in text, text
    return text


async def small_policy_parts(proof: Proof, arguments: argparse.Namespace, trainer: Trainer, judge: Judge) -> None:
    """Everything that a small policy can show, on one server."""
    config = server_config(arguments)
    first = trainer.save("first")
    async with serving(proof, config, first, trainer.tokenizer) as (engine, weights, server):

        async def start() -> dict[str, Any]:
            await engine.serve(first, trainer.tokenizer)
            return {"context_tokens": engine.context_tokens, "canary": reading_of(weights)}

        if not await proof.part("start_and_canary", start):
            return

        async def rollout() -> dict[str, Any]:
            began = time.monotonic()
            trajectories = await roll_out(engine, first, trainer.tokenizer, judge)
            figures = described(trajectories, first, time.monotonic() - began)
            counts = engine.counts
            share = counts["cached_tokens"] / max(counts["prompt_tokens"], 1)
            return figures | {"counts": dict(counts), "share_of_prompts_found_in_the_cache": round(share, 3)}

        await proof.part("rollout", rollout)
        policies = {"first": first}

        async def push(name: str, steps: int, learning_rate: float) -> dict[str, Any]:
            trainer.train(steps, learning_rate)
            policies[name] = trainer.save(name)
            began = time.monotonic()
            await engine.serve(policies[name], trainer.tokenizer)
            return {"push_and_canary_s": round(time.monotonic() - began, 3), "canary": reading_of(weights)}

        await proof.part("push", lambda: push("updated", 5, 1e-3))
        await proof.part("push_of_a_small_step", lambda: push("small_step", 1, 1e-5))
        await proof.part("push_of_a_tiny_step", lambda: push("tiny_step", 1, 1e-6))

        async def rollout_after() -> dict[str, Any]:
            began = time.monotonic()
            policy = policies["tiny_step"]
            trajectories = await roll_out(engine, policy, trainer.tokenizer, judge)
            return described(trajectories, policy, time.monotonic() - began)

        await proof.part("rollout_after_pushes", rollout_after)

        async def stale() -> dict[str, Any]:
            """The server takes the label and keeps the weights; the update itself is of a usual size."""
            trainer.train(1, 1e-4)
            policy, honest = trainer.save("never_loaded"), SglangApi.load_weights

            async def label_only(self: SglangApi, folder: str, version: str, timeout_s: float) -> None:
                await self._post("/update_weight_version", {"new_version": version}, timeout_s)

            SglangApi.load_weights = label_only
            try:
                text = await refused(engine.serve(policy, trainer.tokenizer), "still answers from the weights before")
            finally:
                SglangApi.load_weights = honest
            found = reading_of(weights)
            await engine.serve(policy, trainer.tokenizer)
            return {"refusal": text, "canary": found, "canary_once_it_is_loaded": reading_of(weights)}

        await proof.part("stale_weights_are_refused", stale)

        async def different() -> dict[str, Any]:
            """The server holds one policy under the label of another."""
            other = trainer.save_random("other", seed=9)
            current = await api_of(server, lambda api: api.weight_version())
            lie = other.model_copy(update={"digest": current})
            text = await refused(engine.serve(lie, trainer.tokenizer), "expected a mean of at most")
            found = reading_of(weights)
            policies["other"] = other
            await engine.serve(other, trainer.tokenizer)
            return {"refusal": text, "canary": found, "canary_once_it_is_loaded": reading_of(weights)}

        await proof.part("different_weights_are_refused", different)
        await proof.part("speed_small", lambda: speed(engine, trainer, 128, 64 if arguments.double else 512, 2))

        async def killed() -> dict[str, Any]:
            began = time.monotonic()
            kill_program(server)
            answers = await generate(engine, some_requests(16, 64), SamplingConfig(max_new_tokens=16))
            assert all(answer.finish_reason is not FinishReason.FAULT for answer in answers)
            state = await asyncio.to_thread(server.state)
            assert state.restarts == 1
            return {"back_and_answered_after_s": round(time.monotonic() - began, 1), "canary": reading_of(weights)}

        await proof.part("killed_server_comes_back", killed, needs_s=120)


async def large_policy_parts(proof: Proof, arguments: argparse.Namespace, trainer: Trainer) -> None:
    """Speed, canary and push at the shape of Qwen3-0.6B."""
    config = server_config(arguments)
    policy = trainer.save_large("large")
    async with serving(proof, config, policy, trainer.tokenizer) as (engine, weights, _):

        async def start() -> dict[str, Any]:
            await engine.serve(policy, trainer.tokenizer)
            return {"canary": reading_of(weights)}

        async def push() -> dict[str, Any]:
            began = time.monotonic()
            await engine.serve(policy.model_copy(update={"digest": "large-again"}), trainer.tokenizer)
            return {"push_and_canary_s": round(time.monotonic() - began, 3), "canary": reading_of(weights)}

        if await proof.part("large_start_and_canary", start, needs_s=100):
            await proof.part("large_speed", lambda: speed(engine, trainer, 128, 512, 2), needs_s=30)
            await proof.part("large_push", push, needs_s=20)


async def speed(engine: Any, trainer: Trainer, prompt: int, new: int, rounds: int) -> dict[str, Any]:
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


def some_requests(count: int, length: int, salt: int = 0) -> list[GenerationRequest]:
    """Return prompts that share no beginning."""
    return [
        GenerationRequest(f"r{n}", tuple(10 + (n * 31 + k * 7 + salt) % 400 for k in range(length)), n, f"{salt}-{n}")
        for n in range(count)
    ]


async def api_of(server: SglangServer, ask: Callable[[SglangApi], Awaitable[Any]]) -> Any:
    """Ask the server something directly."""
    import httpx

    async with httpx.AsyncClient(trust_env=False) as client:
        return await ask(SglangApi(server.url(), client))


def kill_program(server: SglangServer) -> None:
    """Kill the program that serves: the child of its guard. (It may have changed its own name.)"""
    port = server.url().rpartition(":")[2]
    parents: dict[int, int] = {}
    guard = None
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "sglang_guard" in line and f"--port {port}" in line:
                guard = int(folder.name)
    (program,) = [process for process, parent in parents.items() if parent == guard]
    os.kill(program, signal.SIGKILL)


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


async def run(arguments: argparse.Namespace) -> bool:
    """Do all parts; true where none failed."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    proof = Proof(arguments.out, arguments.budget)
    folder = Path(tempfile.mkdtemp(prefix="kernelmill-gpu-"))
    trainers: list[Trainer] = []

    async def prepare() -> dict[str, Any]:
        trainer = Trainer(folder, "cuda" if torch.cuda.is_available() else "cpu")
        loss = trainer.train(30 if arguments.double else 150, 3e-3)
        trainers.append(trainer)
        return machine() | {"vocabulary": len(trainer.tokenizer), "loss": round(loss, 4)}

    try:
        if await proof.part("prepare", prepare):
            judge_config = JudgeConfig(workers=arguments.judge_workers, compile="never", trials=1, device="cpu")
            with Judge(judge_config) as judge:
                await small_policy_parts(proof, arguments, trainers[0], judge)
            if not arguments.double:
                await large_policy_parts(proof, arguments, trainers[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failed = [name for name, result in proof.parts.items() if result.get("passed") is False]
    print(f"{len(proof.parts)} parts, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}", flush=True)
    return not failed


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--site", type=Path, help="folder of SGLang's packages: only the server sees it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--double", action="store_true", help="use the double instead of a real server")
    parser.add_argument("--budget", type=float, default=450.0, help="seconds for everything")
    parser.add_argument("--judge-workers", type=int, default=8)
    arguments = parser.parse_args()
    if not arguments.double and arguments.site is None:
        parser.error("--site or --double")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    sys.exit(0 if asyncio.run(run(arguments)) else 1)


if __name__ == "__main__":
    main()
