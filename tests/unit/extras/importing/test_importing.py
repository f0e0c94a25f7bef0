"""Settings of slime, TritonForge, verl and TRL in their published forms become a configuration that says what differs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extras.importing.configuration import imported, text_of
from extras.importing.flags import Found, read_settings
from flows.cli.main import run
from flows.settings.configuration import RunConfig, load_configuration

TRITONFORGE = r"""#!/bin/bash
pkill -9 sglang
set -ex
export WANDB_KEY=${WANDB_KEY:-"planted-secret"}
export TP_SIZE=2    # Tensor parallelism
MODELS=/models
PROMPT_DATA=${MODELS}/kernel_bench_triton_level_1_2.jsonl
SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/qwen3-8B.sh"

MODEL_ARGS=(
   --swiglu
   --num-layers 36
   --normalization "RMSNorm"
)

CKPT_ARGS=(
  # the actor and the reference
  --load ${MODELS}/sft
  --ref-load ${MODELS}/sft
  --hf-checkpoint $MODELS/Qwen3-8B
  --save-interval 50
)

ROLLOUT_ARGS=(
   --rm-type kernelbench_multiturn
   --prompt-data ${PROMPT_DATA}
   --label-key label
   --num-rollout 1000
   --rollout-batch-size 4  # reduced
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --global-batch-size 16
   --max-turns 3
   --gamma 0.4
   --rollout-seed ${SEED}
)

# --lr 7

GRPO_ARGS=(--advantage-estimator grpo
   --use-kl-loss
   --kl-loss-coef 0.00
   --kl-loss-type low_var_kl
   --eps-clip 0.2
   --eps-clip-high 0.28)

ray start --head --num-gpus 6 --disable-usage-stats
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{
     "env_vars": {"PYTHONPATH": "/root/Megatron-LM/"}
   }' \
   -- python3 train_async.py \
   --actor-num-gpus-per-node 4 \
   --colocate \
   ${MODEL_ARGS[@]} \
   "${ROLLOUT_ARGS[@]}" \
   --lr=1e-6 \
   --rollout-num-gpus 2 \
   --tensor-model-parallel-size ${TP_SIZE} \
   --use-wandb \
   --wandb-key ${WANDB_KEY} \
   --disable-rewards-normalization
echo --num-rollout 7
"""
SLIME = """
ARGS=(
   --hf-checkpoint ./Qwen3-4B --ref-load ./Qwen3-4B_torch_dist
   --prompt-data ./train.parquet
   --rollout-batch-size 32 --n-samples-per-prompt 8 --num-steps-per-rollout 4
   --advantage-estimator gspo --calculate-per-token-loss --use-tis
   --kl-coef 0.01 --gamma 0.99
   --rollout-num-gpus 8 --rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7
   --eval-prompt-data held ./held.jsonl --eval-interval 20
)
python train.py ${ARGS[@]}
"""
VERL = r"""
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="['$HOME/a.parquet']" \
    data.val_files=/data/test.parquet \
    data.train_batch_size=64 \
    data.max_response_length=2048 \
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.actor.loss_agg_mode=token-mean \
    actor_rollout_ref.actor.fsdp_config.param_offload=False \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.name=sglang \
    +actor_rollout_ref.rollout.multi_turn.enable=True \
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4 \
    trainer.logger='["console","wandb"]' \
    trainer.n_gpus_per_node=8 \
    trainer.save_freq=20 trainer.test_freq=-1 \
    trainer.made_up=1 $@
"""
VERL_YAML = """
data: {train_files: [/data/train.parquet, /data/more.parquet], train_batch_size: 64}
actor_rollout_ref:
  model: {path: Qwen/Qwen3-8B}
  actor: {clip_ratio: 0.2, clip_ratio_high: 0.25, ppo_mini_batch_size: 32, kl_loss_coef: "${oc.select:x,1}"}
  rollout: {n: 5}
algorithm: {adv_estimator: gae, lam: 0.95}
"""
TRL = """
model_name_or_path: Qwen/Qwen2.5-Coder-7B-Instruct
dataset_name: /data/problems
num_generations: 8
generation_batch_size: 64
steps_per_generation: 8
gradient_accumulation_steps: 4
max_steps: 200
max_completion_length: 4096
beta: 0.02
epsilon_high: 0.28
loss_type: dr_grpo
scale_rewards: false
use_peft: true
lora_r: 32
reward_funcs: [my.reward]
log_on_each_node: false
"""
FILES: dict[str, tuple[str, str, dict[str, Any], set[str]]] = {
    "TritonForge": ("train.sh", TRITONFORGE, {
        "model.pretrained": "megatron:/models/sft", "model.like": "/models/Qwen3-8B", "sft.steps": 0,
        "problems.source": "jsonl", "problems.path": "/models/kernel_bench_triton_level_1_2.jsonl",
        "iterations": 1000, "rollout.problems_per_iteration": 4, "rollout.samples_per_problem": 8,
        "rollout.batch_size": 256, "update.save_interval": None, "update.optimizer_steps": 2,
        "update.checkpoint_interval": 50, "rollout.episode.task": "kernelbench_multiturn",
        "rollout.episode.max_turns": 3, "rollout.episode.gamma": 0.4, "update.gamma": 1.0,
        "update.advantage": "grpo", "update.credit": "return", "update.kl_coefficient": 0.0, "update.kl_in": "loss",
        "update.kl_estimator": "low_var_kl", "update.clip_high": 0.28, "update.dual_clip": None,
        "update.entropy_coefficient": 0.0, "update.aggregation": "seq_mean_token_mean",
        "update.correction.weights": "none", "update.learning_rate": 1e-6, "update.ranks": 4,
        "rollout.sglang.servers": 2, "tracking.mode": "online",
    }, {"rollout-seed", "disable-rewards-normalization"}),
    "slime": ("train.sh", SLIME, {
        "model.pretrained": "./Qwen3-4B", "problems.source": "parquet", "problems.heldout_path": "./held.jsonl",
        "problems.heldout_source": "jsonl", "update.policy_loss": "gspo", "update.aggregation": "token_mean",
        "update.correction.weights": "token_tis", "update.kl_in": "reward", "update.kl_coefficient": 0.01,
        "update.gamma": 0.99, "rollout.episode.task": "kernelbench", "update.optimizer_steps": 4,
        "rollout.sglang.servers": 4, "rollout.sglang.gpus_per_server": 2,
        "rollout.sglang.flags": ("--mem-fraction-static", "0.7", "--tp-size", "2"), "evaluation.interval": 20,
    }, set()),
    "verl's overrides": ("run.sh", VERL, {
        "problems.heldout_path": "/data/test.parquet", "rollout.problems_per_iteration": 64,
        "update.advantage": "grpo", "update.clip_high": 0.2, "update.kl_coefficient": 0.001,
        "update.aggregation": "token_mean", "update.optimizer_steps": 4, "rollout.episode.max_turns": 4,
        "rollout.episode.task": "kernelbench_multiturn", "evaluation.interval": 1, "update.ranks": 8,
        "tracking.mode": "online",
    }, {"data.train_files", "trainer.made_up"}),
    "verl's YAML": ("ppo.yaml", VERL_YAML, {
        "problems.path": "/data/train.parquet", "update.advantage": "gae", "update.gae_lambda": 0.95,
        "update.clip_low": 0.2, "update.clip_high": 0.25, "update.optimizer_steps": 2, "update.kl_coefficient": 0.0,
    }, {"actor_rollout_ref.actor.kl_loss_coef"}),
    "TRL": ("grpo.yaml", TRL, {
        "model.pretrained": "Qwen/Qwen2.5-Coder-7B-Instruct", "problems.source": "huggingface",
        "rollout.problems_per_iteration": 8, "rollout.samples_per_problem": 8, "update.optimizer_steps": 2,
        "iterations": 100, "update.kl_coefficient": 0.02, "update.clip_low": 0.2, "update.clip_high": 0.28,
        "update.aggregation": "seq_mean_token_sum_norm", "update.advantage": "dr_grpo", "update.lora.rank": 32,
    }, {"log_on_each_node"}),
}  # fmt: skip


def at(config: RunConfig, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("form", FILES)
def test_a_published_form_becomes_a_configuration(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name, content, expected, left_out = FILES[form]
    Path(name).write_text(content, encoding="utf-8")
    assert run(["import", name, "ours.yaml"]) == 0
    config = load_configuration("ours.yaml")
    assert {path: at(config, path) for path in expected} == expected
    written, said = Path("ours.yaml").read_text(encoding="utf-8"), capsys.readouterr().out
    assert "secret" not in written + said
    settings = [
        line for line in written.split("\n# Not understood")[0].split("\n# Needs no")[0].split("\n")[2:] if line
    ]
    assert all("  # " in line or line.endswith(":") for line in settings)
    listed = written.partition("# Not understood")[2].partition("# Needs no")[0]
    assert {
        line.removeprefix("#   ").partition(":")[0] for line in listed.split("\n") if line[:4] == "#   "
    } == left_out
    assert all(flag in said for flag in left_out)
    assert "needs SEED, which the file does not set" in written or form != "TritonForge"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.sh", "python train.py --rollout-batch-size four", "rollout-batch-size: found 'four', expected a number"),
        ("a.sh", "python train.py --rollout-batch-size 4.5", "expected a whole number"),
        ("a.sh", "python train.py --advantage-estimator best", "advantage-estimator: found 'best', expected one of grpo"),
        ("a.sh", "python train.py --lr nan", "lr: found 'nan', expected a number"),
        ("a.sh", "python train.py --rollout-batch-size 0", "rollout.problems_per_iteration: found 0"),
        ("a.sh", "python train.py --frobnicate 1 --other", "expected settings of slime, TritonForge, verl or TRL"),
        ("a.sh", "echo hello", "expected flags such as --lr 1e-6"),
        ("a.sh", "python train.py --lr 'open", "not a shell script: no closing quotation"),
        ("a.sh", b"\xff\xfe\x00", "expected a script or YAML file of UTF-8 text"),
        ("a.yaml", "- 1\n- 2\n", "expected a mapping of settings, found list"),
        ("a.yaml", "a: [", "not YAML"),
        ("a.yaml", "num_generations: true\nbeta: 0\n", "num_generations: found True, expected a number"),
        ("a.yaml", "", "expected a mapping of settings, found NoneType"),
        ("folder", None, "cannot be read: Is a directory"),
        ("missing.sh", None, "no such file"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence(
    name: str, content: str | bytes | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if name == "folder":
        Path(name).mkdir()
    elif content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(["import", name, "ours.yaml"]) == 2
    found = " ".join(capsys.readouterr().err.split())
    assert found.startswith(f"error: {name}")
    assert sentence in found
    assert not Path("ours.yaml").exists()


def test_a_file_is_not_replaced_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sh").write_text("python train.py --lr 1e-6")
    Path("a.yaml").write_text("mine")
    assert run(["import", "a.sh"]) == 2
    assert "a.yaml: exists" in capsys.readouterr().err
    assert run(["import", "a.sh", "--force"]) == 0


def test_an_explicit_trainer_is_believed(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("python x.py --learning_rate 1e-6 --lr 1e-5")
    found = imported(read_settings(tmp_path / "a.sh"), "slime")
    assert found.values["update"]["learning_rate"] == 1e-5
    assert found.not_understood == {"learning-rate": ""}


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=20), max_size=4))
def test_hostile_names_stay_comments(names: dict[str, str]) -> None:
    found = imported(Found({"lr": "1e-6", **{f"x{name}": value for name, value in names.items()}}, {}), "slime")
    assert yaml.safe_load(text_of(found, "title", "run")) == {"name": "run", **found.values}


def test_flags_alone_are_read(tmp_path: Path):
    (tmp_path / "flags.txt").write_text("--lr 1e-6 --n-samples-per-prompt 8\n--rollout-temperature=1\n# --no 1\n")
    expected = {"lr": "1e-6", "n-samples-per-prompt": "8", "rollout-temperature": "1"}
    assert read_settings(tmp_path / "flags.txt").values == expected
