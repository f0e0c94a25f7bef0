"""One optimizer step of the policy, and of the critic if there is one, over the micro-batches of all ranks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, distributed

from tasks.training.batches import MicroBatch, TrainedSequence
from tasks.training.engine import PolicyEngine, peak_flops, step_flops
from tasks.update.config import UpdateConfig
from tasks.update.corrections import mismatch_of_sums, mismatch_sums
from tasks.update.credit_assignment import Sample
from tasks.update.critic import CriticEngine
from tasks.update.losses import aggregate, masked_sum, normaliser_of, value_loss
from tasks.update.objective import Targets, objective
from tasks.update.precompute import Prepared


@dataclass(frozen=True)
class Item:
    """A micro-batch with what its losses compare with; all [n, R]."""

    batch: MicroBatch
    targets: Targets
    sampler_log_probs: Tensor
    old_values: Tensor | None
    returns: Tensor | None


class PhaseClock:
    """Seconds of a step's phases, by name."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        self._began = time.perf_counter()

    def ends(self, phase: str) -> None:
        """End a phase, which began at the end of the one before. Waits for the GPU, three times a step."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[phase] = now - self._began
        self._began = now


def optimizer_step(
    engine: PolicyEngine,
    critic: CriticEngine | None,
    config: UpdateConfig,
    samples: Sequence[Sample],
    rows: Sequence[int],
    prepared: Prepared,
    rate: float,
    longest_response: int,
    rate_share: float = 1.0,
    imitated: Sequence[TrainedSequence] = (),
) -> dict[str, float]:
    """Train on `rows` of the samples, and imitate; returns the step's figures.

    `rate_share`: the critic's share of its peak rate.
    """
    clock = PhaseClock(engine.device)
    chosen = [samples[row] for row in rows]
    batches = engine.micro_batches([sample.sequence for sample in chosen], config.tokens_per_rank)
    items = [_item(batch, chosen, rows, prepared) for batch in batches]
    further = engine.micro_batches(imitated, config.tokens_per_rank) if imitated else []
    normaliser, value_normaliser = normalisers(chosen, config, longest_response)
    parts: list[dict[str, Tensor]] = []
    maxima = torch.zeros(2, dtype=torch.float64, device=engine.device)
    clock.ends("batching_s")
    for number, item in enumerate(items):
        last = number == len(items) - 1
        log_probs, entropies = engine.score(item.batch)
        loss, sums = objective(item.batch, log_probs, entropies, item.targets, config, normaliser)
        engine.backward(loss, last=last and not further)
        new = item.batch.unflatten(log_probs.detach())
        of_mismatch, largest = mismatch_sums(new, item.sampler_log_probs, item.batch.mask)
        maxima = torch.maximum(maxima, largest)
        of_values: dict[str, Tensor] = {}
        if critic is not None:
            loss, of_values = _value_objective(critic, item, config, value_normaliser)
            critic.backward(loss, last=last)
        parts.append({**sums, **of_mismatch, **of_values})
    of_imitation = _imitate(engine, further, imitated, config.imitation) if imitated else {}
    clock.ends("gradients_s")
    norm = engine.step(rate)
    value_norm = 0.0 if critic is None else critic.step(config.critic.learning_rate * rate_share)
    clock.ends("optimizer_s")
    totals = _totals(engine, parts)
    if engine.world_size > 1:
        distributed.all_reduce(maxima, distributed.ReduceOp.MAX)
    work = sum(item.batch.padded_tokens for item in items)
    laid_out, own = sum(item.batch.tokens for item in items), _own_tokens(items, chosen)
    return {
        **_figures(totals, chosen, rows, prepared),
        **of_imitation,
        "gradient_norm": norm,
        **({} if critic is None else _value_figures(totals, value_norm)),
        **mismatch_of_sums(totals, maxima),
        "micro_batches": len(items),
        "token_budget": config.tokens_per_rank,
        "padding_fraction": 1 - laid_out / max(work, 1),
        "shared_fraction": (own - laid_out) / max(own, 1),
        **clock.seconds,
    }


def throughput(
    engine: PolicyEngine, samples: Sequence[Sample], seconds: float, ranks: int, shared_fraction: float
) -> dict[str, float]:
    """Return tokens/s, operations/s, and on a known GPU the share of its peak that the step achieved on all ranks.

    Tokens that samples share count for each of them, their operations once.
    """
    lengths = [sample.sequence.length for sample in samples]
    trained = sum(sample.responded for sample in samples)
    flops = step_flops(engine.model, lengths, trained, shared_fraction) / seconds
    peak = peak_flops(engine.device)
    return {
        "tokens_per_s": sum(lengths) / seconds,
        "tflops_per_s": flops / 1e12,
        **({} if peak is None else {"mfu": flops / (peak * ranks)}),
    }


def normalisers(samples: Sequence[Sample], config: UpdateConfig, longest_response: int) -> tuple[float, float]:
    """Return the divisors of the policy's and of the critic's loss, over the whole optimizer step and all ranks."""
    lengths = torch.tensor([sample.responded for sample in samples])
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    return normaliser_of(mask, config.aggregation, longest_response), normaliser_of(mask, "token_mean")


def _totals(engine: PolicyEngine, parts: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """Add up the sums of the micro-batches of all ranks, in float64."""
    total = torch.zeros(len(parts[0]), dtype=torch.float64, device=engine.device)
    for part in parts:
        total += torch.stack(list(part.values()))
    return dict(zip(parts[0], engine.sum_over_ranks(total).tolist(), strict=True))


def _item(batch: MicroBatch, samples: Sequence[Sample], rows: Sequence[int], prepared: Prepared) -> Item:
    device, places = batch.mask.device, batch.rows

    def laid_out(tensors: Sequence[Tensor] | None) -> Tensor | None:
        if tensors is None:
            return None
        return batch.unflatten(torch.cat([tensors[rows[place]] for place in places]).to(device))

    sampler = np.concatenate([samples[place].sampler_log_probs for place in places])
    sampler_log_probs = batch.unflatten(torch.from_numpy(sampler).to(device))
    advantages = laid_out(prepared.advantages)
    assert advantages is not None
    return Item(
        batch=batch,
        targets=Targets(
            old_log_probs=laid_out(prepared.old_log_probs),
            sampler_log_probs=sampler_log_probs if prepared.corrected else None,
            advantages=advantages,
            reference_log_probs=laid_out(prepared.reference_log_probs),
        ),
        sampler_log_probs=sampler_log_probs,
        old_values=laid_out(prepared.values),
        returns=laid_out(prepared.returns),
    )


def _imitate(
    engine: PolicyEngine, batches: Sequence[MicroBatch], imitated: Sequence[TrainedSequence], weight: float
) -> dict[str, float]:
    """Add the gradient of the answers' mean negative log-likelihood a token, times `weight`; returns that mean."""
    tokens = sum(int(sequence.trained.sum()) for sequence in imitated)
    total = torch.zeros(1, dtype=torch.float64, device=engine.device)
    for number, batch in enumerate(batches):
        log_probs = batch.unflatten(engine.score(batch)[0])
        loss = -masked_sum(log_probs, batch.mask) / tokens
        engine.backward(weight * loss, last=number == len(batches) - 1)
        total += loss.detach()
    return {"imitation_loss": float(engine.sum_over_ranks(total))}


def _value_objective(
    critic: CriticEngine, item: Item, config: UpdateConfig, normaliser: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return (this micro-batch's part of the value loss, sums over its tokens)."""
    assert item.old_values is not None
    assert item.returns is not None
    mask = item.batch.mask
    values = item.batch.unflatten(critic.score(item.batch))
    per_token, figures = value_loss(values, item.old_values, item.returns, config.critic.value_clip)
    loss = aggregate(per_token, mask, "token_mean", normaliser)
    error = item.returns - item.old_values
    terms = {
        "value_clipped": figures["clipped"].to(mask.dtype),
        "error": error,
        "squared_error": error**2,
        "return": item.returns,
        "squared_return": item.returns**2,
    }
    return loss, {"value_loss": loss.detach()} | {name: masked_sum(term, mask) for name, term in terms.items()}


def _figures(
    sums: dict[str, float], samples: Sequence[Sample], rows: Sequence[int], prepared: Prepared
) -> dict[str, float]:
    response_tokens = max(sums["tokens"], 1.0)
    advantages = np.array([float(prepared.advantages[row].mean()) for row in rows])
    returns = np.array([sample.return_ for sample in samples])
    lengths = np.array([sample.responded for sample in samples])
    return {
        "loss": sums["loss"],
        "policy_loss": sums["policy_loss"],
        "kl": sums["kl"] / response_tokens,
        "entropy": sums["entropy"] / response_tokens,
        "clip_fraction": sums["clipped"] / response_tokens,
        "dual_clip_fraction": sums["clipped_dual"] / response_tokens,
        "old_kl": sums["old_kl"] / response_tokens,
        "correction_weight": sums["weight"] / response_tokens,
        "rejected_fraction": sums["rejected"] / response_tokens,
        "samples": len(samples),
        "tokens": sum(sample.sequence.length for sample in samples),
        "response_tokens": int(response_tokens),
        "response_length_mean": float(lengths.mean()),
        "response_length_max": int(lengths.max()),
        "advantage_mean": float(advantages.mean()),
        "advantage_std": float(advantages.std()),
        "advantage_min": float(advantages.min()),
        "advantage_max": float(advantages.max()),
        "return_mean": float(returns.mean()),
    }


def _value_figures(sums: dict[str, float], norm: float) -> dict[str, float]:
    """`explained_variance`: the share of the returns' variance that the values before this update explain."""
    tokens = max(sums["tokens"], 1.0)
    variance = sums["squared_return"] / tokens - (sums["return"] / tokens) ** 2
    unexplained = sums["squared_error"] / tokens - (sums["error"] / tokens) ** 2
    return {
        "value_loss": sums["value_loss"],
        "value_clip_fraction": sums["value_clipped"] / tokens,
        "value_gradient_norm": norm,
        "explained_variance": 1 - unexplained / variance if variance > 1e-12 else 0.0,
    }


def _own_tokens(items: Sequence[Item], samples: Sequence[Sample]) -> int:
    """Tokens of the samples in this rank's micro-batches, padding and fillers apart."""
    return sum(samples[row].sequence.length for item in items if item.batch.targets.numel() for row in item.batch.rows)
