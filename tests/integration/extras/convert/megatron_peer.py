"""A GPT model of the installed megatron-core on the CPU: writes and reads its own checkpoints, and computes logits.

`python megatron_peer.py SPEC.json` forks one process a rank of the tensor × pipeline × expert grid (gloo). The
specification names the architecture, the grid and what to do: `write` a random model and its logits, or `read` a
checkpoint and compute logits. Local layer specs: no Transformer Engine, no fused kernels.
Calls of CUDA's that megatron-core makes without asking for a device are replaced: `synchronize` does nothing,
`current_device` and `Tensor.cuda` stay on the CPU, and the random state of dropout, which is 0 here, is left alone.
The experts' router names a function of Transformer Engine's that megatron-core 0.16 leaves undefined without it.
"""

import contextlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import random as tp_random
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_config import TransformerConfig

SPEC: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
ARCHITECTURE, GRID = SPEC["architecture"], SPEC["grid"]


def main() -> None:
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda self, *_, **__: self
    moe_utils.te_general_gemm = None
    tp_random.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    ranks = GRID["tp"] * GRID["pp"] * GRID["dp"]
    torch.multiprocessing.start_processes(run_rank, (ranks,), nprocs=ranks, start_method="fork")


def run_rank(rank: int, ranks: int) -> None:
    file = Path(SPEC["logits"]).with_suffix(".rendezvous").resolve()
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=GRID["tp"],
        pipeline_model_parallel_size=GRID["pp"],
        expert_model_parallel_size=GRID["ep"],
        expert_tensor_parallel_size=GRID["etp"],
    )
    model = new_model()
    if SPEC["action"] == "write":
        draw_weights(model)
        save(model)
    else:
        load(model)
    logits = compute_logits(model)
    if logits is not None:
        torch.save(logits, SPEC["logits"])
    dist.barrier()
    dist.destroy_process_group()


def new_model() -> Any:
    config = TransformerConfig(
        num_layers=ARCHITECTURE["layers"],
        hidden_size=ARCHITECTURE["hidden"],
        ffn_hidden_size=ARCHITECTURE["intermediate"],
        num_attention_heads=ARCHITECTURE["heads"],
        num_query_groups=ARCHITECTURE["key_value_heads"],
        kv_channels=ARCHITECTURE["head_dim"],
        normalization="RMSNorm",
        layernorm_epsilon=ARCHITECTURE["norm_epsilon"],
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        add_qkv_bias=ARCHITECTURE["qkv_bias"],
        qk_layernorm=ARCHITECTURE["query_key_norm"],
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        persist_layer_norm=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        tensor_model_parallel_size=GRID["tp"],
        pipeline_model_parallel_size=GRID["pp"],
        expert_model_parallel_size=GRID["ep"],
        expert_tensor_parallel_size=GRID["etp"],
        pipeline_dtype=torch.float32,
        **experts(),
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(
            num_experts=ARCHITECTURE["experts"] or None,
            qk_layernorm=ARCHITECTURE["query_key_norm"],
            normalization="RMSNorm",
        ),
        vocab_size=ARCHITECTURE["padded_vocabulary"],
        max_sequence_length=64,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        parallel_output=False,
        share_embeddings_and_output_weights=ARCHITECTURE["tied"],
        position_embedding_type="rope",
        rotary_base=ARCHITECTURE["rope_theta"],
    ).eval()


def experts() -> dict[str, Any]:
    if not ARCHITECTURE["experts"]:
        return {}
    return {
        "num_moe_experts": ARCHITECTURE["experts"],
        "moe_router_topk": ARCHITECTURE["experts_per_token"],
        "moe_ffn_hidden_size": ARCHITECTURE["expert_intermediate"],
        "moe_router_load_balancing_type": "none",
        "moe_token_dispatcher_type": "allgather",
        "moe_router_pre_softmax": False,
    }


def draw_weights(model: Any) -> None:
    """Draw every weight anew, norms and biases included, differently on each rank; replicated ones are shared after."""
    generator = torch.Generator().manual_seed(SPEC["seed"] + dist.get_rank())
    group = parallel_state.get_tensor_model_parallel_group()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2 + (1.0 if "norm" in name else 0.0))
            if not getattr(weight, "tensor_model_parallel", False) and not is_expert(name):
                dist.broadcast(weight, dist.get_process_group_ranks(group)[0], group=group)
        share_over_data_ranks(model)
        share_with_last_stage(model)


def share_over_data_ranks(model: Any) -> None:
    group = parallel_state.get_data_parallel_group()
    for name, weight in model.named_parameters():
        if not is_expert(name):
            dist.broadcast(weight, dist.get_process_group_ranks(group)[0], group=group)


def share_with_last_stage(model: Any) -> None:
    """Give a tied output layer on the last stage the first stage's embedding."""
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    if ARCHITECTURE["tied"] and GRID["pp"] > 1 and (first or last):
        group = parallel_state.get_embedding_group()
        weight = model.shared_embedding_or_output_weight()
        dist.broadcast(weight, dist.get_process_group_ranks(group)[0], group=group)


def is_expert(name: str) -> bool:
    return ".experts." in name


def save(model: Any) -> None:
    folder = Path(SPEC["checkpoint"])
    arguments = Namespace(**SPEC["arguments"])
    if SPEC["format"] == "torch_dist":
        if dist.get_rank() == 0:
            folder.mkdir(parents=True)
        dist.barrier()
        state = {"args": arguments, "iteration": 1, "checkpoint_version": 3.0}
        state["model"] = model.sharded_state_dict(metadata=SPEC["metadata"])
        dist_checkpointing.save(state, str(folder))
        return
    state = {"args": arguments, "iteration": 1, "checkpoint_version": 3.0}
    state["model"] = model.state_dict_for_save_checkpoint()
    file = folder / shard_folder() / "model_optim_rng.pt"
    if parallel_state.get_expert_data_parallel_rank() == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, file)


def load(model: Any) -> None:
    folder = Path(SPEC["checkpoint"])
    if SPEC["format"] == "torch_dist":
        wanted = {"model": model.sharded_state_dict(metadata=SPEC["metadata"])}
        state = dist_checkpointing.load(wanted, str(folder))["model"]
    else:
        state = torch.load(folder / shard_folder() / "model_optim_rng.pt", weights_only=False)["model"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("_extra_state")]
    if missing or unexpected:
        raise SystemExit(f"missing {missing}, unexpected {unexpected}")


def shard_folder() -> str:
    """Return the name of a rank's folder as megatron.training's `get_checkpoint_name` makes it."""
    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if GRID["pp"] > 1:
        name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    if GRID["ep"] > 1:
        name += f"_{parallel_state.get_expert_model_parallel_rank():03d}"
    return name


@torch.no_grad()
def compute_logits(model: Any) -> torch.Tensor | None:
    """Return the logits [batch, sequence, padded vocabulary] on the last stage's first rank, else None."""
    tokens = torch.tensor(SPEC["tokens"])
    batch, length = tokens.shape
    positions = torch.arange(length).expand(batch, length)
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    if not parallel_state.is_pipeline_first_stage():
        received = torch.empty(length, batch, ARCHITECTURE["hidden"])
        dist.recv(received, parallel_state.get_pipeline_model_parallel_prev_rank())
        model.set_input_tensor(received)
    output = model(tokens, positions, mask)
    if not parallel_state.is_pipeline_last_stage():
        dist.send(output.contiguous(), parallel_state.get_pipeline_model_parallel_next_rank())
        return None
    first = parallel_state.get_tensor_model_parallel_rank() == 0 and parallel_state.get_data_parallel_rank() == 0
    return output if first else None


if __name__ == "__main__":
    main()
