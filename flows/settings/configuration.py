"""The configuration of a run: one typed tree, from a YAML file and `--set a.b=c` overrides, and its error messages.

Imports neither torch nor ray: a configuration is checked before anything expensive starts.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from flows.settings.explanation import explain
from flows.settings.shipped import configuration_file, configuration_names, deepspeed_file
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel, Operational, decisive_part
from tasks.agents.config import owners
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

LATEST = "latest"
"""Link in the folder of runs to the one that was started last."""
_LARGEST = 1e18
"""Settings are smaller, also those in bytes."""
_MOST_BYTES = 4 * 2**20
_MOST_VALUES = 100_000
_TOO_DEEP = "expected groups of settings, found mappings or lists nested too deeply, or in themselves"


class RayConfig(FrozenModel):
    """The Ray cluster that a run works on."""

    address: str | None = None
    """Address of a Ray cluster (`ray://host:10001` or `host:6379`). None: a local one is started."""
    wait_s: float = Field(default=300.0, ge=0)
    """Longest wait for the cluster at `address` to answer again if it is lost during a run, and for its `nodes`."""
    nodes: int | None = Field(default=None, ge=1)
    """Nodes that must have joined the cluster at `address` before a run works on it, for clusters that are still being
    started. None: those that are there."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for a local Ray to start: its own limit of 30 s is too short on a busy machine."""
    cpus: int | None = Field(default=None, ge=1)
    """CPUs of the local cluster. None: all of the machine."""
    answer_timeout_s: float = Field(default=300.0, gt=0)
    """Longest wait for each node of the cluster at `address` to say, before a run, what it lacks. One that is new to
    our packages fetches them first, and a busy one imports slowly."""
    worker_resource: str | None = None
    """Custom resource of the nodes that stages may run on (`ray start --resources='{"worker": 1000}'`).
    None: any node."""
    placement: tuple[tuple[Kind, ...], ...] = ()
    """Groups of workers, e.g. `[[update, judge], [rollout]]`: kinds of one group share a node, kinds of different
    groups do not. `update`: the ranks, also of SFT; `rollout`: the process that generates, with its SGLang servers;
    `judge`: judge actors. The resources of a group are reserved. Empty: Ray chooses the nodes."""
    placement_timeout_s: float = Field(default=300.0, gt=0)
    """Longest wait for the resources of `placement` while others hold them, or until a node replaces one that died."""
    object_store_mb: int = Field(default=200, ge=80)
    """Object store of the local cluster. Stages pass references, so little is needed."""

    @model_validator(mode="after")
    def _nodes_of_a_cluster(self) -> Self:
        if self.nodes is not None and self.address is None:
            raise ValueError("an address as well: a local Ray is one node")
        return self

    @field_validator("placement")
    @classmethod
    def _kinds_once(cls, groups: tuple[tuple[Kind, ...], ...]) -> tuple[tuple[Kind, ...], ...]:
        named = [kind for group in groups for kind in group]
        if len(set(named)) < len(named) or not all(groups):
            raise ValueError("groups with one kind or more, each kind in one group only")
        if "judge" in named and "rollout" not in named:
            raise ValueError("a group for rollout as well, which starts the judge actors")
        return groups


class PrefectConfig(FrozenModel):
    """The Prefect server that a run starts where none is configured."""

    start_timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for it to answer; it takes 8 to 15 s, and many times that on a busy machine."""


class RunConfig(FrozenModel):
    """All settings of a run."""

    name: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=200)
    seed: int = Field(default=0, ge=0)
    """Seed of every stage without a seed setting."""
    iterations: int = Field(default=8, ge=0, le=1_000_000)
    """RL iterations."""
    control: Annotated[bool, Operational] = False
    """SFT control: also spend the time of RL on more SFT, and evaluate the result for comparison with RL.
    It comes last, and can be added to a finished run."""
    rejection_control: Annotated[bool, Operational] = False
    """Rejection-sampling control: also spend as many judged kernels as RL had on rejection sampling, trained as the
    joint epoch is (`sft.joint`). It comes last, and can be added to a finished run."""
    rejection_rounds: Annotated[int, Operational] = Field(default=1, ge=1, le=8)
    """Rounds of that control, which share the kernels: each begins with the policy of the one before."""
    runs_dir: Annotated[str, Operational] = Field(default="runs", min_length=1)
    """Folder of all output of runs; `~` in front is the home folder."""
    store: Annotated[str | None, Operational] = None
    """URL of a store that machines share, e.g. `s3://bucket/folder` (extra `s3`): what one has made, others fetch."""
    problems: ProblemsConfig = ProblemsConfig()
    model: ModelConfig = ModelConfig()
    sft: SftConfig = SftConfig()
    rollout: RolloutConfig = RolloutConfig()
    judge: JudgeConfig = JudgeConfig()
    validation: ValidationConfig = ValidationConfig()
    update: UpdateConfig = UpdateConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: Annotated[TrackingConfig, Operational] = TrackingConfig()
    prefect: Annotated[PrefectConfig, Operational] = PrefectConfig()
    ray: Annotated[RayConfig, Operational] = RayConfig()
    stages: Annotated[StagesConfig, Operational] = StagesConfig()

    @field_validator("runs_dir")
    @classmethod
    def _from_home(cls, given: str) -> str:
        return os.path.expanduser(given)  # noqa: PTH111  # a Path would raise without a home folder

    @field_validator("sft", mode="before")
    @classmethod
    def _left_out(cls, given: Any) -> Any:
        return {"steps": 0} if given is None or given == "none" else given

    @property
    def policies(self) -> int:
        """Number of policies with weights of their own: those of the agents, else one."""
        return len(owners(self.rollout.episode.agents))

    @property
    def trained_policies(self) -> int:
        """Number of policies that are updated."""
        return sum(bool(roles) for roles in owners(self.rollout.episode.agents).values())

    @property
    def has_team(self) -> bool:
        """True if several agents have weights of their own."""
        return self.policies > 1

    @property
    def judges_pairs_on_cpus(self) -> bool:
        """True if no GPU is needed to judge SFT's pairs: those in other languages than Triton are not interpreted."""
        return self.judge.device == "cpu" or (self.sft.data.judge.device == "cpu" and self.judge.backend == "triton")

    @property
    def judge_workers(self) -> int:
        """Workers of one judge: of each judge actor if there are any, else of the run's own judge."""
        actors = self.rollout.judge_actors
        return actors.workers if actors.count else self.judge.workers

    @property
    def run_id(self) -> str:
        """`<name>-<digest of all settings that affect results>`: the same configuration resumes the same run."""
        return f"{self.name}-{digest_of(decisive_part(self))[:8]}"


def load_configuration(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, apply `a.b=c` overrides (values as YAML), and check the result.

    The key `extends` names another file, relative to this one, for the settings that this one does not set. Both may
    be the name of a shipped file (`flows.settings.shipped`).
    Raises InputError if the file does not exist, is not YAML or not a mapping, or if a key is unknown or of the wrong
    type; the message has its dotted path, the value found and expected, and the nearest valid name.
    """
    values = _read_yaml(configuration_file(Path(path)))
    for override in overrides:
        apply_override(values, override)
    try:
        return check_configuration(values, str(path))
    except InputError as error:
        found = str(error).removeprefix(f"{path}: ")
        if any(found.startswith(f"{override.partition('=')[0]}:") for override in overrides):
            raise InputError(f"--set {found}") from error
        raise


def overridden(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Return a configuration with `a.b=c` overrides applied. Raises InputError as `load_configuration` does."""
    if not overrides:
        return config
    values = config.model_dump(mode="json", exclude_unset=True)
    for override in overrides:
        apply_override(values, override)
    return check_configuration(values, "overrides")


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping; YAML's own loader keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is set twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _number_or_text(loader: _Loader, node: yaml.ScalarNode) -> Any:
    """Return a number as a person reads it. YAML 1.1 takes 010 as 8 and 1:30 as 90: such values stay text."""
    text = loader.construct_scalar(node)
    if ":" in text or re.fullmatch(r"[-+]?0[0-9_]+", text):
        return text
    return loader.construct_yaml_int(node) if node.tag.endswith("int") else loader.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number_or_text)


def _text_of(path: Path) -> str:
    """Return the text of a file, of a device or a pipe no more than a configuration can have."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path}: expected a configuration of at most {_MOST_BYTES // 2**20} MiB, found more")
    return content.decode("utf-8")


def _in_a_line(error: Exception) -> str:
    """Return what a YAML error says, in one line and without the name that it has for text."""
    return " ".join(str(error).replace('in "<unicode string>", ', "").split())


def _size(value: Any, known: dict[int, int]) -> int:
    """Return the number of values below one, repeated ones counted each time; `known`: sizes by identity."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = 1  # an alias within itself
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(value)]


def _read_yaml(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the nested mappings of a file, merged into those of the file that it extends."""
    if path.resolve() in extended_by:
        raise InputError(f"{path}: extends itself")
    try:
        loaded = yaml.load(_text_of(path), _Loader)
        if _size(loaded, {}) > _MOST_VALUES:
            raise InputError(f"{path}: expected at most {_MOST_VALUES:,} values, found more: its aliases repeat them")
    except FileNotFoundError as error:
        by = f", which {extended_by[-1]} extends" if extended_by else ""
        names = "" if path.suffix else f"; the names of shipped ones: {', '.join(configuration_names())}"
        raise InputError(f"{path}: no such configuration file{by}{names}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a configuration file: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2020-99-99
        raise InputError(f"{path}: not YAML: {_in_a_line(error)}") from error
    except RecursionError as error:
        raise InputError(f"{path}: {_TOO_DEEP}") from error
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
    beside = path.parent / base
    extended = beside if beside.is_file() else configuration_file(Path(base))
    return _merged(_read_yaml(extended if extended.is_file() else beside, (*extended_by, path.resolve())), values)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated by `over`: groups of settings are merged, lists and values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def check_configuration(values: dict[str, Any], where: str) -> RunConfig:
    """Return the typed configuration. Raises InputError with `where` and the first wrong key."""
    update = values.get("update")
    if isinstance(update, dict) and isinstance(update.get("deepspeed"), str):
        values = {**values, "update": {**update, "deepspeed": deepspeed_file(update["deepspeed"])}}
    try:
        _check_values(values, where)
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, RunConfig)}") from error
    except RecursionError as error:
        raise InputError(f"{where}: {_TOO_DEEP}") from error
    typed = config.model_dump()
    _check_values(typed, where)  # pydantic reads the text 1e400 as infinity
    _check_truths(values, typed, where)
    return config


def _check_values(value: object, where: str, name: str = "") -> None:
    """Raise InputError for what no setting can mean: a number that is infinite, none, or beyond any count; a NUL."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_values(inner, where, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_values(inner, where, name)
    elif isinstance(value, int | float) and not abs(value) < _LARGEST:
        raise InputError(f"{where}: {name}: found {value:g}, expected a finite number below {_LARGEST:g}")
    elif isinstance(value, str) and "\0" in value:  # no name of a file can have it
        raise InputError(f"{where}: {name}: found {value!r}, expected text without NUL characters")


def _check_truths(given: dict[str, Any], typed: dict[str, Any], where: str, prefix: str = "") -> None:
    """Raise InputError for `true` and `false` in place of a number: pydantic reads them as 1 and 0."""
    for key, value in given.items():
        read = typed.get(key)
        if isinstance(value, dict) and isinstance(read, dict):
            _check_truths(value, read, where, f"{prefix}{key}.")
        elif isinstance(value, bool) and isinstance(read, int | float) and not isinstance(read, bool):
            raise InputError(f"{where}: {prefix}{key}: found {str(value).lower()}, expected a number")


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set one `a.b=c` in nested mappings; `c` is parsed as YAML."""
    name, equals, text = override.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {override}: expected the form a.b=value")
    try:
        value = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"--set {override}: the value is not YAML: {_in_a_line(error)}") from error
    except RecursionError as error:
        raise InputError(f"--set {override[:60]}…: {_TOO_DEEP}") from error
    target = values
    for position, key in enumerate(keys[:-1]):
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {override}: {'.'.join(keys[: position + 1])} is a value, not a group of settings")
        target = inner
    target[keys[-1]] = value


def save_configuration(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration as YAML that `load_configuration` reads to an equal value."""
    write_atomically(path, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
