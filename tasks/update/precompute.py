"""Tensors computed before the first optimizer step: old and reference log-probabilities, values, advantages.

The policy scores the batch first only if that can matter: not for a single optimizer step (the step's own
log-probabilities are the old ones), not for a sampler whose numerics are the trainer's, which a few probed sequences
show.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed

from tasks.training.attention import ALONE, SequenceGroup
from tasks.training.batches import Layout, MicroBatch, TrainedSequence
from tasks.update.config import UpdateConfig
from tasks.update.corrections import mismatch, mismatch_of_sums, mismatch_sums
from tasks.update.credit_assignment import Sample, Score, credit
from tasks.update.kl import kl_penalty

PREPARED_FILE = "prepared.safetensors"
PROBED_SEQUENCES = 8
_FIELDS = ("old_log_probs", "advantages", "reference_log_probs", "values", "returns")

Scorer = Callable[[MicroBatch], Tensor]
OldLogProbs = Literal["sampler", "trainer", "current"]


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
    group: SequenceGroup,
    samples: Sequence[Sample],
    config: UpdateConfig,
    steps: int,
    layout: Layout,
    device: torch.device,
    policy: Scorer,
    reference: Scorer | None,
    critic: Scorer | None,
    masked: Sequence[Score] = (),
) -> Prepared:
    """Return everything that the optimizer steps compare with. Every rank calls it, and gets all samples' tensors."""
    sequences = [sample.sequence for sample in samples]
    sampler = [torch.from_numpy(sample.sampler_log_probs) for sample in samples]

    def scored(scorer: Scorer) -> list[Tensor]:
        return score_samples(group, sequences, layout, device, scorer)

    in_reward = config.kl_coefficient > 0 and config.kl_in == "reward"
    source = config.old_log_probs
    if source != "sampler":
        if steps == 1 and not in_reward:
            source = "current"
        elif source == "auto":
            source = (
                "sampler" if _same_numerics(group, sequences, sampler, config, layout, device, policy) else "trainer"
            )
    old = {"sampler": sampler, "current": None, "trainer": None}[source]
    difference = None
    if source == "trainer":
        old = scored(policy)
        difference = mismatch_of_sums(
            *mismatch_sums(torch.cat(old), torch.cat(sampler), torch.ones(sum(map(len, old))))
        )
    references = None if reference is None else scored(reference)
    penalties = None
    if in_reward and references is not None and old is not None:
        pairs = zip(old, references, strict=True)
        penalties = [config.kl_coefficient * kl_penalty(new, base, config.kl_estimator) for new, base in pairs]
    values = None if critic is None else scored(critic)
    credited = credit(samples, config, penalties, values, masked)
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
    group: SequenceGroup, sequences: Sequence[TrainedSequence], layout: Layout, device: torch.device, scorer: Scorer
) -> list[Tensor]:
    """Return the scores [R_i] of every sequence's trained tokens, on the CPU; the ranks share the work."""
    result: dict[int, Tensor] = {}
    with torch.no_grad():
        for batch in group.micro_batches(layout, sequences, device):
            scores = scorer(batch)
            if batch.targets.numel():  # the others only take part in gathering weights (ZeRO-3)
                counts = [int(sequences[row].trained[1:].sum()) for row in batch.rows]
                result |= zip(batch.rows, scores.float().cpu().split(counts), strict=True)
    if group.groups > 1:
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, result)
        result = {row: value for part in parts for row, value in part.items()}
    return [result[row] for row in range(len(sequences))]


def save_prepared(prepared: Prepared, folder: Path) -> None:
    """Write it as `prepared.safetensors`: after some steps the policy that it was computed with is gone."""
    tensors = {name: torch.cat(rows) for name in _FIELDS if (rows := getattr(prepared, name)) is not None}
    metadata = {name: repr(value) for name, value in (prepared.mismatch or {}).items()}
    save_file(tensors, folder / PREPARED_FILE, metadata=metadata | {"corrected": str(int(prepared.corrected))})


def load_prepared(folder: Path, samples: Sequence[Sample]) -> Prepared:
    """Read what `save_prepared` wrote for these samples."""
    from safetensors import safe_open

    tensors = load_file(folder / PREPARED_FILE)
    with safe_open(folder / PREPARED_FILE, framework="pt") as stored:
        metadata = dict(stored.metadata())
    lengths = [sample.responded for sample in samples]
    rows = {name: list(tensors[name].split(lengths)) if name in tensors else None for name in _FIELDS}
    corrected = bool(int(metadata.pop("corrected")))
    return Prepared(
        **rows,  # pyright: ignore[reportArgumentType]
        corrected=corrected,
        mismatch={name: float(value) for name, value in metadata.items()} or None,
    )


def _same_numerics(
    group: SequenceGroup,
    sequences: Sequence[TrainedSequence],
    sampler: Sequence[Tensor],
    config: UpdateConfig,
    layout: Layout,
    device: torch.device,
    policy: Scorer,
) -> bool:
    """Score a few sequences, from the shortest to the longest; every rank the same ones, and all come to one answer."""
    order = sorted(range(len(sequences)), key=lambda row: sequences[row].length)
    places = np.linspace(0, len(order) - 1, min(PROBED_SEQUENCES, len(order))).astype(int)
    rows = sorted({order[place] for place in places})
    chosen = [sequences[row] for row in rows]
    found = score_samples(ALONE, chosen, layout, device, policy)
    new, old = torch.cat(found), torch.cat([sampler[row] for row in rows])
    apart = torch.tensor(mismatch(new, old, torch.ones_like(new))["mismatch_mean_abs"], device=device)
    if group.groups > 1:
        distributed.all_reduce(apart, distributed.ReduceOp.MAX)
    return float(apart) <= config.correction.tolerance
