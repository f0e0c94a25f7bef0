"""Fixtures that every test may use."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from flows.services.prefect_server import PrefectServer

# The same examples in every run: what CI says of a commit must not depend on luck. `make slow` draws new ones.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("drawn", print_blob=True, deadline=None)
settings.load_profile(PROFILE := os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
if PROFILE == "fixed":
    # Hypothesis also tries constants that it reads from our modules: from those that happen to be loaded, so the order of tests would count.
    providers.is_local_module_file = lambda _path: False

# Before torch is imported anywhere. Tests share two cores with Ray workers and judge processes: a second thread would
# be waited for after every operation.
for name, value in {
    "OMP_NUM_THREADS": "1",
    "GOMP_SPINCOUNT": "10000",  # as in a run, for engines that ask for more threads
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(name, value)


@pytest.fixture(scope="session")
def ray_local() -> Iterator[None]:
    """A local Ray cluster for the whole test session."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # as in a run: Ray's workers starve on a busy machine otherwise
    import ray

    ray.init(
        "local", num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False
    )  # also where another cluster runs on this machine
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["PrefectServer"]:
    """A real Prefect server, the one that a run starts for itself. Commands that start from here on use it."""
    from flows.services.prefect_server import prefect_server

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        with prefect_server(tmp_path_factory.mktemp("server"), start_s=240) as started:
            yield started


@pytest.fixture(scope="session")
def save_experts() -> Callable[..., None]:
    """A function that saves a small Qwen3-MoE, whose second layer of three is dense, with a tokenizer."""

    def save(folder: Path, **changes: Any) -> None:
        import torch
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

        from tasks.models.policy import save_policy
        from tasks.models.tokenizer import train_tokenizer

        tokenizer = train_tokenizer([f"x = {number}\n" for number in range(50)], 300, folder.parent / "tokenizer")
        sizes = {
            "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
            "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [1],
            "norm_topk_prob": True, "tie_word_embeddings": True, "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None,
        }  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes | changes))
        with torch.no_grad():  # the library's initial weights choose experts almost evenly
            for weight in model.parameters():
                weight.mul_(3 if weight.dim() > 1 else 1)
        save_policy(model, tokenizer, folder)

    return save
