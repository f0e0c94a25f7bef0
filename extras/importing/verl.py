"""verl's settings (`main_ppo`), from its YAML or hydra's overrides. Defaults are verl's where ours differ."""

from collections.abc import Iterator
from typing import Any

from extras.importing.rules import (
    Line,
    Rule,
    Trainer,
    Values,
    number,
    one_of,
    problems_from,
    rule,
    text,
    truth,
    whole,
)

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_ESTIMATORS = {"grpo": "grpo", "rloo": "rloo", "gae": "gae", "reinforce_plus_plus": "reinforce_pp"}
_KL = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "low_var_kl", "k3": "k3", "k3+": "k3_k2"}
_AGGREGATION = {
    name.replace("_", "-"): name
    for name in ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm")
}


def _files(setting: str) -> Rule:
    """Return the rule of a list of files, as YAML or as hydra writes one, of which one is read."""

    def lines(name: str, value: Any) -> list[Line]:
        listed = value if isinstance(value, list) else text(name, value).strip("[]").split(",")
        first = text(name, listed[0] if listed else "").strip("'\" ")
        return problems_from(setting, f"{name} (the first file)" if len(listed) > 1 else name, first)

    return lines


_RULES: dict[str, Rule] = {
    "actor_rollout_ref.model.path": rule("model.pretrained", text),
    "data.train_files": _files(""),
    "data.val_files": _files("heldout_"),
    "data.train_batch_size": rule("rollout.problems_per_iteration", whole),
    "data.max_response_length": rule("rollout.sampling.max_new_tokens", whole, "of one turn; verl's is of all"),
    f"{_ROLLOUT}.n": rule("rollout.samples_per_problem", whole),
    f"{_ROLLOUT}.temperature": rule("rollout.sampling.temperature", number),
    f"{_ROLLOUT}.top_p": rule("rollout.sampling.top_p", number),
    f"{_ROLLOUT}.top_k": rule("rollout.sampling.top_k", lambda name, value: max(whole(name, value), 0), "-1 is 0 here"),
    f"{_ROLLOUT}.multi_turn.max_assistant_turns": rule("rollout.episode.max_turns", whole),
    f"{_ROLLOUT}.val_kwargs.n": rule("evaluation.samples_per_problem", whole),
    f"{_ROLLOUT}.val_kwargs.temperature": rule("evaluation.temperature", number),
    f"{_ACTOR}.ppo_epochs": rule("update.epochs", whole),
    f"{_ACTOR}.ppo_max_token_len_per_gpu": rule("update.tokens_per_rank", whole),
    f"{_ACTOR}.ulysses_sequence_parallel_size": rule("update.context_parallel", whole),
    f"{_ACTOR}.kl_loss_type": rule("update.kl_estimator", one_of(_KL), "our default is k3_k2"),
    f"{_ACTOR}.entropy_coeff": rule("update.entropy_coefficient", number),
    f"{_ACTOR}.clip_ratio_c": rule("update.dual_clip", number),
    f"{_ACTOR}.grad_clip": rule("update.gradient_clip", number),
    f"{_ACTOR}.loss_agg_mode": rule("update.aggregation", one_of(_AGGREGATION)),
    f"{_ACTOR}.optim.lr": rule("update.learning_rate", number),
    f"{_ACTOR}.optim.weight_decay": rule("update.weight_decay", number),
    f"{_ACTOR}.optim.lr_warmup_steps": rule(
        "update.warmup_steps", lambda name, value: max(whole(name, value), 0), "-1 is 0 here"
    ),
    "actor_rollout_ref.model.enable_gradient_checkpointing": rule("update.activation_checkpointing", truth),
    "algorithm.gamma": rule("update.gamma", number, "from token to token"),
    "algorithm.lam": rule("update.gae_lambda", number),
    "critic.optim.lr": rule("update.critic.learning_rate", number),
    "critic.model.path": rule("update.critic.pretrained", text),
    "trainer.save_freq": lambda name, value: [
        Line("update.checkpoint_interval", max(whole(name, value), 1), f"{name}: in iterations")
    ],
    "trainer.test_freq": rule("evaluation.interval", lambda name, value: max(whole(name, value), 1), "in iterations"),
    "trainer.project_name": rule("tracking.project", text),
    "trainer.total_training_steps": rule("iterations", whole),
}
_USED = (
    "algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo", "algorithm.use_kl_in_reward",
    "algorithm.kl_ctrl.kl_coef", f"{_ACTOR}.use_kl_loss", f"{_ACTOR}.kl_loss_coef", f"{_ACTOR}.clip_ratio",
    f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio_high", f"{_ACTOR}.ppo_mini_batch_size", "trainer.logger",
    "trainer.nnodes", "trainer.n_gpus_per_node", f"{_ROLLOUT}.tensor_model_parallel_size",
    f"{_ROLLOUT}.gpu_memory_utilization", f"{_ROLLOUT}.multi_turn.enable",
)  # fmt: skip
_NEEDLESS = {
    "data.prompt_key": "the prompt is written by rollout.episode",
    "data.max_prompt_length": "the model's context; rollout.episode.history_tokens limits the history",
    "data.filter_overlong_prompts": "episodes without room for an answer end",
    "data.truncation": "prompts are never cut",
    "data.shuffle": "as always here",
    f"{_ROLLOUT}.name": "SGLang",
    f"{_ROLLOUT}.mode": "SGLang's servers are asynchronous",
    f"{_ACTOR}.use_dynamic_bsz": "micro-batches are packed to update.tokens_per_rank",
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": "micro-batches are packed to update.tokens_per_rank",
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": "micro-batches are packed to update.tokens_per_rank",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "micro-batches are packed to update.tokens_per_rank",
    "actor_rollout_ref.model.use_remove_padding": "packed on a GPU, as always here",
    "trainer.experiment_name": "the run's name",
    "trainer.default_local_dir": "results lie in runs_dir",
    "trainer.val_before_train": "policy 0 is evaluated, as always here",
    "trainer.total_epochs": "iterations count rollouts; trainer.total_training_steps is taken",
}
_PREFIXES = {
    f"{_ACTOR}.fsdp_config.": "update.zero_stage shards instead",
    "actor_rollout_ref.ref.fsdp_config.": "update.zero_stage shards instead",
    "custom_reward_function.": "the judge's verdict is the reward (rollout.episode.reward)",
    "reward_model.": "the judge's verdict is the reward (rollout.episode.reward)",
    "ray_kwargs.": "see ray",
    "hydra.": "of hydra alone",
}


def _derived(values: Values) -> list[Line]:
    return [*_loss(values), *_steps(values), *_machines(values)]


def _loss(values: Values) -> Iterator[Line]:
    asked = "algorithm.adv_estimator"
    ours = one_of(_ESTIMATORS)(asked, values.get(asked, "gae"))
    spread = truth("algorithm.norm_adv_by_std_in_grpo", values.get("algorithm.norm_adv_by_std_in_grpo", True))
    yield Line("update.advantage", "dr_grpo" if ours == "grpo" and not spread else ours, asked)
    both = number(f"{_ACTOR}.clip_ratio", values.get(f"{_ACTOR}.clip_ratio", 0.2))
    for end in ("low", "high"):
        name = f"{_ACTOR}.clip_ratio_{end}"
        yield Line(f"update.clip_{end}", number(name, values.get(name, both)), f"{name}; verl's default is 0.2")
    in_reward = truth("algorithm.use_kl_in_reward", values.get("algorithm.use_kl_in_reward", False))
    in_loss = truth(f"{_ACTOR}.use_kl_loss", values.get(f"{_ACTOR}.use_kl_loss", False))
    name = "algorithm.kl_ctrl.kl_coef" if in_reward else f"{_ACTOR}.kl_loss_coef"
    coefficient = number(name, values.get(name, 0.001)) if in_reward or in_loss else 0.0
    yield Line("update.kl_coefficient", coefficient, f"{name}; 0 where verl uses no divergence")
    yield Line("update.kl_in", "reward" if in_reward else "loss", "algorithm.use_kl_in_reward")
    if f"{_ACTOR}.entropy_coeff" not in values:
        yield Line("update.entropy_coefficient", 0.0, "verl's default; ours is 0.001")
    if f"{_ACTOR}.optim.lr" not in values:
        yield Line("update.learning_rate", 1e-6, "verl's default; ours is 1e-3")
    yield Line("update.schedule", "constant", "verl's default; ours is cosine")
    yield Line("update.correction.weights", "none", "verl's default; ours is token_tis")


def _steps(values: Values) -> Iterator[Line]:
    name = f"{_ACTOR}.ppo_mini_batch_size"
    batch, mini = values.get("data.train_batch_size"), values.get(name)
    if batch is not None and mini is not None:
        steps = max(whole("data.train_batch_size", batch) // max(whole(name, mini), 1), 1)
        yield Line("update.optimizer_steps", steps, f"data.train_batch_size ÷ ppo_mini_batch_size = {batch} ÷ {mini}")


def _machines(values: Values) -> Iterator[Line]:
    turns = values.get(f"{_ROLLOUT}.multi_turn.enable")
    several = turns is not None and truth(f"{_ROLLOUT}.multi_turn.enable", turns)
    yield Line("model.dtype", "bfloat16", "verl computes in it; our default is float32")
    yield Line("sft", "none", "verl's RL starts from a trained model")
    yield Line("rollout.engine", "sglang", "our engine on a GPU")
    yield Line("update.credit", "return", "the discounted sum of a turn's and later rewards; our default is carried")
    task = "kernelbench_multiturn" if several else "kernelbench"
    yield Line("rollout.episode.task", task, "multi_turn.enable")
    each = whole(f"{_ROLLOUT}.tensor_model_parallel_size", values.get(f"{_ROLLOUT}.tensor_model_parallel_size", 1))
    memory = values.get(f"{_ROLLOUT}.gpu_memory_utilization")
    flags = [] if memory is None else ["--mem-fraction-static", str(memory)]
    flags += ["--tp-size", str(each)] if each > 1 else []
    yield Line("rollout.sglang.gpus_per_server", each, "tensor_model_parallel_size of the rollout")
    if flags:
        yield Line("rollout.sglang.flags", flags, "gpu_memory_utilization, tensor_model_parallel_size")
    if "trainer.n_gpus_per_node" in values:
        nodes = whole("trainer.nnodes", values.get("trainer.nnodes", 1))
        ranks = nodes * whole("trainer.n_gpus_per_node", values["trainer.n_gpus_per_node"])
        remark = "all GPUs: verl's rollout shares them, ours has its own (`kernelmill plan` says what fits)"
        yield Line("update.ranks", ranks, remark)
    yield Line("update.zero_stage", 3, "as FSDP shards")
    yield Line("update.gpus_per_rank", 0.9, "the rest of one GPU is the judge's")
    yield Line("judge.device", "cuda", "kernels are measured; judge.targets names the GPU they are built for")
    logger = values.get("trainer.logger")
    if logger is not None:
        yield Line("tracking.mode", "online" if "wandb" in str(logger) else "offline", "trainer.logger")


VERL = Trainer("verl", _RULES, _NEEDLESS, _derived, _USED, _PREFIXES)
