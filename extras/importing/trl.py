"""TRL's `GRPOConfig`, from its YAML or the flags of `trl grpo`. Defaults are TRL's where ours differ."""

from collections.abc import Iterator
from typing import Any

from extras.importing.rules import Line, Rule, Trainer, Values, number, one_of, problems_from, rule, text, truth, whole

_LOSSES = {
    "grpo": "seq_mean_token_mean",
    "dapo": "token_mean",
    "bnpo": "token_mean",
    "dr_grpo": "seq_mean_token_sum_norm",
}


def _data(name: str, value: Any) -> list[Line]:
    path = text(name, value)
    if path.endswith((".jsonl", ".json", ".parquet")):
        return problems_from("", name, path)
    return [
        Line("problems.source", "huggingface", f"{name}: a dataset's folder; nothing is downloaded"),
        Line("problems.path", path, name),
    ]


_RULES: dict[str, Rule] = {
    "model_name_or_path": rule("model.pretrained", text),
    "dataset_name": _data,
    "num_generations": rule("rollout.samples_per_problem", whole),
    "num_iterations": rule("update.epochs", whole),
    "max_completion_length": rule("rollout.sampling.max_new_tokens", whole),
    "temperature": rule("rollout.sampling.temperature", number),
    "top_p": rule("rollout.sampling.top_p", number),
    "top_k": rule("rollout.sampling.top_k", lambda name, value: max(whole(name, value), 0), "-1 is 0 here"),
    "delta": rule("update.dual_clip", number),
    "loss_type": rule("update.aggregation", one_of(_LOSSES)),
    "importance_sampling_level": rule(
        "update.policy_loss", one_of({"token": "ppo_clip", "sequence": "gspo"}), "sequence is gspo"
    ),
    "mask_truncated_completions": rule("update.overlong", lambda name, value: "mask" if truth(name, value) else "keep"),
    "learning_rate": rule("update.learning_rate", number),
    "lr_scheduler_type": rule("update.schedule", one_of({"constant": "constant", "cosine": "cosine"})),
    "warmup_steps": rule("update.warmup_steps", whole),
    "weight_decay": rule("update.weight_decay", number),
    "max_grad_norm": rule("update.gradient_clip", number),
    "gradient_checkpointing": rule("update.activation_checkpointing", truth),
    "seed": rule("seed", whole),
    "save_steps": rule("update.checkpoint_interval", whole, "TRL counts optimizer steps, we count iterations"),
    "eval_steps": rule("evaluation.interval", whole, "TRL counts optimizer steps, we count iterations"),
}
_USED = (
    "generation_batch_size", "steps_per_generation", "gradient_accumulation_steps", "per_device_train_batch_size",
    "num_processes", "max_steps", "beta", "epsilon", "epsilon_high", "scale_rewards", "adam_beta1", "adam_beta2",
    "report_to", "num_generations", "bf16", "use_peft", "lora_r", "lora_alpha",
)  # fmt: skip
_NEEDLESS = {
    **dict.fromkeys(("reward_funcs", "reward_weights", "reward_model_name_or_path"), "see rollout.episode.reward"),
    **dict.fromkeys(("use_vllm", "vllm_mode", "vllm_gpu_memory_utilization", "vllm_server_base_url"), "SGLang here"),
    **dict.fromkeys(("output_dir", "run_name", "logging_steps", "log_completions"), "results lie in runs_dir"),
    **dict.fromkeys(("attn_implementation", "torch_dtype", "dtype", "fp16"), "see model.dtype"),
    "max_prompt_length": "the model's context; rollout.episode.history_tokens limits the history",
    "remove_unused_columns": "as always here",
    "num_train_epochs": "iterations count rollouts; max_steps is taken",
    "optim": "AdamW",
    "deepspeed": "see update.zero_stage and update.deepspeed",
}


def _derived(values: Values) -> list[Line]:
    return [*_batches(values), *_loss(values), *_machines(values)]


def _batches(values: Values) -> Iterator[Line]:
    samples = whole("num_generations", values.get("num_generations", 8))
    each = whole("per_device_train_batch_size", values.get("per_device_train_batch_size", 8))
    processes = whole("num_processes", values.get("num_processes", 1))
    accumulated = whole("gradient_accumulation_steps", values.get("gradient_accumulation_steps", 1))
    micro = whole("steps_per_generation", values.get("steps_per_generation", accumulated))
    batch = values.get("generation_batch_size")
    size = each * processes * micro if batch is None else whole("generation_batch_size", batch)
    remark = "generation_batch_size ÷ num_generations"
    if batch is None:
        remark = f"per_device_train_batch_size × processes × steps_per_generation ÷ num_generations = {each} × {processes} × {micro} ÷ {samples}"  # noqa: E501
    yield Line("rollout.problems_per_iteration", max(size // max(samples, 1), 1), remark)
    if "num_generations" not in values:
        yield Line("rollout.samples_per_problem", samples, "TRL's default")
    steps = max(micro // max(accumulated, 1), 1)
    yield Line("update.optimizer_steps", steps, "steps_per_generation ÷ gradient_accumulation_steps")
    if "max_steps" in values:
        passes = whole("num_iterations", values.get("num_iterations", 1))
        rollouts = max(whole("max_steps", values["max_steps"]) // (steps * passes), 1)
        yield Line("iterations", rollouts, "max_steps ÷ optimizer steps of a rollout")


def _loss(values: Values) -> Iterator[Line]:
    scaled = str(values.get("scale_rewards", True)).lower()
    yield Line("update.advantage", "dr_grpo" if scaled in ("false", "none") else "grpo", "scale_rewards")
    low = number("epsilon", values.get("epsilon", 0.2))
    yield Line("update.clip_low", low, "epsilon")
    yield Line("update.clip_high", number("epsilon_high", values.get("epsilon_high", low)), "epsilon_high")
    if "delta" not in values:
        yield Line("update.dual_clip", None, "TRL has none without delta; our default is 3")
    yield Line("update.kl_coefficient", number("beta", values.get("beta", 0.0)), "beta; our default is 0.01")
    yield Line("update.kl_estimator", "k3", "TRL's; our default is k3_k2")
    yield Line("update.entropy_coefficient", 0.0, "TRL has no such term; our default is 0.001")
    if "loss_type" not in values:
        yield Line("update.aggregation", "token_mean", "loss_type dapo, TRL's default")
    if "learning_rate" not in values:
        yield Line("update.learning_rate", 1e-6, "TRL's default; ours is 1e-3")
    betas = [number(name, values.get(name, usual)) for name, usual in (("adam_beta1", 0.9), ("adam_beta2", 0.999))]
    yield Line("update.betas", betas, "adam_beta1, adam_beta2")


def _machines(values: Values) -> Iterator[Line]:
    yield Line("model.dtype", "bfloat16", "our default is float32")
    yield Line("sft", "none", "TRL's GRPO starts from a trained model")
    yield Line("rollout.engine", "sglang", "our engine on a GPU")
    yield Line("update.credit", "return", "the discounted sum of a turn's and later rewards; our default is carried")
    yield Line("rollout.episode.task", "kernelbench", "TRL's completions have one turn")
    if "use_peft" in values and truth("use_peft", values["use_peft"]):
        rank = whole("lora_r", values.get("lora_r", 16))
        alpha = whole("lora_alpha", values.get("lora_alpha", 32))
        yield Line("update.lora", {"rank": rank, "alpha": alpha}, "use_peft, lora_r, lora_alpha")
    if "num_processes" in values:
        yield Line("update.ranks", whole("num_processes", values["num_processes"]), "num_processes of accelerate")
    yield Line("update.gpus_per_rank", 0.9, "the rest of one GPU is the judge's")
    yield Line("judge.device", "cuda", "kernels are measured; judge.targets names the GPU they are built for")
    if "report_to" in values:
        yield Line("tracking.mode", "online" if "wandb" in str(values["report_to"]) else "offline", "report_to")


TRL = Trainer("TRL", _RULES, _NEEDLESS, _derived, _USED)
