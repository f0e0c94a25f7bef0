"""Says before a run what it will do, and about how long."""

from flows.configuration import RunConfig
from flows.state import RunState


def describe(config: RunConfig) -> list[str]:
    """Return one line a step, in order."""
    rollout, evaluation, sft = config.rollout, config.evaluation, config.sft
    origin = "generated" if config.problems.source == "generated" else f"from {config.problems.path}"
    model = config.model.pretrained or f"a new Qwen3 model ({config.model.layers} layers, {config.model.hidden} wide)"
    turns = rollout.episode.max_turns if rollout.episode.task.endswith("multiturn") else 1
    lines = [
        f"problems: {origin}, up to {config.problems.train} to train on, {config.problems.heldout} held out",
        f"SFT: {model}, {sft.steps} steps of {sft.batch_size} conversations",
        f"held-out evaluation: {config.problems.heldout} problems × {evaluation.samples_per_problem} samples",
    ]
    if config.iterations:
        lines += [
            f"{config.iterations} iterations: {rollout.problems_per_iteration} problems × "
            f"{rollout.samples_per_problem} samples, up to {turns} turns, then {config.update.optimizer_steps} "
            f"optimizer steps",
            "held-out evaluation again, report",
        ]
    return lines


def parameters_of(config: RunConfig) -> float:
    """Return the number of weights of a model from scratch."""
    model = config.model
    attention = model.hidden * model.head_dim * (2 * model.heads + 2 * model.key_value_heads)
    return model.vocabulary * model.hidden + model.layers * (attention + 3 * model.hidden * model.intermediate)


def expectation(config: RunConfig, state: RunState) -> str:
    """Return in words about how long the run will take.

    From rates measured with 0.5 M parameters on two CPU cores and conversations of about 150 tokens, less the time of
    stages that are there already. Nothing is said for pretrained models, whose speed depends on the machine.
    """
    known = (
        "finished stages are not repeated" if state.timings else "Ctrl-C any time: the same command goes on from there"
    )
    if config.model.pretrained is not None:
        return known
    scale = max(parameters_of(config) / 0.525e6, 0.25)
    turns = config.rollout.episode.max_turns if config.rollout.episode.task.endswith("multiturn") else 1
    sft_s = config.sft.steps * config.sft.batch_size * 150 * scale / 9_500
    sample_s = 60 * turns * scale / 6_000 + 0.02
    held_out = config.problems.heldout * config.evaluation.samples_per_problem * sample_s
    iteration = config.rollout.problems_per_iteration * config.rollout.samples_per_problem * sample_s * 1.6 + 4
    corpus = config.sft.data.compositions * config.sft.data.styles_per_composition * 0.05
    seconds = 60 + corpus + sft_s + 2 * held_out + config.iterations * iteration
    done = sum(timing.seconds for timing in state.timings.values())
    left = max(seconds - done, 0.0)
    return f"{'less than a minute' if left < 60 else f'about {left / 60:.0f} min'} on two CPU cores; {known}"
