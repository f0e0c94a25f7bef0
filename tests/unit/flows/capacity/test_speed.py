"""Lines of a run before it starts: its steps, and about how long they take."""

import json
from pathlib import Path

import pytest

from flows.capacity.memory import KNOWN, Shape, Stage, TrainingJob
from flows.capacity.planner import plan
from flows.capacity.speed import (
    BUSY,
    GPUS,
    Assumptions,
    describe,
    expectation,
    expected_seconds,
    expected_stages,
    share_of,
    training_tokens_a_second,
)
from flows.checks.named_files import missing_files
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval.errors import InputError
from kernels_eval.problem import EXAMPLE_PROBLEM
from tasks.problems.loaders import load_entries


def test_the_expectation_agrees_with_what_was_measured():
    """Two cores: a run of local.yaml's sizes took 3 to 4 min until RL, and 35 s an iteration and an evaluation."""
    sized = [
        "sft.steps=600", "sft.data.compositions=700", "rollout.problems_per_iteration=64", "evaluation.samples_per_problem=6",
        "rollout.samples_per_problem=8", "problems.heldout=96", "problems.harder=0", "evaluation.greedy=false",
    ]  # fmt: skip
    config = load_configuration("deployments/configs/local.yaml", [*sized, "iterations=0"])
    assert 180 < expected_seconds(config) < 260
    one = load_configuration("deployments/configs/local.yaml", [*sized, "iterations=1"])
    assert 60 < expected_seconds(one) - expected_seconds(config) < 85  # an iteration, and one more evaluation


@pytest.mark.parametrize("name", ["local", "test"])
def test_the_control_is_announced_and_takes_as_long_as_sft_and_rl(name: str):
    with_control = load_configuration(f"deployments/configs/{name}.yaml", ["control=true"])
    without = load_configuration(f"deployments/configs/{name}.yaml", ["control=false"])
    assert [line for line in describe(with_control) if line not in describe(without)] == [describe(with_control)[-2]]
    assert describe(with_control)[-2].startswith("control: SFT goes on")
    none = load_configuration(f"deployments/configs/{name}.yaml", ["iterations=0"])
    extra = expected_seconds(with_control) - expected_seconds(without)
    (sft,) = (stage.seconds for stage in expected_stages(without) if stage.label == "SFT")
    assert extra == pytest.approx(expected_seconds(without) - expected_seconds(none) + sft)


def test_epochs_and_refills_are_told_as_they_are_set():
    refill = ["update.wanted_groups=90", "update.most_problems=48"]
    config = load_configuration("deployments/configs/local.yaml", ["sft.epochs=1.5", *refill])
    lines = describe(config)
    size, problems = config.sft.batch_size, config.rollout.problems_per_iteration
    assert lines[1].endswith(f", 1.5 epochs, {size} conversations a step")
    assert f"{problems} problems (up to {config.update.most_problems} until 90 groups have variance) × " in lines[3]
    assert config.sft.model_copy(update={"epochs": 1.0}).length == "1 epoch"
    assert config.sft.model_copy(update={"epochs": None, "steps": 7}).length == "7 steps"
    twice = load_configuration("deployments/configs/local.yaml", ["sft.epochs=3", *refill])
    other = load_configuration("deployments/configs/local.yaml", ["sft.epochs=3", "sft.steps=1"])
    assert expected_seconds(twice) > expected_seconds(config)
    assert expected_seconds(twice) == expected_seconds(other)


def test_finished_stages_are_subtracted():
    config = RunConfig()
    whole = expected_seconds(config)
    assert expectation(config, whole).startswith("less than a minute")
    assert "finished stages are not repeated" in expectation(config, whole)
    assert expectation(config, 0.0).startswith(f"about {whole / 60:.0f} min")
    assert f"up to {BUSY * whole / 60:.0f} beside other work" in expectation(config, 0.0)
    pretrained = config.model.model_copy(update={"pretrained": "/q"})
    assert "min on two CPU cores" not in expectation(config.model_copy(update={"model": pretrained}), 0.0)


@pytest.mark.parametrize("name", ["local", "test"])
def test_the_shares_of_all_stages_are_the_whole_run_but_its_start(name: str):
    config = load_configuration(f"deployments/configs/{name}.yaml", ["control=true", "iterations=3"])
    rollouts = ["held-out rollout of policy 0", "held-out rollout of policy 3", "held-out rollout of the control"]
    labels = ["problem set", "check of rollout 1", "SFT data", "SFT", "control: more SFT", "evaluation of policy 3"]
    labels += [*rollouts, *(f"{label}, greedy" for label in rollouts)]
    labels += [f"{kind} {iteration}" for kind in ("rollout", "update") for iteration in range(3)]
    shares = {label: share_of(label, config) for label in labels}
    assert {label for label in labels if shares[label] == 0} == {
        "problem set", "check of rollout 1", "evaluation of policy 3",
    }  # fmt: skip
    assert 0.4 < sum(shares.values()) < 1
    seconds = sum(stage.seconds * stage.times for stage in expected_stages(config))
    assert sum(shares.values()) == pytest.approx(seconds / expected_seconds(config))
    assert shares["SFT data"] != shares["SFT"]


def test_of_a_pretrained_model_no_share_is_known():
    config = RunConfig()
    pretrained = config.model.model_copy(update={"pretrained": "/q"})
    assert share_of("SFT", config) > 0
    assert share_of("SFT", config.model_copy(update={"model": pretrained})) == 0


def test_held_out_problems_of_their_own_file_are_counted(tmp_path: Path):
    rows = [{"problem_id": f"p{size}", "source": EXAMPLE_PROBLEM.replace("1024", str(size))} for size in (8, 16, 32)]
    (tmp_path / "heldout.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["problems.heldout_source=jsonl", f"problems.heldout_path={tmp_path / 'heldout.jsonl'}"]
    lines = describe(load_configuration("deployments/configs/test.yaml", given))
    assert lines[0].endswith(", 3 held out")
    assert lines[2].startswith("held-out evaluation: 3 problems × ")
    gone = load_configuration("deployments/configs/test.yaml", [given[0], "problems.heldout_path=gone.jsonl"])
    assert describe(gone)[0].endswith(", those of gone.jsonl (not readable here) held out")
    assert describe(gone)[2].startswith("held-out evaluation: those of gone.jsonl (not readable here) × ")
    assert "problems.heldout_path: gone.jsonl" in missing_files(gone)
    heldout = gone.problems.of_heldout_files()
    assert heldout is not None
    with pytest.raises(InputError, match=r"^problems\.heldout_path: gone\.jsonl: no such file or folder"):
        load_entries(heldout)


QWEN3_SMALL = Shape(28, 1024, 3072, 16, 8, 128, 151_936, tied=True, query_key_norm=True)
SMOLLM2 = Shape(30, 576, 1536, 9, 3, 64, 49_152, tied=True)


@pytest.mark.parametrize(
    ("shape", "tokens", "checkpointing", "compiled", "measured"),
    [
        (QWEN3_SMALL, 16_384, True, False, 30_485),
        (QWEN3_SMALL, 16_384, True, True, 48_351),
        (QWEN3_SMALL, 16_384, False, False, 38_725),
        (KNOWN["Qwen/Qwen3-8B"], 16_384, True, False, 7_048),
        (SMOLLM2, 24_576, False, False, 62_000),
    ],
    ids=["0.6B", "0.6B compiled", "0.6B without checkpointing", "8B with LoRA", "135M, SFT"],
)
def test_training_is_as_fast_as_was_measured(
    shape: Shape, tokens: int, checkpointing: bool, compiled: bool, measured: float
):
    """One H200; docs/update.md, and docs/lab/2026-11-27-15.json."""
    job = TrainingJob(shape, "bfloat16", 0, 1, tokens, checkpointing)
    found = training_tokens_a_second(shape, GPUS["h200"], job, Assumptions(), tokens, 0, compiled)
    assert 0.75 * measured < found < 1.25 * measured


@pytest.mark.parametrize(
    ("ranks", "stage", "measured"), [(1, 1, 30_261), (2, 1, 57_405), (4, 1, 115_896), (4, 3, 59_509)]
)
def test_training_on_several_ranks_is_as_fast_as_was_measured(ranks: int, stage: Stage, measured: float):
    """Qwen3's 0.6B shape on H200s of one host; docs/lab/2026-11-29-19.json."""
    job = TrainingJob(QWEN3_SMALL, "bfloat16", stage, ranks, 16_384, checkpointing=True)
    found = training_tokens_a_second(QWEN3_SMALL, GPUS["h200"], job, Assumptions(), 16_384, 0, False)
    assert 0.75 * measured < found < 1.25 * measured


def test_sft_and_an_evaluation_take_about_as_long_as_was_measured(tmp_path: Path):
    """SmolLM2 on an H200: SFT 312 to 322 s, an evaluation of 796 answers 288 to 420 s (docs/lab/2026-11-27-15.json).

    With compiled layers and half as many steps again SFT took 295 s (docs/lab/2026-11-28-9.json).
    """
    sizes = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
        "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 8192, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    file = "deployments/configs/smollm2-kernelbench.yaml"
    settings = [f"model.pretrained={tmp_path}", "problems.heldout_source=null", "problems.heldout=199"]
    before = ["sft.steps=600", "sft.compile=false", "rollout.sampling.max_new_tokens=1800"]
    found = plan(load_configuration(file, [*settings, *before]), GPUS["h200"])
    assert found.sft_s is not None
    assert 250 < found.sft_s < 390
    assert 250 < found.evaluation_s < 430
    compiled = plan(load_configuration(file, settings), GPUS["h200"])
    assert compiled.sft_s is not None
    assert 0.75 * 295 < compiled.sft_s < 1.25 * 295
    epochs = ["sft.epochs=1", "sft.data.path=pairs.jsonl"]
    unknown = plan(load_configuration(file, [*settings, *epochs]), GPUS["h200"])
    assert unknown.sft_s is None
