"""The planner on the configurations that ship."""

from pathlib import Path

import pytest

from flows.capacity.memory import KNOWN
from flows.capacity.planner import CapacityPlan, plan, training_job
from flows.capacity.speed import GPUS, Assumptions
from flows.settings.configuration import load_configuration
from tasks.training.config import check_heads

CONFIGS = Path("deployments/configs")
GATHERED_FOR_NOTHING = Assumptions(gathered_launch=1.0)
"""Gathering that costs the host nothing: its cost would hide what is compared."""
ON_GPUS = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem.startswith(("qwen", "kernelllm")))
QWEN3 = KNOWN["Qwen/Qwen3-8B"]


@pytest.mark.parametrize("name", ON_GPUS)
def test_what_ships_fits_the_gpus_that_it_says(name: str):
    config = load_configuration(CONFIGS / f"{name}.yaml")
    found = plan(config, GPUS["h100"])
    assert found.fits
    assert found.gpus == (8 if "cuda" in name else 6)
    assert found.share_of_longest <= config.update.tokens_per_rank
    check_heads(found.shape.heads, found.shape.key_value_heads, config.update.context_parallel)


@pytest.mark.parametrize(("interval", "whole"), [(1, 200), (50, 4), (60, 4), (1000, 1)])
def test_some_checkpoints_keep_their_optimizer(interval: int, whole: int):
    settings = [f"update.checkpoint_interval={interval}", "update.weights_interval=1"]
    found = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])
    assert found.disk_bytes == (201 * 2 + whole * 12) * QWEN3.parameters


@pytest.mark.parametrize(("interval", "weights", "kept", "whole"), [(50, 10, 23, 4), (1, 10, 23, 23), (50, 1000, 3, 3)])
def test_some_checkpoints_keep_their_weights(interval: int, weights: int, kept: int, whole: int):
    settings = [f"update.checkpoint_interval={interval}", f"update.weights_interval={weights}"]
    found = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])
    assert found.disk_bytes == ((1 + kept) * 2 + whole * 12) * QWEN3.parameters


def test_checkpoints_without_the_optimizers_state_are_weights_alone():
    settings = ["update.optimizer_state=false", "update.weights_interval=1"]
    found = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])
    assert found.checkpoint_bytes == 2 * QWEN3.parameters
    assert found.disk_bytes == 201 * 2 * QWEN3.parameters


def test_sft_of_all_weights_counts_though_rl_trains_adapters():
    one = ["update.ranks=1", "update.context_parallel=1", "update.lora={rank: 16}"]
    whole, adapted = (
        plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", [*one, *more]), GPUS["h100"])
        for more in ([], ["sft.lora={rank: 16}"])
    )
    assert whole.training_fits
    assert not whole.sft_fits
    assert not whole.fits
    assert adapted.sft_fits
    left_out = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", [*one, "sft=none"]), GPUS["h100"])
    assert left_out.sft == {}


def test_a_joint_epoch_leaves_another_policy():
    settings = ["update.weights_interval=1"]
    plain, joint = (
        plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", [*settings, *more]), GPUS["h100"])
        for more in ([], ["sft.joint.problems=16"])
    )
    assert joint.disk_bytes - plain.disk_bytes == 2 * QWEN3.parameters


def test_more_workers_than_a_gpu_can_time_judge_no_more():
    def judging_s(*settings: str) -> float:
        given = ["rollout.problems_per_iteration=24", "rollout.samples_per_problem=8", *settings]
        config = load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", [*given, "judge.device_memory_gb=70"])
        return plan(config, GPUS["h100"]).rollout_s

    eight, nine, twelve = (judging_s(f"rollout.judge_actors.workers={workers}") for workers in (8, 9, 12))
    assert eight - nine == pytest.approx(24 * 8 * 3 * 1.5 * (1 / 8 - 1 / 9))
    assert nine == twelve
    assert judging_s("rollout.judge_actors.workers=12", "judge.device=cpu") < twelve


def test_an_offloaded_optimizer_costs_the_host_time():
    """Two H100s, random weights in Qwen3-8B's shape: the engine started in 140 s, the optimizer stepped in 60 s."""
    settings = ["update.ranks=1", "update.context_parallel=1", "update.threads_per_rank=16"]
    offloaded = [*settings, "update.deepspeed=deployments/deepspeed/zero3-offload.json"]
    found = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", offloaded), GPUS["h100"])
    assert 100 < found.starting_s < 180
    assert 50 < found.host_step_s < 80
    twice = plan(
        load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", [*offloaded, "update.optimizer_steps=2"]), GPUS["h100"]
    )
    assert twice.host_step_s == 2 * found.host_step_s
    on_gpu = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])
    assert on_gpu.host_step_s == 0
    assert on_gpu.starting_s < found.starting_s


def test_ranks_that_share_a_sequence_hold_a_share_of_it():
    def planned(*settings: str) -> CapacityPlan:
        return plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])

    alone, shared = planned("update.context_parallel=1"), planned("update.context_parallel=4")
    assert alone.share_of_longest == alone.longest == 4 * shared.share_of_longest
    assert alone.training["activations"] > shared.training["activations"] > 0
    within = planned("update.context_parallel=2")  # here a full micro-batch decides, and no longer the sequence
    assert within.training["activations"] == shared.training["activations"]


@pytest.mark.parametrize(
    ("name", "problems", "samples", "batch", "tokens", "rate", "kl", "entropy"),
    [
        ("qwen3-8b-multi-turn", 4, 4, 16, 4096, 1e-6, 0.01, 0.001),
        ("qwen3-8b-multi-turn-debug", 2, 4, 8, 2048, 1e-6, 0.01, 0.001),
        ("qwen3-8b-single-turn", 4, 4, 16, 4096, 1e-6, 0.01, 0.001),
        ("qwen3-8b-single-turn-debug", 4, 4, 16, 2048, 1e-6, 0.01, 0.001),
        ("kernelllm-8b", 4, 8, 32, 4096, 5e-7, 0.0, 0.0),
        ("qwen2.5-coder-7b-cuda", 8, 4, 8, 2048, 1e-5, 0.02, 0.0),
    ],
)
def test_the_settings_are_those_that_were_asked_for(
    name: str, problems: int, samples: int, batch: int, tokens: int, rate: float, kl: float, entropy: float
):
    config = load_configuration(CONFIGS / f"{name}.yaml")
    update, rollout = config.update, config.rollout
    assert (rollout.problems_per_iteration, rollout.samples_per_problem) == (problems, samples)
    assert problems * samples / update.optimizer_steps == batch
    assert (update.tokens_per_rank, update.learning_rate) == (tokens, rate)
    assert (update.kl_coefficient, update.entropy_coefficient) == (kl, entropy)
    turns = {"qwen3-8b-single-turn": 1, "qwen3-8b-single-turn-debug": 1, "qwen2.5-coder-7b-cuda": 5}.get(name, 3)
    assert rollout.episode.max_turns == turns
    assert rollout.episode.gamma == (0.9 if "cuda" in name else 0.4)
    if name == "qwen3-8b-single-turn-debug":  # rollouts of 2 problems x 4 samples
        assert rollout.sglang.servers * rollout.sglang.concurrency == 2 * samples
    if name == "qwen2.5-coder-7b-cuda":
        assert (config.judge.backend, update.advantage, update.epochs) == ("cuda", "gae", 4)
        assert (update.clip_low, update.clip_high, rollout.episode.success_reward) == (0.2, 0.2, 0.8)


def test_a_mixture_of_experts_computes_with_its_active_weights_and_holds_all():
    settings = ["model.pretrained=Qwen/Qwen3-30B-A3B", "update.ranks=8"]
    found = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])
    dense = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", ["update.ranks=8"]), GPUS["h100"])
    assert found.training["weights"] > 3 * dense.training["weights"]
    experts, one = (
        plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", given), GPUS["h100"], GATHERED_FOR_NOTHING)
        for given in (settings, ["update.ranks=8"])
    )
    assert experts.training_tokens_s > 1.1 * one.training_tokens_s  # the host launches more layers
    adapted = [*settings, "update.lora.rank=16"]
    job = training_job(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", adapted), found.shape)
    assert job.trained == 48 * 16 * (2 * (2048 + 4096) + 2 * (2048 + 512))


@pytest.mark.parametrize(("interval", "states"), [(1, 2.0), (4, 1.25)])
def test_of_a_team_the_last_agents_state_waits_for_the_interval(interval: int, states: float):
    """Of two agents, the other one's engine gives way in each iteration, and goes on from what was written."""

    def saving_s(*settings: str) -> float:
        given = ["update.kl_coefficient=0.0", *settings]
        return plan(load_configuration(CONFIGS / "agents-qwen2.5-coder-7b.yaml", given), GPUS["h100"]).saving_s

    weights = saving_s("update.optimizer_state=false")
    one_state = (saving_s("update.checkpoint_interval=1") - weights) / 2
    assert one_state > weights
    assert saving_s(f"update.checkpoint_interval={interval}") == pytest.approx(weights + states * one_state)


def test_small_engines_of_agents_stay_on_the_ranks_and_large_ones_give_way():
    def planned(name: str, *settings: str) -> CapacityPlan:
        return plan(load_configuration(CONFIGS / f"{name}.yaml", settings), GPUS["h100"])

    small, large = planned("agents-gpu"), planned("agents-qwen2.5-coder-7b")
    assert small.starts == (2, 0)
    assert large.starts == (2, 1)
    assert planned("agents-qwen2.5-coder-7b", "update.optimizer_state=false").starts == (2, 2)
    assert planned("qwen2.5-coder-7b-cuda").starts == (1, 0)
    assert planned("qwen2.5-coder-7b-cuda", "update.optimizer_state=false").starts == (1, 1)
    assert small.iterations_s == pytest.approx(4 * small.iteration_s + 2 * small.starting_s)
    assert large.iterations_s == pytest.approx(200 * large.iteration_s + 201 * large.starting_s)
    # Small agents write their states at the interval alone; large ones that give way write theirs in any case.
    rarely, never = "update.checkpoint_interval=1000000", "update.optimizer_state=false"
    assert planned("agents-gpu", rarely).saving_s == pytest.approx(planned("agents-gpu", never).saving_s, rel=1e-3)
    assert planned("agents-qwen2.5-coder-7b", rarely).saving_s > 3 * large.saving_s / 4


def test_hosts_start_their_ranks_at_the_same_time():
    def starting_s(ranks: int) -> float:
        config = load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", [f"update.ranks={ranks}"])
        return plan(config, GPUS["h100"]).starting_s

    one_host = starting_s(8)
    assert starting_s(4) < one_host
    assert 0.8 * one_host < starting_s(32) < one_host


def test_agents_as_adapters_take_at_most_a_third_longer_than_one_policy():
    def planned(name: str, *settings: str, assumed: Assumptions | None = None) -> CapacityPlan:
        return plan(load_configuration(CONFIGS / f"{name}.yaml", settings), GPUS["h100"], assumed)

    adapters = planned("agents-qwen2.5-coder-7b-adapters")
    assert adapters.fits
    assert adapters.gpus == 8
    assert adapters.iterations_s <= 1.3 * planned("qwen2.5-coder-7b-cuda").iterations_s
    # One policy with a critic takes longer than one without: the same holds for equal estimators.
    assert adapters.iterations_s <= 1.3 * planned("qwen2.5-coder-7b-cuda", "update.advantage=turn_rloo").iterations_s
    critics = "agents-qwen2.5-coder-7b-adapters", "update.advantage=gae"
    assert planned(*critics).iterations_s > 1.3 * adapters.iterations_s
    one = planned("qwen2.5-coder-7b-cuda", assumed=GATHERED_FOR_NOTHING)
    assert planned(*critics, assumed=GATHERED_FOR_NOTHING).iterations_s > 1.3 * one.iterations_s
