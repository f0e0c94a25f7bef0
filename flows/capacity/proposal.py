"""Proposal of a configuration for one machine: which of the shipped ones to start from, and what to change in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from flows.capacity.memory import GIB
from flows.capacity.planner import plan
from flows.capacity.speed import GPUS
from flows.settings.configuration import load_configuration
from flows.settings.plurals import counted
from tasks.problems.synthetic.sizes import JUDGE_WORKER_GIB

LEAST_GPU_GIB = 22.0
"""Memory of a GPU sold as one of 24 GB, at least."""
_LEAST_CORES = 8
_LOCAL_WORKERS = 2
"""Workers of the judge in local.yaml."""
_WORKER_HOST_BYTES = 2 * GIB
"""Memory of a worker of the judge, with what else grows with the machine."""
_WORKERS_BY_CORES = {16: 8, 14: 6, 12: 4}
"""Workers of the judge on one GPU by the cores that they need at least (docs/how-to/one-gpu.md), the most first."""
_WORKER_GIB = (12.0, 9.0, 6.0, JUDGE_WORKER_GIB["gpu"])
"""Memory for a worker of the judge, the most first: with more, a timed round of a large problem can have more calls."""
_FILLED = 0.9
"""Share of the GPU's memory that the plan may take: it is an estimate."""


@dataclass(frozen=True)
class Machine:
    """Machine that a configuration is for."""

    cores: int
    memory_bytes: float
    gpus: tuple[tuple[str, float], ...]
    """Name and GiB of memory of each NVIDIA GPU."""

    def __str__(self) -> str:
        """Return the machine in words."""
        shown = ", ".join(f"{name} ({memory:.0f} GiB)" for name, memory in self.gpus) or "no NVIDIA GPU"
        return f"{counted(self.cores, 'core')}, {self.memory_bytes / GIB:.0f} GiB of memory, {shown}"


@dataclass(frozen=True)
class Proposal:
    """Configuration for a machine."""

    base: str
    """File name of the shipped configuration."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings that differ from it, nested."""
    reasons: tuple[str, ...] = ()
    """Sentences for the user."""


def gpu_of(line: str) -> tuple[str, float] | None:
    """Return name and GiB of a line of `nvidia-smi --query-gpu=name,memory.total,… --format=csv`; None for others."""
    name, *rest = [part.strip() for part in line.split(",")]
    amount, _, unit = rest[0].partition(" ") if rest else ("", "", "")
    return (name, float(amount) / 1024) if unit == "MiB" and amount.isdigit() else None


def propose(machine: Machine, folder: Path) -> Proposal:
    """Return a configuration for a machine. `folder`: that of the shipped configurations."""
    large = [memory for _, memory in machine.gpus if memory >= LEAST_GPU_GIB]
    if not machine.gpus:
        return _without_gpu(machine, "no NVIDIA GPU")
    if not large:
        most = max(memory for _, memory in machine.gpus)
        return _without_gpu(machine, f"training on a GPU needs one of {LEAST_GPU_GIB:.0f} GiB, found {most:.0f}")
    if machine.cores < _LEAST_CORES:
        return _without_gpu(machine, f"training on a GPU needs {_LEAST_CORES} cores, found {machine.cores}")
    reasons = ["the model, SGLang and the judge share one GPU; times are measured"]
    if len(machine.gpus) > 1:
        reasons.append(
            f"uses one of {len(machine.gpus)} GPUs; for a pretrained model on all of them see qwen3-8b-multi-turn.yaml "
            "and `kernelmill plan`"
        )
    judge, said = _judge_for(min(large), machine.cores, folder)
    return Proposal("one-gpu.yaml", {"judge": judge} if judge else {}, (*reasons, *said))


def _without_gpu(machine: Machine, why: str) -> Proposal:
    """Return a configuration without a GPU. More than two cores judge kernels; the model is too small to need them."""
    reason = f"{why}: kernels are interpreted, and their speed is estimated"
    workers = min(machine.cores, int(machine.memory_bytes / _WORKER_HOST_BYTES))
    if workers <= _LOCAL_WORKERS:
        return Proposal("local.yaml", reasons=(reason,))
    settings = {"judge": {"workers": workers}, "ray": {"cpus": None}}
    return Proposal("local.yaml", settings, (reason, f"{workers} workers of the judge"))


def _judge_for(gpu_gib: float, cores: int, folder: Path) -> tuple[dict[str, Any], Sequence[str]]:
    """Return settings of the judge for a GPU that it shares, and why; none where those of the file are right."""
    gpu = replace(GPUS["h100"], memory_gib=gpu_gib)
    counts = [count for least, count in _WORKERS_BY_CORES.items() if cores >= least]
    for workers, each in product(counts, _WORKER_GIB):
        wanted = {"workers": workers, "device_memory_gb": workers * each}
        config = load_configuration(folder / "one-gpu.yaml", [f"judge.{name}={wanted[name]}" for name in wanted])
        if plan(config, gpu).one_gpu_bytes <= _FILLED * gpu_gib * GIB:
            return wanted, (f"{workers} workers of the judge, with {each:g} GiB of the GPU's memory each",)
    return {}, ()
