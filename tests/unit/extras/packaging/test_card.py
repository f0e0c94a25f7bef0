"""The model card: front matter that the hub reads, figures of the run, and what a reader must not be left to guess."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from extras.packaging.card import model_card
from extras.packaging.inputs import PackageInputs
from flows.run.packaging import package_inputs
from kernels_eval.verdict import JUDGE_VERSION, TimingSource
from tasks.evaluation.evaluate import paired, read_evaluation


def read(card: str) -> dict[str, Any]:
    return ModelCard(card).data.to_dict()


def row(card: str, title: str, name: str) -> list[str]:
    """Return the cells of a row of the table below a heading."""
    (table,) = re.findall(rf"^### {title}.*\n\n((?:\|.*\n)+)", card, re.MULTILINE)
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_of_weights_trained_from_random_ones(inputs: PackageInputs):
    card = model_card(inputs, "mine")
    assert read(card) == {
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["kernelmill", "gpu-kernels", "pytorch", "triton", "reinforcement-learning"],
    }
    assert "trained from random ones and are under `apache-2.0`" in card
    assert "1,490 pairs" in card
    assert "2 iterations, 1,200 episodes with 2,000 answers,\n  on 480 problems of the generated suite" in card
    assert "kernelmill generate MODULE.py --policy mine\n" in card
    assert f"Judge version: {JUDGE_VERSION}." in card
    assert not re.search(r"\{\{|\}\}|None|\n\n\n", card)
    assert max(map(len, card.splitlines())) <= 130


def test_figures_and_intervals_are_those_of_the_evaluations(inputs: PackageInputs):
    card = model_card(inputs, "mine")
    for kind, found, config in (
        ("Sampled", inputs.sampled, inputs.evaluation),
        ("Greedy", inputs.greedy, inputs.evaluation.greedily()),
    ):
        for part, key, words in (
            ("standard", "overall", "5 held-out problems"),
            ("harder", "harder", "1 harder held-out"),
        ):
            change = paired(found[0], found[2], config, part)  # type: ignore[arg-type]
            before, after = (read_evaluation(found[version])[key] for version in (0, 2))
            cells = row(card, f"{kind} answers, {words}", "Correct")
            for cell, figures in zip(cells, (before, after), strict=False):
                low, high = figures["correct_ci"]
                assert cell == f"{100 * figures['correct']:.1f} % ({100 * low:.1f} – {100 * high:.1f})"
            low, high = change["delta_correct_ci"]
            assert cells[2] == f"{100 * change['delta_correct']:+.1f} pts ({100 * low:+.1f} … {100 * high:+.1f})"
    assert row(card, "Sampled answers, 5 held-out", "Speedup of correct kernels")[1] == "2.50× (2.50 – 2.50)"


@pytest.mark.parametrize(
    ("source", "hardware", "sentence"),
    [
        (TimingSource.ROOFLINE, "triton-interpreter/h100", "Speeds are estimates for H100, by a roofline model"),
        (TimingSource.GPU, "NVIDIA H100 80GB HBM3", "Speeds are measured on NVIDIA H100 80GB HBM3."),
        (None, "", "No speed is known: no kernel was timed."),
    ],
)
def test_speeds_are_estimates_or_measured(
    invented_run: Callable[..., Path], tmp_path: Path, source: TimingSource | None, hardware: str, sentence: str
):
    inputs = package_inputs(str(invented_run(tmp_path / "runs", source=source, hardware=hardware)))
    assert sentence in model_card(inputs, "mine")


def test_a_policy_that_was_not_evaluated_is_said_to_be(run_folder: Path):
    inputs = package_inputs(f"{run_folder}@1")
    card = model_card(inputs, "mine")
    assert not inputs.is_evaluated
    assert "This policy was not evaluated on held-out problems. Of its run, policies 0 and 2 were" in card
    assert "1 iteration, 600 episodes" in card
    assert "### " not in card
    alone = model_card(inputs.model_copy(update={"sampled": {}, "greedy": {}}), "mine")
    assert "This policy was not evaluated on held-out problems.\n" in alone


def test_the_policy_before_rl_has_one_column(run_folder: Path):
    card = model_card(package_inputs(f"{run_folder}@0"), "mine")
    assert "No reinforcement learning: this is the policy that it starts from." in card
    assert "reinforcement-learning" not in read(card)["tags"]
    assert len(row(card, "Sampled answers, 5 held-out", "Correct")) == 1


def test_policy_0_may_not_have_been_evaluated(inputs: PackageInputs):
    inputs = inputs.model_copy(update={"sampled": {2: inputs.sampled[2]}, "greedy": {}})
    card = model_card(inputs, "mine")
    assert len(row(card, "Sampled answers, 5 held-out", "Correct")) == 1
    assert "Greedy answers" not in card


@pytest.mark.parametrize(
    ("changes", "named", "license_", "sentence"),
    [
        (
            {"base_model": "Qwen/Qwen3-8B"}, "license-of-the-base-model", "other",
            "made from those of Qwen/Qwen3-8B and are under the licence of that model.",
        ),
        (
            {"base_model": "meta-llama/Llama-3.1-8B", "license": "llama3.1"}, None, "llama3.1",
            "are under the licence of that model (`llama3.1`).",
        ),
        ({"license": "mit"}, None, "mit", "trained from random ones and are under `mit`."),
    ],
)  # fmt: skip
def test_the_licence_is_that_of_the_weights(
    inputs: PackageInputs, changes: dict[str, str], named: str | None, license_: str, sentence: str
):
    card = model_card(inputs.model_copy(update=changes), "mine")
    data = read(card)
    assert (data["license"], data.get("license_name"), data.get("base_model")) == (
        license_,
        named,
        changes.get("base_model"),
    )
    assert sentence in card


def test_rl_that_began_from_a_given_model(inputs: PackageInputs):
    card = model_card(inputs.model_copy(update={"sft_data": None, "base_model": "a/b"}), "mine")
    assert "No supervised fine-tuning: reinforcement learning started from a/b." in card
