"""The configuration of a run: one typed tree, from a YAML file and `--set a.b=c` overrides.

Importing this module imports neither torch nor ray: a configuration is checked before anything expensive starts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError, field_validator

from flows.settings.errors import explain
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel, Operational, decisive_part
from tasks.cluster.placement import Kind
from tasks.evaluation.config import EvaluationConfig
from tasks.models.config import ModelConfig
from tasks.pipeline.retries import StagesConfig
from tasks.pipeline.store import digest_of, write_atomically
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import RolloutConfig
from tasks.sft.config import SftConfig
from tasks.tracking.config import TrackingConfig
from tasks.update.config import UpdateConfig
from tasks.validation.config import ValidationConfig


class RayConfig(FrozenModel):
    """Where the work runs."""

    address: str | None = None
    """Address of a Ray cluster (`ray://host:10001` or `host:6379`); none: a local one is started."""
    cpus: int | None = Field(default=None, ge=1)
    """CPUs of the local cluster; none: as many as the machine has."""
    worker_resource: str | None = None
    """Custom resource of the cluster's nodes that stages may run on (`ray start --resources='{"worker": 1000}'`); none: any node."""
    placement: tuple[tuple[Kind, ...], ...] = ()
    """Kinds of workers that share a node, group by group; kinds of different groups share none: `[[update, judge], [rollout]]`. `update`:
    the ranks, those of SFT too; `rollout`: the process that generates, with its SGLang servers; `judge`: judge actors. What a group takes
    is reserved. Empty: wherever Ray finds room."""
    object_store_mb: int = Field(default=200, ge=80)
    """Object store of the local cluster; stages pass references, so that little is needed."""

    @field_validator("placement")
    @classmethod
    def _kinds_once(cls, groups: tuple[tuple[Kind, ...], ...]) -> tuple[tuple[Kind, ...], ...]:
        named = [kind for group in groups for kind in group]
        if len(set(named)) < len(named) or not all(groups):
            raise ValueError("groups with one kind or more, each kind in one group only")
        if "judge" in named and "rollout" not in named:
            raise ValueError("a group for rollout as well, which starts the judge actors")
        return groups


class RunConfig(FrozenModel):
    """Everything that decides what a run does."""

    name: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9._-]*$")
    seed: int = Field(default=0, ge=0)
    """Seed of every stage that does not set its own."""
    iterations: int = Field(default=8, ge=0)
    """RL iterations."""
    control: Annotated[bool, Operational] = False
    """Also spend the time that RL took on more SFT, and measure the result: what RL is compared with. It comes last,
    and can be added to a finished run."""
    runs_dir: Annotated[str, Operational] = "runs"
    """Folder of everything that runs write."""
    problems: ProblemsConfig = ProblemsConfig()
    model: ModelConfig = ModelConfig()
    sft: SftConfig = SftConfig()
    rollout: RolloutConfig = RolloutConfig()
    judge: JudgeConfig = JudgeConfig()
    validation: ValidationConfig = ValidationConfig()
    update: UpdateConfig = UpdateConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: Annotated[TrackingConfig, Operational] = TrackingConfig()
    ray: Annotated[RayConfig, Operational] = RayConfig()
    stages: Annotated[StagesConfig, Operational] = StagesConfig()

    @property
    def run_id(self) -> str:
        """`<name>-<digest>` of what decides the result: the same configuration names the same run, which then resumes."""
        return f"{self.name}-{digest_of(decisive_part(self))[:8]}"


def load_configuration(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, apply `a.b=c` overrides (values as YAML), and check the result.

    The key `extends` names another file, relative to this one, whose settings hold where this one says nothing.
    Raises InputError: no such file, not YAML, not a mapping, or a key that is unknown or of the wrong type (with its
    dotted path, what was found, what was expected, and the nearest valid name).
    """
    values = _read_yaml(Path(path))
    for override in overrides:
        apply_override(values, override)
    return check_configuration(values, str(path))


def _read_yaml(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the nested mappings of a file, on top of those that it extends."""
    if path.resolve() in extended_by:
        raise InputError(f"{path}: extends itself")
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        by = f", which {extended_by[-1]} extends" if extended_by else ""
        raise InputError(f"{path}: no such configuration file{by}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a configuration file: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a mapping of settings, found {type(loaded).__name__}")
    values: dict[str, Any] = {str(key): value for key, value in loaded.items()}
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{path}: extends: found {base!r}, expected the name of a file")
    return _merged(_read_yaml(path.parent / base, (*extended_by, path.resolve())), values)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`; groups of settings are merged, lists and values replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def check_configuration(values: dict[str, Any], where: str) -> RunConfig:
    """Return the typed configuration, or raise InputError naming `where` and the first key that is wrong."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, RunConfig)}") from error


def apply_override(values: dict[str, Any], override: str) -> None:
    """Put one `a.b=c` into nested mappings; `c` is YAML, so that numbers, lists and null are what they look like."""
    name, equals, text = override.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {override}: expected the form a.b=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"--set {override}: the value is not YAML: {' '.join(str(error).split())}") from error
    target = values
    for position, key in enumerate(keys[:-1]):
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {override}: {'.'.join(keys[: position + 1])} is a value, not a group of settings")
        target = inner
    target[keys[-1]] = value


def save_configuration(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration as YAML that `load_configuration` reads back to an equal value."""
    write_atomically(path, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
