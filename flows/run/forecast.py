"""Says before a run what it will do, and about how long."""

from dataclasses import dataclass

from flows.run.state import RunState
from flows.settings.configuration import RunConfig
from tasks.rollout.refill import refill_for


@dataclass(frozen=True)
class Rates:
    """How fast the stages are: deployments/configs/local.yaml on two CPU cores."""

    parameters: float = 0.6e6
    """Weights of the model that the other figures were measured with."""
    start_s: float = 30.0
    """Prefect server, Ray, problem set (4 s), Great Expectations' import, report."""
    pairs: float = 27.0
    """SFT pairs judged a second without compiling them."""
    compiled_pairs: float = 6.0
    """The same with one target compiled."""
    conversation: float = 70.0
    """Tokens of an SFT conversation."""
    sft_tokens: float = 15_000.0
    """SFT tokens a second."""
    generation_s: float = 0.010
    """Generating one turn, in batches of 256."""
    judging_s: float = 0.010
    """Judging one turn with two workers, the verdict cache included."""
    update_s: float = 0.0015
    """Training on one turn."""
    checks_s: float = 2.0
    """Checks and checkpoints of one iteration."""


RATES = Rates()


def describe(config: RunConfig) -> list[str]:
    """Return one line a step, in order."""
    rollout, evaluation, sft = config.rollout, config.evaluation, config.sft
    origin = "generated" if config.problems.source == "generated" else f"from {config.problems.path}"
    model = config.model.pretrained or f"a new Qwen3 model ({config.model.layers} layers, {config.model.hidden} wide)"
    turns = rollout.episode.max_turns if rollout.episode.task.endswith("multiturn") else 1
    lines = [
        f"problems: {origin}, up to {config.problems.train} to train on, {config.problems.heldout} held out",
        f"SFT: {model}, {sft.length}, {sft.batch_size} conversations a step",
        f"held-out evaluation: {config.problems.heldout} problems × {evaluation.samples_per_problem} samples",
    ]
    if config.iterations:
        refill = refill_for(rollout, config.update)
        more = f" (up to {refill.problems} until {refill.groups} groups have variance)" if refill else ""
        lines += [
            f"{config.iterations} iterations: {rollout.problems_per_iteration} problems{more} × "
            f"{rollout.samples_per_problem} samples, up to {turns} turns, then {config.update.optimizer_steps} "
            f"optimizer steps",
            "held-out evaluation again",
        ]
        if config.control:
            lines.append(
                "control: SFT goes on from the policy of step 2 for as long as the iterations took; held-out evaluation"
            )
    return [*lines, "report"]


def parameters_of(config: RunConfig) -> float:
    """Return the number of weights of a model from scratch."""
    model = config.model
    attention = model.hidden * model.head_dim * (2 * model.heads + 2 * model.key_value_heads)
    return model.vocabulary * model.hidden + model.layers * (attention + 3 * model.hidden * model.intermediate)


def expectation(config: RunConfig, state: RunState) -> str:
    """Return in words about how long the run will take, less what is there already.

    Nothing is said for pretrained models, whose speed depends on the machine.
    """
    known = (
        "finished stages are not repeated" if state.timings else "Ctrl-C any time: the same command goes on from there"
    )
    if config.model.pretrained is not None:
        return known
    done = sum(timing.seconds for timing in state.timings.values())
    left = max(expected_seconds(config) - done, 0.0)
    return f"{'less than a minute' if left < 60 else f'about {left / 60:.0f} min'} on two CPU cores; {known}"


def expected_seconds(config: RunConfig) -> float:
    """Return about how long the whole run takes on two CPU cores, from the rates at the top of this module."""
    scale = max(parameters_of(config) / RATES.parameters, 0.25)
    data, rollout, evaluation = config.sft.data, config.rollout, config.evaluation
    pairs = data.compositions * data.styles_per_composition * (1 + data.repair_fraction)
    corpus = pairs / (RATES.pairs if data.compile == "never" else RATES.compiled_pairs)
    steps = config.sft.steps_for(round(pairs * (1 - config.sft.validation_fraction)))
    sft = steps * config.sft.batch_size * RATES.conversation * scale / RATES.sft_tokens
    turns = rollout.episode.max_turns if rollout.episode.task.endswith("multiturn") else 1
    trajectory = turns * (RATES.generation_s * scale + RATES.judging_s)
    heldout = config.problems.heldout * evaluation.samples_per_problem * trajectory
    update = rollout.problems_per_iteration * rollout.samples_per_problem * turns * RATES.update_s * scale
    iterations = config.iterations * (
        rollout.problems_per_iteration * rollout.samples_per_problem * trajectory + update + RATES.checks_s
    )
    control = iterations + heldout if config.control and config.iterations else 0.0
    return RATES.start_s + corpus + sft + (2 if config.iterations else 1) * heldout + iterations + control
