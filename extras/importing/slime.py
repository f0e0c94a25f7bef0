"""slime's flags, and TritonForge's, which is slime with turns. Defaults are slime's where ours differ."""

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

_ESTIMATORS = {
    "grpo": "grpo",
    "gspo": "grpo",
    "reinforce_plus_plus": "reinforce_pp",
    "ppo": "gae",
    "reinforce_plus_plus_baseline": "grpo",
}
_TASKS = {"kernelbench": "kernelbench", "kernelbench_multiturn": "kernelbench_multiturn"}


def _heldout(name: str, value: Any) -> list[Line]:
    """Return the settings of `--eval-prompt-data NAME FILE`."""
    path = value[1] if isinstance(value, list) and len(value) > 1 else text(name, value)
    return problems_from("heldout_", f"{name} (the first file)", path.partition("@")[0])


_SGLANG = {"sglang-mem-fraction-static": "--mem-fraction-static", "sglang-context-length": "--context-length"}
_RULES: dict[str, Rule] = {
    "prompt-data": lambda name, value: problems_from("", name, text(name, value).partition("@")[0]),
    "num-rollout": rule("iterations", whole),
    "rollout-batch-size": rule("rollout.problems_per_iteration", whole, "here batch_size is something else"),
    "n-samples-per-prompt": rule("rollout.samples_per_problem", whole),
    "rollout-max-response-len": rule("rollout.sampling.max_new_tokens", whole, "of one turn"),
    "rollout-temperature": rule("rollout.sampling.temperature", number, "another than 1 is off the policy"),
    "rollout-top-p": rule("rollout.sampling.top_p", number),
    "rollout-top-k": rule("rollout.sampling.top_k", lambda name, value: max(whole(name, value), 0), "-1 is 0 here"),
    "max-turns": rule("rollout.episode.max_turns", whole),
    "entropy-coef": rule("update.entropy_coefficient", number),
    "eps-clip-c": rule("update.dual_clip", number),
    "kl-loss-type": rule(
        "update.kl_estimator", one_of({name: name for name in ("k1", "k2", "k3", "low_var_kl")}), "our default is k3_k2"
    ),
    "lr": rule("update.learning_rate", number),
    "lr-decay-style": rule("update.schedule", one_of({"constant": "constant", "cosine": "cosine"})),
    "lr-warmup-iters": rule("update.warmup_steps", whole),
    "weight-decay": rule("update.weight_decay", number),
    "max-tokens-per-gpu": rule("update.tokens_per_rank", whole, "halved once if memory does not suffice"),
    "context-parallel-size": rule("update.context_parallel", whole),
    "recompute-granularity": rule("update.activation_checkpointing", lambda name, value: True),
    "optimizer-cpu-offload": rule("update.deepspeed", lambda name, value: "zero3-offload", "ZeRO-3 with offload"),
    "eval-interval": rule("evaluation.interval", whole),
    "n-samples-per-eval-prompt": rule("evaluation.samples_per_problem", whole),
    "eval-temperature": rule("evaluation.temperature", number),
    "eval-prompt-data": _heldout,
    "save-interval": lambda name, value: [
        Line("update.checkpoint_interval", whole(name, value), f"{name}: here save_interval is something else"),
        Line("update.weights_interval", whole(name, value), name),
    ],
    "use-wandb": lambda name, value: (
        [Line("tracking.mode", "online", f"{name}; the key comes from WANDB_API_KEY")] * truth(name, value)
    ),
    "wandb-project": rule("tracking.project", text),
    "seed": rule("seed", whole),
    "rollout-seed": rule("seed", whole, "one seed for all stages"),
}


def _each(names: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


_NEEDLESS = {
    **_each(
        """swiglu num-layers hidden-size ffn-hidden-size num-attention-heads group-query-attention num-query-groups
        use-rotary-position-embeddings disable-bias-linear normalization norm-epsilon rotary-base vocab-size
        kv-channels qk-layernorm untie-embeddings-and-output-weights add-qkv-bias make-vocab-size-divisible-by
        rotary-percent use-rope-scaling max-position-embeddings seq-length""",
        "read from the model's config.json",
    ),
    **_each(
        """tensor-model-parallel-size pipeline-model-parallel-size expert-model-parallel-size
        expert-tensor-parallel-size sequence-parallel""",
        "weights are sharded by update.zero_stage instead",
    ),
    **_each(
        "balance-data use-dynamic-batch-size micro-batch-size log-probs-max-tokens-per-gpu",
        "micro-batches are packed to update.tokens_per_rank",
    ),
    **_each(
        """accumulate-allreduce-grads-in-fp32 attention-softmax-in-fp32 attention-dropout hidden-dropout optimizer
        use-precision-aware-optimizer overlap-cpu-optimizer-d2h-h2d attention-backend use-distributed-optimizer""",
        "AdamW with sums in float32, without dropout, as always here",
    ),
    **_each("recompute-method recompute-num-layers", "every layer is recomputed, or none"),
    **_each(
        """rollout-shuffle apply-chat-template input-key metadata-key tool-key no-load-optim no-load-rng
        offload-old-actor offload-ref offload colocate""",
        "as always here",
    ),
    **_each(
        "custom-rm-path reward-key custom-generate-function-path",
        "the judge's verdict is the reward (rollout.episode.reward)",
    ),
    **_each("rollout-function-path agent-rollout-buffer-url", "rollouts are ours"),
    **_each("wandb-key wandb-group wandb-team wandb-dir", "W&B's own variables; keys are not copied"),
    **_each("eval-top-p eval-top-k", "evaluation draws from the whole distribution"),
    "loss-mask-type": "recognised from the tokenizer's chat template (model.template requires one)",
    "save": "results lie in runs_dir",
    "num-epoch": "iterations count rollouts, as num-rollout does",
    "log-passrate": "reports have it",
    "eval-max-response-len": "as rollout.sampling.max_new_tokens",
    "rollout-max-context-len": "the model's context",
    "rollout-max-prompt-len": "the model's context; rollout.episode.history_tokens limits the history",
    "sglang-log-level": "logs are the run's",
}
_USED = (
    "hf-checkpoint", "load", "ref-load", "advantage-estimator", "disable-grpo-std-normalization", "use-kl-loss",
    "kl-loss-coef", "kl-coef", "eps-clip", "eps-clip-high", "calculate-per-token-loss", "adam-beta1", "adam-beta2",
    "global-batch-size", "num-steps-per-rollout", "actor-num-nodes", "actor-num-gpus-per-node", "rollout-num-gpus",
    "rollout-num-gpus-per-engine", "rollout-task-type", "rm-type", "gamma", "lambd", "use-tis", "tis-clip",
    "dynamic-sampling-filter-path", "label-key", "clip-grad", *_SGLANG,
)  # fmt: skip


def _derived(values: Values) -> list[Line]:
    return [*_model(values), *_episode(values), *_loss(values), *_optimizer(values), *_machines(values)]


def _model(values: Values) -> Iterator[Line]:
    given, load, reference = (values.get(name) for name in ("hf-checkpoint", "load", "ref-load"))
    if load is not None and load == reference:
        yield Line("model.pretrained", f"megatron:{text('load', load)}", "load, the same as ref-load: Megatron weights")
        if given is not None:
            yield Line("model.like", text("hf-checkpoint", given), "hf-checkpoint: configuration and tokenizer")
    elif given is not None:
        other = "; load and ref-load hold the same weights for Megatron, or megatron:PATH names others"
        remark = f"hf-checkpoint{other if reference or load else ''}"
        yield Line("model.pretrained", text("hf-checkpoint", given), remark)
    yield Line("model.dtype", "bfloat16", "slime's default; ours is float32")
    yield Line("sft", "none", "slime's RL starts from a trained model")
    label = values.get("label-key")
    if label is not None and label != "label":
        yield Line("problems.columns", {"source": text("label-key", label)}, "label-key")


def _episode(values: Values) -> Iterator[Line]:
    named = next((values[name] for name in ("rollout-task-type", "rm-type") if values.get(name) in _TASKS), None)
    turns = named == "kernelbench_multiturn"
    yield Line("rollout.engine", "sglang", "slime generates with SGLang")
    yield Line("update.credit", "return", "the discounted sum of a turn's and later rewards; our default is carried")
    yield Line(
        "rollout.episode.task",
        "kernelbench_multiturn" if turns else "kernelbench",
        "rollout-task-type" if named else "slime's own rollouts have one turn",
    )
    if "gamma" in values:
        setting = "rollout.episode.gamma" if turns else "update.gamma"
        remark = "gamma, from turn to turn" if turns else "gamma, from token to token"
        yield Line(setting, number("gamma", values["gamma"]), remark)
    if "lambd" in values:
        yield Line("update.gae_lambda", number("lambd", values["lambd"]), "lambd")


def _loss(values: Values) -> Iterator[Line]:
    asked = str(values.get("advantage-estimator", "grpo"))
    ours = one_of(_ESTIMATORS)("advantage-estimator", asked)
    plain = truth("disable-grpo-std-normalization", values.get("disable-grpo-std-normalization", False))
    remark = "advantage-estimator: of several turns each gets the whole return; turn_grpo compares turn by turn"
    if ours == "grpo" and (plain or asked == "reinforce_plus_plus_baseline"):
        ours, remark = "dr_grpo", "advantage-estimator without the division by the spread"
    yield Line("update.advantage", ours, remark)
    if asked == "gspo":
        yield Line("update.policy_loss", "gspo", "advantage-estimator")
    low = number("eps-clip", values.get("eps-clip", 0.2))
    yield Line("update.clip_low", low, "eps-clip")
    yield Line("update.clip_high", number("eps-clip-high", values.get("eps-clip-high", low)), "eps-clip-high")
    if "eps-clip-c" not in values:
        yield Line("update.dual_clip", None, "slime has none without eps-clip-c; our default is 3")
    in_loss = truth("use-kl-loss", values.get("use-kl-loss", False))
    name = "kl-loss-coef" if in_loss else "kl-coef"
    yield Line("update.kl_coefficient", number(name, values.get(name, 0)), f"{name}; our default is 0.01")
    yield Line("update.kl_in", "loss" if in_loss else "reward", "use-kl-loss")
    if "entropy-coef" not in values:
        yield Line("update.entropy_coefficient", 0.0, "slime's default; ours is 0.001")
    per_token = truth("calculate-per-token-loss", values.get("calculate-per-token-loss", False))
    yield Line("update.aggregation", "token_mean" if per_token else "seq_mean_token_mean", "calculate-per-token-loss")
    corrected = truth("use-tis", values.get("use-tis", False))
    yield Line("update.correction.weights", "token_tis" if corrected else "none", "use-tis; our default is token_tis")
    if corrected and "tis-clip" in values:
        yield Line("update.correction.upper", number("tis-clip", values["tis-clip"]), "tis-clip")
    if "dynamic-sampling-filter-path" in values:
        wanted = whole("rollout-batch-size", values.get("rollout-batch-size", 1))
        yield Line("update.wanted_groups", wanted, "dynamic-sampling-filter-path: groups of equal rewards are replaced")


def _optimizer(values: Values) -> Iterator[Line]:
    betas = [number(name, values.get(name, usual)) for name, usual in (("adam-beta1", 0.9), ("adam-beta2", 0.95))]
    yield Line("update.betas", betas, "adam-beta1, adam-beta2")
    if "lr" not in values:
        yield Line("update.learning_rate", 1e-6, "no lr was given; our default is 1e-3, for small models from scratch")
    if "lr-decay-style" not in values:
        yield Line("update.schedule", "constant", "lr-decay-style was not given; our default is cosine")
    yield Line("update.gradient_clip", number("clip-grad", values.get("clip-grad", 1)), "clip-grad")
    if "num-steps-per-rollout" in values:
        steps = whole("num-steps-per-rollout", values["num-steps-per-rollout"])
        yield Line("update.optimizer_steps", steps, "num-steps-per-rollout")
    elif "global-batch-size" in values:
        batch = whole("global-batch-size", values["global-batch-size"])
        rollouts = whole("rollout-batch-size", values.get("rollout-batch-size", 1))
        samples = whole("n-samples-per-prompt", values.get("n-samples-per-prompt", 1))
        steps = max(round(rollouts * samples / max(batch, 1)), 1)
        remark = f"rollout-batch-size × n-samples-per-prompt ÷ global-batch-size = {rollouts} × {samples} ÷ {batch}"
        yield Line("update.optimizer_steps", steps, f"{remark}; a step has the turns of so many conversations")


def _machines(values: Values) -> Iterator[Line]:
    yield Line("judge.device", "cuda", "kernels are measured; judge.targets names the GPU they are built for")
    yield Line("update.gpus_per_rank", 0.9, "the rest of one GPU is the judge's")
    if "actor-num-gpus-per-node" in values:
        nodes = whole("actor-num-nodes", values.get("actor-num-nodes", 1))
        ranks = nodes * whole("actor-num-gpus-per-node", values["actor-num-gpus-per-node"])
        yield Line("update.ranks", ranks, "actor-num-nodes × actor-num-gpus-per-node")
    yield Line("update.zero_stage", 3, "in place of tensor and pipeline parallelism")
    each = whole("rollout-num-gpus-per-engine", values.get("rollout-num-gpus-per-engine", 1))
    if "rollout-num-gpus" in values:
        servers = max(whole("rollout-num-gpus", values["rollout-num-gpus"]) // max(each, 1), 1)
        yield Line("rollout.sglang.servers", servers, "rollout-num-gpus ÷ rollout-num-gpus-per-engine")
    yield Line("rollout.sglang.gpus_per_server", each, "rollout-num-gpus-per-engine")
    flags = [part for name, ours in _SGLANG.items() if name in values for part in (ours, text(name, values[name]))]
    flags += ["--tp-size", str(each)] if each > 1 else []
    if flags:
        yield Line("rollout.sglang.flags", flags, "flags of SGLang without the prefix")


SLIME = Trainer(
    name="slime",
    rules=_RULES,
    needless=_NEEDLESS,
    derived=_derived,
    used=_USED,
)
