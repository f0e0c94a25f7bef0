"""Memory beside the ranks': of the host, and of a GPU that judge, canary and server share with the update."""

import json
from pathlib import Path

import pytest

from flows.capacity.memory import GIB, KNOWN
from flows.capacity.planner import CapacityPlan, plan
from flows.capacity.speed import GPUS
from flows.cli.main import run
from flows.settings.configuration import load_configuration

CONFIGS = Path("deployments/configs")
QWEN3 = KNOWN["Qwen/Qwen3-8B"].parameters


def planned(name: str, *settings: str, gpu: str = "h100") -> CapacityPlan:
    return plan(load_configuration(CONFIGS / f"{name}.yaml", settings), GPUS[gpu])


@pytest.mark.parametrize("gpu", ["rtx4090", "h100"])
@pytest.mark.parametrize("name", ["one-gpu", "cuda-gpu", "agents-gpu", "agents-adapters-gpu"])
def test_the_configurations_for_one_gpu_fit_24_gb(name: str, gpu: str):
    found = planned(name, gpu=gpu)
    assert found.gpus == 1
    assert found.fits
    assert found.beside.keys() == {"servers", "canary", "judge"}
    assert all(found.beside.values())


SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "vocab_size": 49152,
    "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
ADAPTERS = ("sft.shared=true", "rollout.sglang.adapter_rank=16", "update.lora={rank: 16, alpha: 32}")


def test_two_pretrained_agents_fit_80_gb_and_as_adapters_they_share_a_server(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    whole, adapters = (planned("agents-smollm2", f"model.pretrained={tmp_path}", *more) for more in ((), ADAPTERS))
    assert (whole.gpus, adapters.gpus) == (1, 1)
    assert whole.fits
    assert adapters.fits
    assert adapters.beside["servers"] < 0.6 * whole.beside["servers"]


def test_on_one_gpu_everything_has_to_fit_together():
    assert not planned("one-gpu", "judge.device_memory_gb=20", gpu="rtx4090").fits
    assert planned("one-gpu", "judge.device_memory_gb=20").fits
    assert planned("one-gpu").beside["judge"] == 11 * GIB, "the contexts are part of it"
    free = [planned("one-gpu", "judge.device_memory_gb=null", f"judge.workers={count}") for count in (2, 3)]
    assert free[1].beside["judge"] > free[0].beside["judge"], "the contexts alone"


def test_the_canary_is_in_host_memory_unless_the_rollout_has_a_gpu():
    on_cpu = planned("qwen3-8b-multi-turn")
    assert on_cpu.beside["canary"] == 0
    assert on_cpu.host["rollout and canary"] > 2 * QWEN3
    on_gpu = planned("qwen3-8b-multi-turn", "rollout.gpus=1", "rollout.sglang.canary_dtype=float32")
    assert on_gpu.beside["canary"] > 4 * QWEN3


def test_ranks_load_the_weights_and_keep_no_optimizer_state_in_host_memory(tmp_path: Path):
    found = planned("qwen3-8b-multi-turn")
    assert 4 * 2 * QWEN3 < found.host["ranks"] < 4 * (2 * QWEN3 + 4 * GIB)
    assert found.host["offloaded optimizer"] == 0
    file = tmp_path / "zero.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}))
    offloaded = planned("qwen3-8b-multi-turn", f"update.deepspeed={file}")
    assert offloaded.host["offloaded optimizer"] == (12 + 4 + 4) * QWEN3  # gradients: accumulated, and stepped on
    assert offloaded.training["optimizer"] == offloaded.training["gradients"] == 0
    assert sum(offloaded.training.values()) < sum(found.training.values()) - 4 * QWEN3


def test_a_part_of_the_optimizer_lies_in_host_memory():
    settings = ("update.ranks=1", "update.context_parallel=1", "sft=none", "rollout.sglang.servers=1")
    found = planned(
        "qwen3-8b-multi-turn", *settings, "update.deepspeed=deployments/deepspeed/zero3-offload-partly.json"
    )
    assert found.training["optimizer"] == pytest.approx(0.3 * 12 * QWEN3)
    assert found.host["offloaded optimizer"] == pytest.approx((0.7 * 16 + 4) * QWEN3)
    assert not found.training_fits
    whole = planned("qwen3-8b-multi-turn", *settings, "update.deepspeed=deployments/deepspeed/zero3-offload.json")
    assert whole.training_fits
    assert whole.lowest_stage == 3  # the file offloads at its own stage alone


def test_little_disk_is_said_in_gib(capsys: pytest.CaptureFixture[str]):
    assert run(["plan", str(CONFIGS / "qwen3-8b-multi-turn.yaml"), "--set", "iterations=1"]) == 0
    assert "107 GiB a checkpoint; 122 GiB of the first policy and 1 iteration stay" in capsys.readouterr().out


def test_the_command_says_it(capsys: pytest.CaptureFixture[str]):
    assert run(["plan", str(CONFIGS / "one-gpu.yaml"), "--gpu", "rtx4090"]) == 0
    said = capsys.readouterr().out
    assert "host memory, estimated:" in said
    assert "GPU memory beside the update, estimated, GiB: servers" in said
    assert "all on one GPU: fits" in said


def test_agents_that_are_adapters_share_the_servers():
    apart, together = planned("agents-adapters-gpu", "rollout.sglang.adapter_rank=0"), planned("agents-adapters-gpu")
    assert apart.generation_gpus - together.generation_gpus == pytest.approx(0.3)
    assert apart.beside["servers"] == pytest.approx(2 * together.beside["servers"])
