"""Checks of the files that settings name: pretrained models and validation suites, readable before a run starts."""

from contextlib import suppress
from pathlib import Path

from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from tasks.pipeline.json_file import read_json_object


def check_model_folder(where: str, name: str | None) -> None:
    """Check that a folder of pretrained weights is a Hugging Face causal model with a tokenizer; hub names pass.

    where: the setting that names it.
    """
    if name is None:
        return
    folder = Path(name)
    if not folder.is_dir():
        if not _may_be_on_a_hub(name):
            raise InputError(f"{where}: no such folder: {folder}")
        return
    for pattern, what in (("config.json", "a model configuration"), ("tokenizer*", "a tokenizer")):
        if not any(folder.glob(pattern)):
            raise InputError(f"{where}: {folder}: expected {what} ({pattern}), found none")
    kinds = architectures_of(where, folder)
    if not any(kind.endswith("ForCausalLM") for kind in kinds):
        raise InputError(
            f"{where}: {folder}: a checkpoint of another architecture: "
            f"found {', '.join(kinds) or 'none named'}, expected a causal language model"
        )
    check_weights(where, folder)


def missing_files(config: RunConfig) -> list[str]:
    """Return `setting: path` for each file or folder that the configuration names and that is not there."""
    models = named_models(config)
    named: dict[str, str | None] = {
        "problems.path": None if config.problems.is_generated else config.problems.path,
        "problems.heldout_path": config.problems.heldout_path,
        "sft.data.path": None if config.sft.is_left_out else config.sft.data.path,
        "model.pretrained": models.get("model.pretrained"),
        "model.like": config.model.like,
        "update.critic.pretrained": models.get("update.critic.pretrained"),
        "update.deepspeed": config.update.deepspeed,
        "validation.suites": config.validation.suites,
    }
    never_on_a_hub = {"update.critic.pretrained"} | ({"model.pretrained"} if config.model.megatron else set[str]())
    hubs = models.keys() - never_on_a_hub
    return [
        f"{setting}: {name}"
        for setting, name in (named | models).items()
        if name is not None and not (Path(name).exists() or (setting in hubs and _may_be_on_a_hub(name)))
    ]


def named_models(config: RunConfig) -> dict[str, str]:
    """Return the pretrained models that the configuration names, folders or names of a hub, by their settings."""
    megatron = config.model.megatron
    agents = config.rollout.episode.agents
    named = {
        "model.pretrained": config.model.pretrained if megatron is None else str(megatron),
        "update.critic.pretrained": _trained_critic(config),
        **{f"rollout.episode.agents.{name}.pretrained": agent.pretrained for name, agent in agents.items()},
    }
    return {setting: name for setting, name in named.items() if name is not None}


def _trained_critic(config: RunConfig) -> str | None:
    """Return the pretrained critic if the estimator has one; an estimator that cannot be loaded is named elsewhere."""
    pretrained = config.update.critic.pretrained
    if pretrained is None:
        return None
    with suppress(InputError):
        return pretrained if config.update.estimator.critic else None
    return None


def _may_be_on_a_hub(name: str) -> bool:
    """Return True for `owner/name` and `name`."""
    return not (Path(name).is_absolute() or name.startswith(".") or name.count("/") > 1)


def check_weights(where: str, folder: Path) -> None:
    """Check that a folder has weights, and that the header of each file describes the file."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"{where}: {folder}: expected weights (*.safetensors), found none")
    for file in files:
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise InputError(f"{where}: {file}: expected weights in the format safetensors: {error}") from error


def check_suites(folder: str | None, reward: str) -> None:
    """Check that a folder of edited suites has suites, and that each can be read."""
    from tasks.validation.suite import SUITE_NAMES, load_suite, reward_range

    if folder is None:
        return
    if not any((Path(folder) / f"{name}.json").exists() for name in SUITE_NAMES):
        files = ", ".join(f"{name}.json" for name in SUITE_NAMES)
        raise InputError(f"validation.suites: {folder}: expected a folder with one or more of {files}, found none")
    for name in SUITE_NAMES:
        load_suite(name, folder, reward_range(reward))


def architectures_of(where: str, folder: Path) -> list[str]:
    """Return the names of the architectures in a model's `config.json`."""
    kinds = read_json_object(folder / "config.json", where).get("architectures") or []
    return [str(kind) for kind in kinds] if isinstance(kinds, list) else [str(kinds)]
