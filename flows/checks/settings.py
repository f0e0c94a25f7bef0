"""Checks of settings that are wrong only in combination, before anything expensive starts.

Each raises an InputError that names the setting and the remedy.
"""

from pathlib import Path

from flows.capacity.overlap import times_beside_ranks
from flows.checks.named_files import check_suites
from flows.settings.configuration import RunConfig
from flows.settings.plurals import counted
from kernels_eval.backends import backend_named
from kernels_eval.config import AUTO
from kernels_eval.errors import InputError
from kernels_eval.frozen import named_code
from tasks.agents.config import owners
from tasks.pipeline.retries import STAGE_NAMES
from tasks.problems.synthetic.sizes import JUDGE_WORKER_GIB
from tasks.rollout.engines.kind import kind_of
from tasks.rollout.prompts import prompt_messages
from tasks.training.config import check_compiled, check_heads
from tasks.training.deepspeed_file import read_deepspeed_file, stage_of, stage_on
from tasks.update.doors import names_that_compare

OTHER_PARALLELISM = {
    "tensor_parallel": "update.zero_stage=3 for weights that are too large for one rank",
    "expert_parallel": "update.zero_stage=3 for weights that are too large for one rank",
    "sequence_parallel_size": "update.context_parallel",
}
"""Keys of a DeepSpeed file by which it parts layers itself, and what does the same here."""


def check_settings(config: RunConfig) -> None:
    """Check settings that are wrong only in combination."""
    samples = config.evaluation.samples_per_problem
    too_many = [k for k in config.evaluation.pass_at if k > samples]
    if too_many:
        raise InputError(
            f"evaluation.pass_at: found {too_many[0]}, expected at most evaluation.samples_per_problem = {samples}"
        )
    check_named_code(config)
    check_problems(config)
    check_device_memory(config)
    check_rollout_judge(config)
    check_episode(config)
    check_staleness(config)
    check_credit(config)
    check_weights_can_move(config)
    check_shared_base(config)
    check_served_adapters(config)
    check_reasoning(config)
    check_judged(config)
    if not config.judge.targets and config.judge.compile != "never":
        raise InputError(
            f"judge.targets: found none to compile for, with judge.compile = {config.judge.compile}; expected one or "
            "more, such as cuda:90, or judge.compile: never"
        )
    if config.sft.is_left_out:
        check_given_policy(config)
    if config.model.pretrained is None and config.model.heads % config.model.key_value_heads:
        raise InputError(
            f"model.key_value_heads: found {config.model.key_value_heads}, "
            f"expected a divisor of model.heads = {config.model.heads}"
        )
    if config.model.pretrained is None:
        check_heads(config.model.heads, config.model.key_value_heads, config.update.context_parallel)
    unknown = sorted(set(config.stages.timeouts_s) - set(STAGE_NAMES))
    if unknown:
        raise InputError(f"stages.timeouts_s.{unknown[0]}: no such stage; there are {', '.join(STAGE_NAMES)}")
    check_deepspeed(config)
    for setting, is_compiled in (("sft.compile", config.sft.compile), ("update.compile", config.update.compile)):
        if is_compiled:
            stage = stage_on(config.update.ranks, config.update.deepspeed, config.update.zero_stage)
            check_compiled(stage, config.update.context_parallel, setting)
    check_suites(config.validation.suites, config.rollout.episode.reward)


def check_deepspeed(config: RunConfig) -> None:
    """Check the user's DeepSpeed file: that it is there, and that it parts weights and sequences as we do.

    Ranks get different sequences, and rank 0 writes whole weights: neither holds where DeepSpeed parts a layer itself.
    """
    file = config.update.deepspeed
    if file is None:
        return
    if not Path(file).exists():
        raise InputError(f"update.deepspeed: no such file: {file}")
    stage_of(file, config.update.zero_stage)
    given = read_deepspeed_file(file)
    for key, instead in OTHER_PARALLELISM.items():
        if key in given:
            raise InputError(f"update.deepspeed: {file}: {key}: ranks do not share layers this way; set {instead}")


def check_named_code(config: RunConfig) -> None:
    """Check that the user's code that settings name can be imported: the stage that calls it may come hours later."""
    for setting, mark, value in named_code(config):
        try:
            mark.verify(value)
        except InputError as error:
            raise InputError(f"{setting}: {error}") from error


def check_problems(config: RunConfig) -> None:
    """Check that problems come from somewhere, and that there are some to train on if anything is trained on them."""
    if not config.problems.is_generated and config.problems.path is None:
        raise InputError(f"problems.path: expected a file or folder for problems.source = {config.problems.source}")
    if config.problems.train:
        return
    if config.problems.is_generated and config.problems.heldout_source is None:
        raise InputError("problems.train: found 0, expected 1 or more of the generated suite")
    sft = config.sft
    for name, wanted in (
        ("iterations", config.iterations),
        ("sft.repairs.problems", sft.repairs.problems),
        ("sft.joint.problems", sft.joint.problems),
    ):
        if wanted:
            raise InputError(f"problems.train: found 0, with {name} = {wanted}; expected 1 or more, or {name} = 0")


def check_device_memory(config: RunConfig) -> None:
    """Check that problems of the chosen sizes fit into each of the judge's workers."""
    given, workers, sizes = config.judge.device_memory_gb, config.judge_workers, config.problems.sizes
    if given is None or config.judge.device == "cpu" or config.problems.source != "generated":
        return
    needed = workers * JUDGE_WORKER_GIB[sizes]
    if given < needed:
        raise InputError(
            f"judge.device_memory_gb: found {given:g}, expected {needed:g} or more for {counted(workers, 'worker')} of "
            f"the judge and problems.sizes = {sizes}"
        )


def check_rollout_judge(config: RunConfig) -> None:
    """Check that a judge of rollouts that is moved to the CPU runs kernels of the judge's language."""
    backend, moved = config.judge.backend, config.rollout.judge.device == "cpu" and config.judge.device != "cpu"
    if moved and (backend == AUTO or not backend_named(backend).interprets):
        raise InputError(
            f"rollout.judge.device: found cpu, expected as_judge with judge.backend = {backend}: a CPU builds such "
            "kernels, but does not run them"
        )


def check_staleness(config: RunConfig) -> None:
    """Check that rollouts beside updates do not time kernels on a GPU that the ranks compute on."""
    rollout = config.rollout
    if not rollout.staleness or not times_beside_ranks(config):
        return
    owner = "rollout.judge_actors.gpus" if rollout.judge_actors.count else "rollout.gpus"
    share = rollout.judge_actors.gpus if rollout.judge_actors.count else rollout.gpus
    raise InputError(
        f"rollout.staleness: found {rollout.staleness}, expected 0 where the judge times kernels on a GPU of the ranks "
        f"({owner} = {share:g}, update.gpus_per_rank = {config.update.gpus_per_rank:g}); with {owner} = 1, or "
        "judge.device = cpu, it could be more"
    )


def check_credit(config: RunConfig) -> None:
    """Check that turns which share a first answer are compared one by one, and that `counterfactual` has such turns."""
    update, shared = config.update, config.rollout.samples_per_kernel
    compares = update.estimator.compares
    if shared > 1 and compares == "trajectories":
        raise InputError(
            f"rollout.samples_per_kernel: found {shared}, expected 1 with update.advantage = {update.advantage}, "
            "which compares whole conversations"
        )
    if update.credit == "counterfactual" and (shared == 1 or compares == "nothing"):
        raise InputError(
            "update.credit: counterfactual compares answers to the same kernel; expected rollout.samples_per_kernel of "
            f"2 or more, found {shared}, and update.advantage = {' or '.join(names_that_compare('turns'))}, or "
            f"another that compares turns, found {update.advantage}"
        )


def check_reasoning(config: RunConfig) -> None:
    """Check that SFT on reasoning has some, and that the policy is asked for it afterwards."""
    data = config.sft.data
    if data.reasoning == "drop" or config.sft.is_left_out:
        return
    if data.path is None:
        raise InputError("sft.data.reasoning: keep, but generated pairs have none; expected sft.data.path, or drop")
    if not config.rollout.episode.thinking:
        raise InputError(
            "sft.data.reasoning: keep, but rollouts ask for answers without reasoning; "
            "expected rollout.episode.thinking: true"
        )


def check_judged(config: RunConfig) -> None:
    """Check that nothing needs the verdicts on SFT's answers where only those that prompts tell are known."""
    data = config.sft.data
    if data.judged == "all" or config.sft.is_left_out:
        return
    needs = {
        "sft.data.verified: true": data.verified,
        "sft.data.optimizations": bool(data.optimizations),
        "sft.repairs.problems": bool(config.sft.repairs.problems),
        "an agent that may stop": any(agent.may_stop for agent in config.rollout.episode.agents.values()),
    }
    for need, is_there in needs.items():
        if is_there:
            raise InputError(f"sft.data.judged: found shown, expected all with {need}, which needs every verdict")


def check_given_policy(config: RunConfig) -> None:
    """Check that a run without SFT names the policy that it starts from, and asks for nothing that needs SFT."""
    agents = config.rollout.episode.agents
    own = {owner: agents[owner].pretrained for owner in owners(agents) if owner in agents}
    if config.model.pretrained is None and not (own and all(own.values())):
        missing = next((f" nor rollout.episode.agents.{name}.pretrained" for name in own if not own[name]), "")
        raise InputError(
            f"sft.steps: found 0, and model.pretrained is not set{missing}; name the model that RL starts from"
        )
    if config.control:
        raise InputError("control: true, but without SFT (sft.steps: 0) there are no pairs for more of it")
    if config.rejection_control:
        raise InputError("rejection_control: true, but without SFT (sft.steps: 0) its settings of training are unknown")
    for name, found in (("repairs", config.sft.repairs.problems), ("joint", config.sft.joint.problems)):
        if found:
            raise InputError(f"sft.{name}.problems: found {found}, expected 0 without SFT (sft.steps: 0)")


def check_weights_can_move(config: RunConfig) -> None:
    """Check that an engine whose weights stay is only asked to evaluate."""
    if not kind_of(config.rollout).takes_weights and (config.iterations or not config.sft.is_left_out):
        raise InputError(
            f"rollout.engine: {config.rollout.engine} cannot be given new weights, so that nothing can be trained; "
            "expected iterations: 0 and sft: none, or the engine sglang or transformers"
        )


def check_shared_base(config: RunConfig) -> None:
    """Check that agents which begin with the same weights are several, and name no models of their own."""
    if not config.sft.shared:
        return
    if not config.has_team:
        raise InputError("sft.shared: true, but no agents with weights of their own (rollout.episode.agents)")
    own = [name for name, agent in config.rollout.episode.agents.items() if agent.pretrained is not None]
    if own:
        raise InputError(
            f"rollout.episode.agents.{own[0]}.pretrained: with sft.shared all agents begin with model.pretrained"
        )


def check_served_adapters(config: RunConfig) -> None:
    """Check that servers which take adapters are given some that they can hold, on one base."""
    rank, lora = config.rollout.sglang.adapter_rank, config.update.lora
    if not rank:
        return
    if lora is None or rank < lora.rank:
        found = "no update.lora" if lora is None else f"update.lora.rank = {lora.rank}"
        raise InputError(f"rollout.sglang.adapter_rank: {rank}, with {found}; expected adapters of at most that rank")
    targets = set[str]() if lora.targets == "all-linear" else {*lora.targets}
    # SGLang holds q, k and v as one matrix, gate and up as another, and fills up what an adapter lacks of them.
    missing = {"q_proj", "v_proj"} - targets if targets & {"q_proj", "k_proj", "v_proj"} else set[str]()
    missing |= {"gate_proj"} - targets if "up_proj" in targets else set[str]()
    if missing:
        raise InputError(
            f"update.lora.targets: found {', '.join(sorted(targets))}; with rollout.sglang.adapter_rank SGLang needs "
            f"{', '.join(sorted(missing))} too"
        )
    agents = config.rollout.episode.agents
    models = {agents[owner].pretrained for owner in owners(agents) if owner in agents}
    if config.has_team and (len(models) > 1 or not (config.sft.shared or config.sft.is_left_out)):
        raise InputError(
            f"rollout.sglang.adapter_rank: {rank}, but the agents do not begin with the same weights; expected "
            "sft.shared: true, or sft: none and one pretrained model; or 0, for servers of each agent's own"
        )


def check_episode(config: RunConfig) -> None:
    """Check that the names in the episode's settings are registered: SFT may take hours before the first episode."""
    episode = config.rollout.episode
    prompt_messages("", (), episode, config.judge.backend)
    for owner, roles in owners(episode.agents).items():
        if not roles and episode.agents[owner].pretrained is None and config.model.pretrained is None:
            raise InputError(
                f"rollout.episode.agents.{owner}: not trained, so that it needs weights to have: set its pretrained"
            )
    stoppers = [name for name, agent in episode.agents.items() if agent.may_stop and agent.turns == "first"]
    if stoppers:
        raise InputError(f"rollout.episode.agents.{stoppers[0]}.may_stop: there is nothing to keep on a first turn")
