"""Estimated speed of a run: on GPUs from stated assumptions, on two CPU cores from measured rates.

Training: 6 operations per weight and token (Kaplan et al. 2020, section 2.1), 2 more if activations are recomputed, and
2 for each model that only scores, at the share of the peak that matrix products reach. To that comes the host's time to
launch each layer's kernels, which is most of a small model's. Generation: a decoding step reads the weights once for
the whole batch, and the keys and values of each sequence (Pope et al. 2022, section 2.1), at a share of the memory
bandwidth. Of a mixture of experts a token is computed with the weights that it passes through, and a step reads those
of all experts that its tokens are routed to.
"""

import functools
import logging
from dataclasses import dataclass
from typing import NamedTuple

from flows.capacity.memory import Shape, TrainingJob, shape_of
from flows.settings.configuration import RunConfig
from flows.settings.plurals import counted
from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.rollout.refill import refill_for


@dataclass(frozen=True)
class Gpu:
    """A GPU model, from its data sheet."""

    name: str
    memory_gib: float
    """Memory that is free on an idle GPU."""
    bandwidth: float
    """Bytes per second."""
    flops: float
    """Dense bfloat16 operations per second."""


GPUS = {
    "a100": Gpu("A100 80GB", 79.0, 2.04e12, 312e12),
    "h100": Gpu("H100 80GB", 79.0, 3.35e12, 989e12),
    "h200": Gpu("H200 141GB", 139.0, 4.8e12, 989e12),
    "rtx4090": Gpu("RTX 4090 24GB", 23.5, 1.01e12, 165e12),
    "mi300x": Gpu("MI300X 192GB", 190.0, 5.3e12, 1307e12),
}


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of the estimates."""

    utilisation: float = 0.45
    """Share of the peak that training reaches while the GPU does not wait for the host."""
    launch_s: float = 3.2e-3
    """Seconds in which the host launches one layer's kernels for 2 operations per weight, one micro-batch. With
    `utilisation` it gives within 15 % what was measured on an H200: Qwen3's 0.6B shape with and without recomputation,
    8B with LoRA (docs/update.md); SmolLM2's SFT within 25 %."""
    compiled_launch: float = 0.45
    """Share of it with `update.compile`, measured at the 0.6B shape."""
    gathered_launch: float = 2.5
    """Times of it with ZeRO-3 on several ranks, where each layer's weights are gathered and let go again: four H200 at
    the 0.6B shape trained on 59,509 tokens/s instead of 115,896 (docs/scaling.md)."""
    bandwidth_share: float = 0.6
    """Share of the memory bandwidth that decoding reaches."""
    prompt_tokens: int = 1500
    """Tokens of a problem with its instructions."""
    answer_share: float = 0.5
    """Mean length of an answer as a share of `rollout.sampling.max_new_tokens`."""
    judging_s: float = 1.5
    """Seconds that one worker needs to judge one kernel on a GPU."""
    judged_per_gpu: float = 6.0
    """Kernels that all workers of one GPU judge in a second at most: 6.2 with eight of them, 5.9 with twelve, measured
    (docs/gpu-judge-measurements.md)."""
    saving: float = 0.75e9
    """Bytes of a checkpoint per second: written to a local disk (3 GB/s), its SHA-256 taken meanwhile (0.75 GB/s on one
    core, measured; 1.8 on one with instructions for it)."""
    host_weights: float = 8e6
    """Weights that DeepSpeed's Adam steps in a second on one thread of the host, its state's memory new to it: 7.4e9 in
    57 s on 16 threads, measured."""
    starting: float = 1.3e9
    """Bytes of models and offloaded state for which a starting update engine has memory in a second, on one host: 184e9
    in 140 s, measured."""
    ranks_a_host: int = 8
    """Ranks that start on one host at most; hosts start theirs at the same time."""


def host_step_seconds(parameters: float, offloaded: float, threads: int, assumed: Assumptions) -> float:
    """Return the seconds of one step of the offloaded share of the optimizer on so many threads of all ranks."""
    return parameters * offloaded / (assumed.host_weights * threads)


def training_tokens_a_second(
    shape: Shape, gpu: Gpu, job: TrainingJob, assumed: Assumptions, tokens: float, scored_by: int, compiled: bool
) -> float:
    """Return the tokens per second that all ranks train on.

    `tokens`: those of a micro-batch of one rank. `scored_by`: number of models that only score.
    """
    body = shape.active_parameters - shape.embedding
    models = 2 if job.critic else 1
    passes = models * (4 if job.checkpointing else 3) + scored_by
    launch_s = assumed.launch_s * (assumed.compiled_launch if compiled else 1.0)
    if job.stage >= 3 and job.ranks > 1:
        launch_s *= assumed.gathered_launch
    launches = passes * shape.layers * launch_s
    seconds = 2.0 * passes * body / (gpu.flops * assumed.utilisation) + launches / tokens
    return job.ranks / seconds


def generated_tokens_a_second(
    shape: Shape, gpu: Gpu, servers: int, tensor_parallel: int, sequences: int, context: float, assumed: Assumptions
) -> float:
    """Return the tokens per second of all servers, each generating `sequences` at a time of mean length `context`."""
    read = 2.0 * shape.read_parameters(sequences) + sequences * context * shape.cache_bytes()
    steps = gpu.bandwidth * tensor_parallel * assumed.bandwidth_share / read
    return servers * sequences * steps


@dataclass(frozen=True)
class Rates:
    """Measured speed of the stages: deployments/configs/local.yaml on two CPU cores."""

    parameters: float = 0.6e6
    """Weights of the measured model."""
    start_s: float = 30.0
    """Seconds for the Prefect server, Ray, the problem set (4 s), the import of Great Expectations, and the report."""
    pairs: float = 27.0
    """SFT pairs judged per second, not compiled."""
    compiled_pairs: float = 6.0
    """SFT pairs judged per second, compiled for one target."""
    conversation: float = 70.0
    """Tokens per SFT conversation."""
    sft_tokens: float = 15_000.0
    """SFT tokens per second."""
    generation_s: float = 0.010
    """Seconds to generate one turn, in batches of 256."""
    judging_s: float = 0.010
    """Seconds to judge one turn with two workers and the verdict cache."""
    update_s: float = 0.0015
    """Seconds to train on one turn."""
    checks_s: float = 2.0
    """Seconds for checks and checkpoints of one iteration."""


RATES = Rates()


def describe(config: RunConfig) -> list[str]:
    """Return the steps of a run in order, one line each."""
    rollout, evaluation, sft = config.rollout, config.evaluation, config.sft
    origin = "generated" if config.problems.is_generated else f"from {config.problems.path}"
    model = (
        config.model.pretrained
        or f"a new Qwen3 model ({counted(config.model.layers, 'layer')}, {config.model.hidden} wide)"
    )
    turns = rollout.episode.max_turns if rollout.episode.task.endswith("multiturn") else 1
    lines = [
        f"problems: {origin}, up to {config.problems.train} to train on, {_heldout_words(config)} held out"
        + (f", {_harder(config.problems)} of them harder" if _harder(config.problems) else ""),
        f"SFT: left out, RL starts from {model}"
        if sft.is_left_out
        else f"SFT: {model}, {sft.length}, {counted(sft.batch_size, 'conversation')} a step"
        f"{_repairs(config)}{_joint(config)}",
        f"held-out evaluation: {_heldout_words(config, 'problem')} × "
        f"{counted(evaluation.samples_per_problem, 'sample')}" + (" and a greedy one" if evaluation.greedy else ""),
    ]
    if config.iterations:
        update = config.update
        refill = refill_for(rollout, update.wanted_groups, update.most_problems, update.estimator.compares)
        more = f" (up to {refill.problems} until {refill.groups} groups have variance)" if refill else ""
        lines += [
            f"{counted(config.iterations, 'iteration')}: {counted(rollout.problems_per_iteration, 'problem')}{more} × "
            f"{counted(rollout.samples_per_problem, 'sample')}, up to {counted(turns, 'turn')}, then "
            f"{counted(config.update.optimizer_steps, 'optimizer step')}",
            "held-out evaluation again",
        ]
        if config.control:
            lines.append(
                "control: SFT goes on from the policy of step 2 for as long as the iterations took; held-out evaluation"
            )
        if config.rejection_control:
            lines.append("control: as many judged kernels spent on rejection sampling; held-out evaluation")
    return [*lines, "report"]


def _repairs(config: RunConfig) -> str:
    repairs = config.sft.repairs
    if not repairs.problems:
        return ""
    answers = f"{counted(repairs.problems, 'training problem')} × {counted(repairs.samples_per_problem, 'answer')}"
    return f"; then {answers}, and SFT on repairs of the failures"


def _joint(config: RunConfig) -> str:
    joint = config.sft.joint
    if not joint.problems:
        return ""
    epochs = "one epoch" if joint.epochs == 1 else f"{joint.epochs:g} epochs"
    conversations = f"{counted(joint.problems, 'training problem')} × {counted(joint.samples_per_problem, 'sample')}"
    return f"; then {conversations}, and {epochs} on the best kernels found"


def _heldout_words(config: RunConfig, noun: str = "") -> str:
    """Return the number of held-out problems, or where they are if that cannot be read here."""
    problems = config.problems
    if problems.heldout_source is not None and _in_file(problems) is None:
        return f"those of {problems.heldout_path} (not readable here)"
    return counted(heldout_problems(config), noun) if noun else str(heldout_problems(config))


def heldout_problems(config: RunConfig) -> int:
    """Return the number of held-out problems: of a file of their own those in it, otherwise at most."""
    own = None if config.problems.heldout_source is None else _in_file(config.problems)
    if own is not None:
        return own
    return config.problems.heldout + _harder(config.problems)


def _harder(problems: ProblemsConfig) -> int:
    """Return the number of harder held-out problems, which the generated suite alone has."""
    return problems.harder if problems.source == "generated" and problems.heldout_source is None else 0


@functools.lru_cache(maxsize=8)
def _counted_in(settings: str) -> int | None:
    """Return the number of problems of these settings, which are JSON; None if they cannot be read."""
    from tasks.problems.loaders import load_entries

    log = logging.getLogger("tasks.problems")
    level = log.level
    log.setLevel(logging.ERROR)  # bad rows are named by the checks before a run
    try:
        return len(load_entries(ProblemsConfig.model_validate_json(settings)))
    except (InputError, OSError):
        return None
    finally:
        log.setLevel(level)


def _in_file(problems: ProblemsConfig) -> int | None:
    try:
        heldout = problems.of_heldout_files()
    except InputError:
        return None
    return None if heldout is None else _counted_in(heldout.model_dump_json())


def expectation(config: RunConfig, done_s: float) -> str:
    """Return the time that a run still takes (not of a pretrained model); `done_s`: seconds of finished stages."""
    resumable = (
        "finished stages are not repeated" if done_s else "Ctrl-C any time: the same command continues from there"
    )
    if config.model.pretrained is not None:
        return resumable
    left = max(expected_seconds(config) - done_s, 0.0)
    if left < 60:
        return f"less than a minute on two CPU cores; {resumable}"
    busy = f"up to {BUSY * left / 60:.0f} beside other work"
    return f"about {left / 60:.0f} min on two CPU cores, {busy}; {resumable}"


BUSY = 2.5
"""Times as long as expected that the demo took at most, with other work on both cores (measured: 2.2)."""


class StageTime(NamedTuple):
    """Expected time of a kind of stage."""

    label: str
    """Beginning of the labels of these stages."""
    seconds: float
    """Of one of them."""
    times: int = 1


_GREEDY = ", greedy"
"""End of the labels of stages on greedy answers (flows.evaluation)."""


def expected_seconds(config: RunConfig) -> float:
    """Return the approximate seconds of the whole run on two CPU cores, from `RATES`."""
    return RATES.start_s + sum(stage.seconds * stage.times for stage in expected_stages(config))


def share_of(label: str, config: RunConfig) -> float:
    """Return the share of a run's expected time that the stage with this label takes; 0 if it is not known.

    Of a pretrained model nothing is known.
    """
    if config.model.pretrained is not None:
        return 0.0
    found = [stage for stage in expected_stages(config) if _is_of(label, stage.label)]
    longest = max(found, key=lambda stage: len(stage.label), default=StageTime("", 0.0))
    return longest.seconds / expected_seconds(config)


def _is_of(label: str, kind: str) -> bool:
    return label.endswith(_GREEDY) if kind == _GREEDY else label.startswith(kind) and not label.endswith(_GREEDY)


def expected_stages(config: RunConfig) -> list[StageTime]:
    """Return the expected time of every kind of stage that takes long."""
    scale = max(shape_of(config.model).parameters / RATES.parameters, 0.25)
    data, rollout, evaluation = config.sft.data, config.rollout, config.evaluation
    pairs = data.generated_pairs
    judged = pairs if data.judged == "all" else pairs * data.repair_fraction
    corpus = judged / (RATES.pairs if data.compile == "never" else RATES.compiled_pairs)
    steps = config.sft.steps_for(round(pairs * (1 - config.sft.validation_fraction)))
    sft = steps * config.sft.batch_size * RATES.conversation * scale / RATES.sft_tokens
    turns = rollout.episode.max_turns if rollout.episode.task.endswith("multiturn") else 1
    generation = turns * RATES.generation_s * scale
    trajectory = generation + turns * RATES.judging_s
    heldout = heldout_problems(config) * evaluation.samples_per_problem * trajectory
    # Half of the greedy answers' kernels were sampled too, and are not judged again.
    greedy = heldout_problems(config) * evaluation.greedy * (generation + trajectory) / 2
    trajectories = rollout.problems_per_iteration * rollout.samples_per_problem
    repairs = config.sft.repairs.problems * config.sft.repairs.samples_per_problem
    joint = config.sft.joint.problems * config.sft.joint.samples_per_problem
    update = trajectories * turns * RATES.update_s * scale + RATES.checks_s
    rl = config.iterations * (trajectories * trajectory + update)
    has_control = config.control and config.iterations > 0
    has_rejection = config.rejection_control and config.iterations > 0
    policies = 1 + (config.iterations > 0) + has_control + has_rejection
    return [
        StageTime("SFT data", corpus),
        StageTime("SFT", sft, config.policies),
        StageTime("rollout for repairs", repairs * trajectory / turns, int(repairs > 0)),
        StageTime("rollout for the joint epoch", joint * trajectory, int(joint > 0)),
        StageTime("held-out rollout", heldout, policies),
        StageTime(_GREEDY, greedy, policies),
        StageTime("rollout ", trajectories * trajectory, config.iterations),
        StageTime("update ", update, config.iterations),
        StageTime("control: more SFT", sft + rl, int(has_control)),
        StageTime("rollout for rejection", config.iterations * trajectories * trajectory, int(has_rejection)),
    ]
