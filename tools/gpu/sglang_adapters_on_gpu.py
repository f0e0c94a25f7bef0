"""Adapters on a real SGLang server: loading, the canary, tokens a second, and a change of their base.

    python tools/gpu/sglang_adapters_on_gpu.py --out FOLDER           (a GPU, and SGLang where KERNELMILL_SGLANG names it)
    python tools/gpu/sglang_adapters_on_gpu.py --out FOLDER --double  (anywhere, against the double)

The base has the shape of Qwen3-0.6B and random weights; two agents are adapters on it. Each part prints its result as
JSON when it is done, and all are written to FOLDER/sglang.json.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "doubles"))

from adapted_policy import save_adapted
from sglang_policies import Trainer
from sglang_proof import BATCH, REPOSITORY, LocalSupervisor, Proof

from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import SamplingConfig, SglangConfig
from tasks.rollout.engines import GenerationRequest
from tasks.rollout.engines.sglang.engine import SglangEngine
from tasks.rollout.engines.sglang.pool import Member
from tasks.rollout.engines.sglang.servers import SglangServer
from tasks.training.config import LoraConfig

RANK = 16
LORA = LoraConfig(rank=RANK, alpha=2 * RANK)


class Run:
    """State that the parts share."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.proof = Proof(arguments.out, arguments.budget, patience=20 if arguments.double else 1)
        self.folder, self.double = folder, bool(arguments.double)
        command = (sys.executable, str(REPOSITORY / "tests/doubles/sglang_server.py")) if self.double else None
        self.config = SglangConfig(
            command=command, gpus_per_server=0.5, start_timeout_s=240, concurrency=BATCH, adapter_rank=RANK
        )
        self.policies: dict[str, CheckpointRef] = {}
        self.engines: dict[str, SglangEngine] = {}

    async def prepare(self) -> dict[str, Any]:
        """Write the base, two agents with two steps each, and another base."""
        trainer = await asyncio.to_thread(Trainer, self.folder, "cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = trainer.tokenizer
        save = trainer.save_random if self.double else lambda name, _seed: trainer.save_large(name)
        for number, name in enumerate(("base", "other-base")):
            self.policies[name] = await asyncio.to_thread(save, name, number)
        for number, name in enumerate(("writer-1", "mender-1", "writer-2")):
            self.policies[name] = await asyncio.to_thread(
                save_adapted, self.policies["base"], self.tokenizer, self.folder / name, LORA, number
            )
        weights = [file.stat().st_size for file in self.policies["writer-1"].path.glob("model*.safetensors")]
        adapter = (self.policies["writer-1"].path / "adapter/adapter_model.safetensors").stat().st_size
        return {"weights_mib": round(sum(weights) / 2**20, 1), "adapter_mib": round(adapter / 2**20, 1)}

    async def start(self) -> dict[str, Any]:
        """Start the server with the base, and compare it."""
        base = self.policies["base"]
        self.proof.server = server = SglangServer(self.config, str(base.path), base.digest)
        member = Member(server.url(), LocalSupervisor(server), BATCH)
        self.engines["writer"] = SglangEngine([member], self.config)
        self.engines["mender"] = self.engines["writer"].beside()
        return await self.served("writer", "base")

    async def served(self, agent: str, policy: str) -> dict[str, Any]:
        """Have an agent answer from a policy, and return the time and what the canary found."""
        engine, began = self.engines[agent], time.monotonic()
        await engine.serve(self.policies[policy], self.tokenizer)
        (result,) = engine.canary_results.values()
        return {"serve_s": round(time.monotonic() - began, 2), **asdict(result), "pushes": dict(engine.pushes)}

    async def speed(self, agents: tuple[str, ...]) -> dict[str, Any]:
        """Generate `BATCH` responses at a time, three times; return the tokens a second of the fastest."""
        requests = [
            GenerationRequest(f"{n}", tuple(5 + (7 * n + k) % 250 for k in range(64)), n, routing_key=f"{n}")
            for n in range(8 if self.double else BATCH)
        ]
        sampling, rates = SamplingConfig(max_new_tokens=16 if self.double else 256), list[float]()

        async def tokens(agent: str, share: list[GenerationRequest]) -> int:
            found = self.engines[agent].generate(share, sampling)
            return sum([len(generation.token_ids) async for _, generation in found])

        for repeat in range(3):
            fresh = [replace(request, seed=request.seed + 1000 * repeat) for request in requests]
            began = time.monotonic()
            counted = await asyncio.gather(
                *(tokens(agent, fresh[place :: len(agents)]) for place, agent in enumerate(agents))
            )
            rates.append(sum(counted) / (time.monotonic() - began))
        return {"tokens_a_second": round(max(rates)), "all": [round(rate) for rate in rates]}

    async def merged(self) -> dict[str, Any]:
        """Push whole weights to the same server, as without adapters: another base, from disk."""
        plain = self.config.model_copy(update={"adapter_rank": 0, "push": "disk"})
        assert self.proof.server is not None
        member = Member(self.proof.server.url(), LocalSupervisor(self.proof.server), BATCH)
        self.engines["plain"] = SglangEngine([member], plain)
        return await self.served("plain", "other-base")

    async def close(self) -> None:
        """Stop the server."""
        for engine in self.engines.values():
            await engine.close()


async def main() -> int:
    """Run all parts; return the number that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for everything")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments, Path(folder))
        part = run.proof.part
        if await part("prepare", run.prepare, 90) and await part("start", run.start, 200):
            await part("speed of the base", lambda: run.speed(("writer",)), 60)
            await part("first adapter", lambda: run.served("writer", "writer-1"), 60)
            await part("second agent", lambda: run.served("mender", "mender-1"), 60)
            await part("speed of one adapter", lambda: run.speed(("writer",)), 60)
            await part("speed of two adapters", lambda: run.speed(("writer", "mender")), 60)
            await part("next adapter", lambda: run.served("writer", "writer-2"), 60)
            await part("whole weights", run.merged, 60)
            await part("adapters on the base again", lambda: run.served("mender", "mender-1"), 60)
        await run.close()
    return sum(not result.get("passed") for result in run.proof.parts.values())


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
