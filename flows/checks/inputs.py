"""What the configuration names: settings that fit together, problems, pairs, pretrained weights. The flows' pre-flight, as findings."""

from collections.abc import Callable
from pathlib import Path

from flows.checks import preflight
from flows.checks.finding import Finding, failed, note, ok
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError


def settings(config: RunConfig) -> Finding:
    """Settings that are wrong only together."""
    return _as_finding("settings", preflight.check_settings, config, config.run_id, "mend the setting that is named")


def problems(config: RunConfig) -> Finding:
    """Problems and pairs from files can be read."""
    source = config.problems.source
    found = "generated" if source == "generated" else f"{source} at {config.problems.path}"
    if config.sft.data.path is not None:
        found += f"; SFT pairs at {config.sft.data.path}"
    fix = "docs/problems.md has the formats; --set problems.path=… or --set problems.source=generated"
    return _as_finding("problems", preflight.check_problems, config, found, fix)


def checkpoint(config: RunConfig) -> Finding:
    """A pretrained model is a folder with weights and a tokenizer."""
    name = config.model.pretrained
    if name is None:
        return ok("model", "a new one, trained from scratch")
    if not Path(name).is_dir() and not (Path(name).is_absolute() or name.startswith(".")):
        return note(
            "model",
            f"{name} is taken to be a name on the Hugging Face hub, or in its cache; it was not asked for",
            "download it beforehand and name the folder: --set model.pretrained=/models/…",
        )
    fix = "name a Hugging Face folder with config.json, *.safetensors and a tokenizer"
    return _as_finding("model", preflight.check_pretrained, config, str(name), fix)


def _as_finding(name: str, check: Callable[[RunConfig], None], config: RunConfig, found: str, fix: str) -> Finding:
    try:
        check(config)
    except InputError as error:
        return failed(name, str(error), fix)
    return ok(name, found)
