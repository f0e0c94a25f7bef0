"""The model card of a package: `README.md` as the Hugging Face hub reads it."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from extras.packaging.figures import heldout_tables, judging_of, parameters_in
from extras.packaging.inputs import PackageInputs
from tasks.agents.config import author_of, owner_of
from tasks.agents.team import is_team, lead_of, members_of
from tasks.pipeline.json_file import read_json_object
from tasks.rollout.config import SamplingConfig
from tasks.rollout.prompt_examples import LANGUAGES

OWN_LICENSE = "apache-2.0"
"""Licence of the files that we write; of weights that were trained from random ones, if none is named."""
_LICENSE_OF_BASE = "license-of-the-base-model"
_TEMPLATE = Path(__file__).with_name("card.md.j2")


def model_card(inputs: PackageInputs, folder: str) -> str:
    """Return the text of the card of a package whose folder has this name."""
    members, agents = members_of(inputs.policy), inputs.rollout.episode.agents
    model = lead_of(inputs.policy).path
    config = read_json_object(model / "config.json")
    sampling = inputs.rollout.sampling
    evaluations = list(inputs.evaluations.values())
    others = sorted((inputs.sampled.keys() | inputs.greedy.keys()) - {inputs.version})
    card = ModelCard.from_template(
        _front_matter(inputs),
        template_path=str(_TEMPLATE),
        run_id=inputs.run_id,
        version=inputs.version,
        kernelmill=version("kernelmill"),
        language=LANGUAGES.get(inputs.judge.backend, inputs.judge.backend),
        architecture=", ".join(map(str, config.get("architectures") or [])) or str(config.get("model_type")),
        parameters=_in_words(sum(parameters_in(member.path) for member in members.values())),
        agents=list(members) if is_team(inputs.policy) else [],
        first_agent=owner_of(agents, author_of(agents, 0)),
        dtype=config.get("dtype") or config.get("torch_dtype") or "float32",
        base_model=inputs.base_model,
        sampling=sampling,
        sampling_arguments=_sampling_arguments(sampling),
        thinking=inputs.rollout.episode.thinking,
        system=inputs.rollout.episode.system_message is not None,
        sft_data=inputs.sft_data,
        batches=inputs.batches,
        iterations=_counted(len(inputs.batches), "iteration"),
        episodes=sum(batch.trajectories for batch in inputs.batches),
        answers=sum(batch.turns for batch in inputs.batches),
        problem_source="the generated suite" if inputs.problem_source == "generated" else f"`{inputs.problem_source}`",
        problems=inputs.problems,
        others=_policies(others),
        tables=heldout_tables(inputs),
        judging=judging_of(evaluations) if evaluations else None,
        samples=_counted(inputs.evaluation.samples_per_problem, "answer"),
        temperature=f"{inputs.evaluation.temperature:g}",
        confidence=f"{100 * inputs.evaluation.confidence:g} %",
        folder=folder,
        licence_of_weights=_licence_of_weights(inputs),
    )
    return str(card).rstrip("\n") + "\n"


def _front_matter(inputs: PackageInputs) -> ModelCardData:
    chosen = inputs.license or (OWN_LICENSE if inputs.base_model is None else "other")
    named: dict[str, Any] = {} if inputs.license or inputs.base_model is None else {"license_name": _LICENSE_OF_BASE}
    learned = ["reinforcement-learning"] if inputs.batches else []
    return ModelCardData(
        license=chosen,
        **named,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["kernelmill", "gpu-kernels", "pytorch", inputs.judge.backend, *learned],
        base_model=inputs.base_model,
    )


def _licence_of_weights(inputs: PackageInputs) -> str:
    named = f" (`{inputs.license}`)" if inputs.license else ""
    if inputs.base_model is not None:
        return (
            f"The weights were made from those of {inputs.base_model} and are under the licence of that model{named}."
        )
    return f"The weights were trained from random ones and are under `{inputs.license or OWN_LICENSE}`."


def _sampling_arguments(sampling: SamplingConfig) -> str:
    """Return the arguments of transformers' `generate` that sample as rollouts do."""
    if sampling.temperature == 0:
        return "do_sample=False"
    return f"do_sample=True, temperature={sampling.temperature}, top_p={sampling.top_p}, top_k={sampling.top_k}"


def _in_words(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e9 else f"{parameters / 1e6:.2f} million"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _policies(versions: list[int]) -> str:
    """Return `policy 0`, `policies 0 and 4` or nothing."""
    *first, last = map(str, versions) if versions else [""]
    return f"policies {', '.join(first)} and {last}" if first else f"policy {last}" if last else ""
