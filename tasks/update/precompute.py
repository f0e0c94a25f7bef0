"""Tensors computed before the first optimizer step: old and reference log-probabilities, values, advantages.

The policy scores the batch first only if that can matter: not for a single optimizer step (its own log-probabilities
are the old ones), and not for a sampler that has the trainer's numerics on a few probed sequences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, distributed

from tasks.models.disk_errors import disk_errors
from tasks.training.attention import ALONE, SequenceGroup
from tasks.training.batches import MicroBatch
from tasks.training.engine import PolicyEngine
from tasks.update.config import UpdateConfig
from tasks.update.corrections import mismatch
from tasks.update.credit_assignment import Sample, SampleSet, credit
from tasks.update.critic import CriticEngine
from tasks.update.kl import kl_penalty

PREPARED_FILE = "prepared.safetensors"
PROBED_SEQUENCES = 8
_FIELDS = ("old_log_probs", "advantages", "reference_log_probs", "values", "returns")

Scorer = Callable[[MicroBatch], Tensor]


@dataclass(frozen=True)
class Prepared:
    """One tensor [R_i] in float32 on the CPU for each sample, by what it is."""

    old_log_probs: list[Tensor] | None
    """Denominator of the ratio; None: the policy's own at the step itself."""
    advantages: list[Tensor]
    reference_log_probs: list[Tensor] | None
    values: list[Tensor] | None
    returns: list[Tensor] | None
    corrected: bool
    """True if the loss corrects for the sampler's numerics."""
    mismatch: dict[str, float] | None
    """Of the whole batch, if the policy scored it; otherwise the first step's is the iteration's."""


def prepare(
    policy: PolicyEngine,
    critic: CriticEngine | None,
    reference: Scorer | None,
    data: SampleSet,
    config: UpdateConfig,
    steps: int,
) -> Prepared:
    """Return everything that the optimizer steps compare with. Every rank calls it, and gets all samples' tensors."""
    sampler = [torch.from_numpy(sample.sampler_log_probs) for sample in data.samples]

    def scored(scorer: Scorer) -> list[Tensor]:
        return score_samples(policy, data.samples, config, scorer, policy.group)

    in_reward = config.kl_coefficient > 0 and config.kl_in == "reward"
    source = config.old_log_probs
    if source != "sampler":
        if steps == 1 and not in_reward:
            source = "current"
        elif source == "auto":
            source = "sampler" if _same_numerics(policy, data.samples, config) else "trainer"
    old = sampler if source == "sampler" else None
    difference = None
    if source == "trainer":
        old = scored(lambda batch: policy.score(batch)[0])
        difference = mismatch(torch.cat(old), torch.cat(sampler), torch.ones(sum(map(len, old))))
    references = None if reference is None else scored(reference)
    penalties = None
    if in_reward and references is not None and old is not None:
        pairs = zip(old, references, strict=True)
        penalties = [config.kl_coefficient * kl_penalty(new, base, config.kl_estimator) for new, base in pairs]
    values = None if critic is None else scored(critic.score)
    credited = credit(data.samples, config, penalties, values, data.masked)
    return Prepared(
        old_log_probs=old,
        advantages=credited.advantages,
        reference_log_probs=references,
        values=values,
        returns=credited.returns,
        corrected=source != "sampler",
        mismatch=difference,
    )


def score_samples(
    engine: PolicyEngine, samples: Sequence[Sample], config: UpdateConfig, scorer: Scorer, group: SequenceGroup
) -> list[Tensor]:
    """Return the scores [R_i] of every sample's response, on the CPU; the ranks of all groups share the work."""
    result: dict[int, Tensor] = {}
    sequences = [sample.sequence for sample in samples]
    with torch.no_grad():
        for batch in group.micro_batches(engine.layout(config.tokens_per_rank), sequences, engine.device):
            scores = scorer(batch)
            if batch.targets.numel():  # the others only take part in gathering weights (ZeRO-3)
                counts = [samples[row].responded for row in batch.rows]
                result |= zip(batch.rows, scores.float().cpu().split(counts), strict=True)
    if group.groups > 1:
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, result)
        result = {row: value for part in parts for row, value in part.items()}
    return [result[row] for row in range(len(samples))]


def save_prepared(prepared: Prepared, folder: Path) -> None:
    """Write it as `prepared.safetensors`: after some steps the policy that it was computed with is gone."""
    tensors = {name: torch.cat(rows) for name in _FIELDS if (rows := getattr(prepared, name)) is not None}
    metadata = {name: repr(value) for name, value in (prepared.mismatch or {}).items()}
    metadata["corrected"] = str(int(prepared.corrected))
    with disk_errors(folder):
        save_file(tensors, folder / PREPARED_FILE, metadata=metadata)


def load_prepared(folder: Path, samples: Sequence[Sample]) -> Prepared:
    """Read what `save_prepared` wrote for these samples."""
    with safe_open(folder / PREPARED_FILE, framework="pt") as stored:
        metadata = dict(stored.metadata())
        tensors: dict[str, Tensor] = {name: stored.get_tensor(name) for name in list(stored.keys())}
    lengths = [sample.responded for sample in samples]
    rows = {name: list(tensors[name].split(lengths)) if name in tensors else None for name in _FIELDS}
    corrected = bool(int(metadata.pop("corrected")))
    return Prepared(
        **rows,  # pyright: ignore[reportArgumentType]
        corrected=corrected,
        mismatch={name: float(value) for name, value in metadata.items()} or None,
    )


def _same_numerics(policy: PolicyEngine, samples: Sequence[Sample], config: UpdateConfig) -> bool:
    """Score a few samples, from the shortest to the longest; every rank the same ones, and all come to one answer."""
    order = sorted(range(len(samples)), key=lambda row: samples[row].sequence.length)
    places = np.linspace(0, len(order) - 1, min(PROBED_SEQUENCES, len(order))).astype(int)
    probed = [samples[row] for row in sorted({order[place] for place in places})]
    new = torch.cat(score_samples(policy, probed, config, lambda batch: policy.score(batch)[0], ALONE))
    old = torch.from_numpy(np.concatenate([sample.sampler_log_probs for sample in probed]))
    apart = torch.tensor(mismatch(new, old, torch.ones_like(new))["mismatch_mean_abs"], device=policy.device)
    if policy.group.groups > 1:
        distributed.all_reduce(apart, distributed.ReduceOp.MAX)
    return float(apart) <= config.correction.tolerance
