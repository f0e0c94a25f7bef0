"""Input of a package (extras.packaging), from the folder of a run."""

from pathlib import Path
from typing import Any

from extras.packaging.inputs import PackageInputs
from flows.run.state import STATE_FILE, check_evaluations, parse_choice, policy_at, read_state
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from tasks.models.config import MEGATRON

_RUN = "RUN"


def package_inputs(run: str, license_name: str | None = None, base_model: str | None = None) -> PackageInputs:
    """Return the input of the package of `RUN[@VERSION]`, by default the newest policy.

    Raises InputError if there is no such run or policy, its weights were not kept, or an evaluation is damaged.
    """
    policy, file = policy_at(run, _RUN)
    folder = Path(parse_choice(f"{_RUN}={run}").checkpoint or "")
    if not (folder / STATE_FILE).exists():
        raise InputError(f"{_RUN}: {run}: expected a run's folder with or without @VERSION, found one without a run")
    if file is None:
        raise InputError(f"{_RUN}: {folder / 'config.yaml'}: expected the run's configuration, found no file")
    if not (policy.path / "config.json").is_file():
        raise InputError(f"{_RUN}: policy {policy.weight_version}: its folder is gone: {policy.path}")
    config, state = load_configuration(file), read_state(folder)
    if state.problems is None:
        raise InputError(f"{_RUN}: {folder / STATE_FILE}: expected the run's problems, found none")
    check_evaluations(state)
    return PackageInputs(
        run_id=folder.resolve().name,
        policy=policy,
        settings=portable_settings(config),
        rollout=config.rollout,
        judge=config.judge,
        evaluation=config.evaluation,
        problem_source=config.problems.source,
        problems=state.problems,
        sft_data=None if config.sft.is_left_out else state.sft_data,
        batches=tuple(batch for version, batch in sorted(state.batches.items()) if version < policy.weight_version),
        sampled=state.evaluations,
        greedy=state.greedy_evaluations,
        base_model=base_model or (config.model.pretrained and _without_folder(config.model.pretrained)),
        license=license_name,
    )


def portable_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that decide a run's results, as a configuration that another machine can load.

    Operational settings say where the run worked, and files of the user stand by their names without folders: both mean
    nothing elsewhere, and are nobody's business. So are the command and the environment of SGLang's servers, which can
    hold secrets.
    """
    settings = decisive_part(config, _without_folder)
    for name in ("command", "environment"):
        settings["rollout"]["sglang"].pop(name)
    return settings


def _without_folder(name: str) -> str:
    """Return the last part of a path; the name of a model of the hub, which has one slash at most, as it is."""
    path = Path(name.removeprefix(MEGATRON))
    is_path = path.is_absolute() or name.startswith((".", MEGATRON)) or name.count("/") > 1 or path.exists()
    return path.name if is_path else name
