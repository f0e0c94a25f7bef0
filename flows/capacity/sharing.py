"""Memory that a run takes beside its ranks: of the host, and of the GPUs by the judge, the canary and the servers.

Constants are what the processes were seen to take, rounded up; `kernelmill plan` says that they are estimates.
"""

from flows.capacity.memory import CONTEXT_BYTES, GIB, Shape, TrainingJob, checkpoint_bytes, offloaded_bytes
from flows.settings.configuration import RunConfig
from tasks.rollout.engines.kind import kind_of

PROCESS_BYTES = 3 * GIB
"""Host memory of a process that has imported torch, DeepSpeed or transformers, and uses CUDA."""
SERVER_BYTES = 6 * GIB
"""Host memory of an SGLang server's processes, without its weights, which lie on the GPU."""
JUDGE_WORKER_BYTES = 1 * GIB
"""Host memory of a judge's worker with the processes of its candidate."""
SERVICES_BYTES = 4 * GIB
"""Host memory of Ray, Prefect, the driver and the judge's own processes."""
JUDGE_CONTEXT_GIB = 0.45
"""GPU memory of one CUDA context, which `judge.device_memory_gb` includes. A judge's worker and its candidate have one
each."""
CANARY_TOKENS = 272
"""Tokens of the canary's longest sequence (tasks.rollout.engines.sglang.canary)."""


def servers_of(config: RunConfig) -> int:
    """Return the number of the engine's servers that the run starts itself."""
    return kind_of(config.rollout).servers(config.rollout, config.policies)


def host_memory(config: RunConfig, shape: Shape, job: TrainingJob) -> dict[str, float]:
    """Return the bytes of host memory by purpose, of all nodes together, at the worst moment.

    Each rank loads the whole weights into host memory before DeepSpeed takes its part. Optimizer state is written
    tensor by tensor; it lies in host memory only if a DeepSpeed file offloads it.
    """
    weights, _ = checkpoint_bytes(job)
    rollout = config.rollout
    workers = max(rollout.judge_actors.count, 1) * config.judge_workers
    return {
        "ranks": job.ranks * (PROCESS_BYTES + weights),
        "offloaded optimizer": offloaded_bytes(job),
        "rollout and canary": PROCESS_BYTES + canary_weights(config, shape),
        "servers": float(servers_of(config) * SERVER_BYTES),
        "judge": float(workers * JUDGE_WORKER_BYTES),
        "Ray and Prefect": float(SERVICES_BYTES),
    }


def gpu_memory_beside(config: RunConfig, shape: Shape, gpu_bytes: float, served_share: float) -> dict[str, float]:
    """Return the bytes of GPU memory beside the update's, by purpose, of all GPUs together.

    served_share: share of a GPU that a server takes for weights and cache. A judge without `judge.device_memory_gb`
    takes what is free, and counts by its contexts alone.
    """
    rollout, judge = config.rollout, config.judge
    canary = canary_weights(config, shape) + 4.0 * CANARY_TOKENS * shape.vocabulary + CONTEXT_BYTES
    actors = max(rollout.judge_actors.count, 1)
    judged = (judge.device_memory_gb or 2 * config.judge_workers * JUDGE_CONTEXT_GIB) * GIB
    return {
        "servers": servers_of(config) * (served_share * gpu_bytes + CONTEXT_BYTES),
        "canary": canary if rollout.gpus > 0 and canary_weights(config, shape) else 0.0,
        "judge": actors * judged if judge.device != "cpu" else 0.0,
    }


def canary_weights(config: RunConfig, shape: Shape) -> float:
    """Return the bytes of the checkpoint with which servers are compared; 0 for an engine without any."""
    return shape.parameters * kind_of(config.rollout).compared_bytes(config.rollout)
