"""Mismatch of log-probabilities between a rollout's numerics and an update's, for random models, dense and of experts.

    python tools/expert_mismatch.py [--experts 64] [--active 8] [--layers 6] [--hidden 256] [--seeds 3]

A model of random weights samples answers in bfloat16, as an engine does; the same tokens are scored in another way:
in bfloat16 with other neighbours in the batch, or in float32. Of a mixture of experts the router's choices differ
then: `flips` is the share of (token, layer) whose set of experts is another one. `replayed` scores with the choices
that were made while sampling; weights of the experts are still computed anew. A line each (JSON): mean and 99th
percentile of |log p − log q| over sampled tokens, largest one, the estimate of KL(sampler ‖ scorer) in nats a token
(k3), and the share of tokens whose ratio leaves 0.8 … 1.28.
"""

import argparse
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

VOCABULARY = 1024
SEQUENCES, PROMPT, ANSWER = 16, 24, 96
LOW, HIGH = 0.8, 1.28
"""Ratios at which an update clips."""


def new_model(options: argparse.Namespace, seed: int, experts: bool) -> PreTrainedModel:
    """Return a model of random weights in float32, whose answers have about `options.sharp` times usual logits."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": options.hidden,
        "intermediate_size": 3 * options.hidden,
        "num_hidden_layers": options.layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "tie_word_embeddings": False,
        "attn_implementation": "sdpa",
    }
    of_experts: dict[str, Any] = {
        "num_experts": options.experts,
        "num_experts_per_tok": options.active,
        "moe_intermediate_size": 3 * options.hidden // options.active,
        "norm_topk_prob": True,
    }
    model = (
        Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **of_experts))
        if experts
        else Qwen3ForCausalLM(Qwen3Config(**shape))
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:  # activations keep their size from layer to layer
                fan_in = weight.shape[-1]
                weight.normal_(std=(options.sharp if "lm_head" in name else 1.0) / fan_in**0.5)
    return model.eval()


class Routing:
    """Choices of a model's routers, kept or given back, in the order of the layers; [tokens, active] each."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._routers = [each for each in model.modules() if isinstance(each, Qwen3MoeTopKRouter)]

    @contextmanager
    def kept(self) -> Generator[list[Tensor]]:
        """Yield a list to which each router's choices are added."""
        found: list[Tensor] = []
        hooks = [
            router.register_forward_hook(lambda _module, _inputs, output: found.append(output[2]))
            for router in self._routers
        ]
        try:
            yield found
        finally:
            for hook in hooks:
                hook.remove()

    @contextmanager
    def replayed(self, choices: Sequence[Tensor]) -> Generator[None]:
        """Make the routers choose these experts; how much each weighs is computed from their own logits."""

        def given(chosen: Tensor) -> Any:
            def replace(router: Any, _inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> Any:
                probabilities = output[0].softmax(-1, dtype=torch.float32).gather(-1, chosen)
                if router.norm_topk_prob:
                    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
                return output[0], probabilities.to(output[0].dtype), chosen

            return replace

        hooks = [
            router.register_forward_hook(given(chosen)) for router, chosen in zip(self._routers, choices, strict=True)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


@torch.no_grad()
def sampled(model: PreTrainedModel, seed: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return ids [B, T], log-probabilities of the answers [B, ANSWER], and a [B, T − 1, active] of choices a layer.

    One token after another with a cache, as an engine does.
    """
    torch.manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (SEQUENCES, PROMPT))
    cache, given, log_probs, steps = None, ids, list[Tensor](), list[list[Tensor]]()
    for _ in range(ANSWER):
        with Routing(model).kept() as choices:
            output = model(given, past_key_values=cache, use_cache=True)
        steps.append([each.view(SEQUENCES, given.shape[1], -1) for each in choices])
        cache, scores = output.past_key_values, output.logits[:, -1].float().log_softmax(-1)
        given = torch.multinomial(scores.exp(), 1)
        log_probs.append(scores.gather(-1, given))
        ids = torch.cat([ids, given], dim=1)
    layers = [torch.cat([step[layer] for step in steps], dim=1) for layer in range(len(steps[0]))]
    return ids, torch.cat(log_probs, dim=1), layers


@torch.no_grad()
def scored(
    model: PreTrainedModel, ids: Tensor, rows: int, choices: Sequence[Tensor] | None
) -> tuple[Tensor, list[Tensor]]:
    """Return log-probabilities of the answers and the choices, with `rows` sequences in a batch."""
    routing, parts, made = Routing(model), list[Tensor](), list[list[Tensor]]()
    for first in range(0, SEQUENCES, rows):
        part = ids[first : first + rows, :-1]
        given = [each[first : first + rows].flatten(0, 1) for each in choices or ()]
        with routing.kept() as found:
            if choices:
                with routing.replayed(given):
                    logits = model(part).logits
            else:
                logits = model(part).logits
        made.append([each.view(*part.shape, -1) for each in found])
        scores = logits.float().log_softmax(-1).gather(-1, ids[first : first + rows, 1:, None])[..., 0]
        parts.append(scores[:, PROMPT - 1 :])
    return torch.cat(parts), [torch.cat([part[layer] for part in made]) for layer in range(len(made[0]))]


def compare(sampler: Tensor, scorer: Tensor) -> dict[str, float]:
    """Return the figures of one comparison."""
    apart = (scorer - sampler).double().flatten()
    ratio = apart.exp()
    return {
        "mean": float(apart.abs().mean()),
        "p99": float(apart.abs().quantile(0.99)),
        "largest": float(apart.abs().max()),
        "kl": float((ratio - 1 - apart).mean()),
        "outside": float(((ratio < LOW) | (ratio > HIGH)).double().mean()),
    }


def flips(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return the share of (token, layer) whose sets of experts differ."""
    apart = [(a.sort(-1).values != b.sort(-1).values).any(-1).double().mean() for a, b in zip(one, other, strict=True)]
    return float(torch.stack(apart).mean()) if apart else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("experts", 64), ("active", 8), ("layers", 6), ("hidden", 256), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--sharp", type=float, default=2.0, help="factor of the head's weights: entropy of answers")
    options = parser.parse_args()
    for family in ("dense", "experts"):
        for seed in range(options.seeds):
            exact = new_model(options, seed, family == "experts")
            rough = new_model(options, seed, family == "experts").to(torch.bfloat16)
            ids, sampler, choices = sampled(rough, seed)
            said = {"family": family, "seed": seed, "surprise": round(float(-sampler.mean()), 3)}
            for scorer, model, rows in (("bfloat16", rough, 5), ("float32", exact, SEQUENCES)):
                for replayed in (False, True) if family == "experts" else (False,):
                    found, made = scored(model, ids, rows, choices if replayed else None)
                    figures = compare(sampler, found) | {"flips": 0.0 if replayed else flips(choices, made)}
                    line = said | {"scorer": scorer, "replayed": replayed}
                    print(
                        json.dumps(line | {name: float(f"{value:.3g}") for name, value in figures.items()}), flush=True
                    )


if __name__ == "__main__":
    main()
