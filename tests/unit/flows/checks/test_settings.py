"""Settings that are wrong only in combination."""

from pathlib import Path

import pytest

from flows.checks.settings import check_settings
from flows.settings.configuration import load_configuration
from kernels_eval.errors import InputError

ONE_GPU = Path("deployments/configs/one-gpu.yaml")


@pytest.mark.parametrize(
    "overrides",
    [
        ["judge.workers=3"],
        ["judge.workers=4", "judge.device_memory_gb=14"],
        ["judge.device=auto", "judge.device_memory_gb=8"],
        ["rollout.judge_actors.count=1", "rollout.judge_actors.workers=3"],
    ],
)
def test_each_worker_has_memory_for_the_problems(overrides: list[str]) -> None:
    with pytest.raises(InputError, match=r"judge\.device_memory_gb: found \d+, expected [\d.]+ or more for \d workers"):
        check_settings(load_configuration(ONE_GPU, overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["judge.workers=4", "judge.device_memory_gb=22"],
        ["judge.workers=4", "judge.device_memory_gb=null"],
        ["judge.workers=3", "problems.sizes=small"],
        ["judge.workers=8", "judge.device=cpu"],
    ],
)
def test_memory_that_suffices_or_does_not_matter(overrides: list[str]) -> None:
    check_settings(load_configuration(ONE_GPU, overrides))


ADAPTERS = Path("deployments/configs/agents-adapters-gpu.yaml")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["update.lora=null"], r"rollout\.sglang\.adapter_rank: 16, with no update\.lora"),
        (["update.lora.rank=32"], r"adapter_rank: 16, with update\.lora\.rank = 32; expected .* at most that rank"),
        (["sft.shared=false"], r"adapter_rank: 16, but the agents do not begin with the same weights"),
        (["update.lora.targets=[q_proj]"], r"update\.lora\.targets: found q_proj; .* SGLang needs v_proj too"),
        (["update.lora.targets=[down_proj, up_proj]"], r"SGLang needs gate_proj too"),
        (["rollout.episode.agents.optimizer.weights=generator"], r"sft\.shared: true, but no agents with weights"),
        (
            ["rollout.episode.agents.optimizer.pretrained=models/other"],
            r"agents\.optimizer\.pretrained: with sft\.shared all agents begin with model\.pretrained",
        ),
    ],
)
def test_adapters_that_servers_cannot_hold_are_refused_at_the_start(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_settings(load_configuration(ADAPTERS, overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["update.lora.rank=8"],
        ["update.lora.targets=[q_proj, v_proj, gate_proj]"],
        ["update.lora.targets=[o_proj, down_proj]"],
        ["sft.shared=false", "sft=none", "model.pretrained=models/base"],
        ["sft.shared=false", "rollout.episode.agents={}"],
        ["rollout.sglang.adapter_rank=0", "sft.shared=false"],
    ],
)
def test_adapters_that_servers_can_hold(overrides: list[str]) -> None:
    check_settings(load_configuration(ADAPTERS, overrides))


def test_compiling_needs_something_to_compile_for() -> None:
    with pytest.raises(InputError, match=r"judge\.targets: found none to compile for, with judge\.compile = correct"):
        check_settings(load_configuration("test", ["judge.targets=[]", "judge.compile=correct"]))
    check_settings(load_configuration("test", ["judge.targets=[]", "judge.compile=never"]))


@pytest.mark.parametrize("key", ["tensor_parallel", "expert_parallel", "sequence_parallel_size"])
def test_a_deepspeed_file_that_parts_layers_itself_is_refused_at_the_start(tmp_path: Path, key: str) -> None:
    file = tmp_path / "ds.json"
    file.write_text(f'{{"{key}": 2}}')
    with pytest.raises(InputError, match=rf"ds\.json: {key}: ranks do not share layers this way; set update\."):
        check_settings(load_configuration(ONE_GPU, [f"update.deepspeed={file}"]))
    file.write_text('{"zero_optimization": {"stage": 3}}')
    check_settings(load_configuration(ONE_GPU, [f"update.deepspeed={file}"]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["sft.compile=true", "update.ranks=2", "update.zero_stage=3"], r"sft\.compile: found true, but ZeRO-3"),
        (["update.compile=true", "update.ranks=2", "update.zero_stage=3"], r"update\.compile: found true, but ZeRO-3"),
        (
            ["sft.compile=true", "update.ranks=2", "update.packing=packed", "update.context_parallel=2"],
            r"sft\.compile: found true, but an exchange",
        ),
    ],
)
def test_layers_are_compiled_only_where_each_rank_has_them_whole(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_settings(load_configuration(ONE_GPU, overrides))
    check_settings(load_configuration(ONE_GPU, ["sft.compile=true"]))
