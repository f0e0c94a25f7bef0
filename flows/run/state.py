"""State of a run, `runs/<run_id>/state.json`: references to everything that it has made; and selection of its policies.

Written atomically after every stage that adds to it. Paths in it are relative to the folder of runs, which can be
moved. If it is lost, the stages' cache finds finished work.
"""

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from extras.packaging.package import read_package, settings_in
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.agents.team import TEAM_FILE
from tasks.evaluation.chat_model import ChatModel
from tasks.pipeline.code_version import content_digest
from tasks.pipeline.integrity import damage_of
from tasks.pipeline.references import (
    CheckpointRef,
    EvaluationRef,
    ProblemSetRef,
    SftDataRef,
    TrajectoryBatchRef,
    found_path,
    stored_path,
    with_paths,
)
from tasks.pipeline.store import parts_of, read_manifest, write_atomically
from tasks.training.retention import has_weights

STATE_FILE = "state.json"


class StageTiming(FrozenModel):
    """Duration of one stage."""

    label: str
    stage: str
    seconds: float
    overhead_s: float
    began: float | None = None
    """Seconds since 1970 at which it began; None: not recorded, by an earlier version."""


class ControlState(FrozenModel):
    """The SFT control: more SFT for as long as RL took."""

    steps: int
    """Additional SFT steps."""
    rl_seconds: float
    """Wall seconds of all RL stages, into which the steps fit."""
    step_seconds: float
    """Wall seconds of one SFT step."""
    after: int
    """Weight version of the last policy whose time is counted; the control is compared with it."""
    policy: CheckpointRef | None = None
    evaluation: EvaluationRef | None = None
    greedy_evaluation: EvaluationRef | None = None


class RejectionState(FrozenModel):
    """The rejection-sampling control: about as many judged kernels as RL had."""

    judged: int
    """Kernels that it had judged."""
    judged_by_rl: int
    after: int
    """Weight version of the last policy whose kernels are counted; the control is compared with it."""
    policy: CheckpointRef
    evaluation: EvaluationRef
    greedy_evaluation: EvaluationRef | None = None


class RunState(FrozenModel):
    """References to everything that one run has published."""

    problems: ProblemSetRef | None = None
    sft_data: SftDataRef | None = None
    repair_batch: TrajectoryBatchRef | None = None
    """First answers of the SFT policy to training problems. None: no repairs of its failures."""
    repair_pairs: SftDataRef | None = None
    """Their result."""
    joint_batch: TrajectoryBatchRef | None = None
    """Conversations for the joint epoch, of the policy before it. None: no joint epoch."""
    joint_pairs: SftDataRef | None = None
    """Their result."""
    policies: dict[int, CheckpointRef] = Field(default_factory=dict[int, CheckpointRef])
    """By weight version; 0 is the SFT policy."""
    batches: dict[int, TrajectoryBatchRef] = Field(default_factory=dict[int, TrajectoryBatchRef])
    """Validated training trajectories, by the weight version of their policy."""
    evaluations: dict[int, EvaluationRef] = Field(default_factory=dict[int, EvaluationRef])
    """Held-out evaluations with sampled answers, by weight version."""
    greedy_evaluations: dict[int, EvaluationRef] = Field(default_factory=dict[int, EvaluationRef])
    """Held-out evaluations with greedy answers, by weight version."""
    timings: dict[str, StageTiming] = Field(default_factory=dict[str, StageTiming])
    """By label; of a cached stage: its duration when it was computed."""

    artifacts: dict[str, str] = Field(default_factory=dict[str, str])
    """Folder of each stage's artifact, by label; `kernelmill data gc` keeps them, and the run stays cached."""
    digests: dict[str, str] = Field(default_factory=dict[str, str])
    """Content digest of each stage's artifact, by label: equal in runs with the same seed on equal machines."""
    control: ControlState | None = None
    rejection: RejectionState | None = None
    wall_seconds: float = 0.0
    """Wall seconds of all drivers of this run, each up to its last computed stage."""
    concluded: str = ""
    """Digest of the inputs of the last summary and report."""

    def with_policy(self, policy: CheckpointRef, staleness: int = 0) -> "RunState":
        """Return the state with one more policy. If it replaces another one, the descendants of that are dropped.

        `staleness`: of the run's rollouts; the first `staleness` batches from the policy's number on are older ones'.
        """
        version = policy.weight_version
        known = self.policies.get(version)
        if known is None or known.digest == policy.digest:
            return self.model_copy(update={"policies": {**self.policies, version: policy}})
        return self.model_copy(
            update={
                "policies": {**{old: ref for old, ref in self.policies.items() if old < version}, version: policy},
                "batches": {old: ref for old, ref in self.batches.items() if old < version + staleness},
                "evaluations": {old: ref for old, ref in self.evaluations.items() if old < version},
                "greedy_evaluations": {old: ref for old, ref in self.greedy_evaluations.items() if old < version},
                "control": None,
                "rejection": None,
            }
        )

    @property
    def newest_policy(self) -> CheckpointRef | None:
        """The policy of the highest weight version."""
        return self.policies[max(self.policies)] if self.policies else None


def wall_seconds_of(timings: Collection[StageTiming]) -> float:
    """Return the seconds in which at least one of these stages computed."""
    timed = sorted((each for each in timings if each.began is not None), key=lambda each: each.began or 0.0)
    total, until = sum(each.seconds for each in timings if each.began is None), 0.0
    for each in timed:
        assert each.began is not None
        ends = each.began + each.seconds
        total += max(ends - max(each.began, until), 0.0)
        until = max(until, ends)
    return total


def read_state(run_dir: Path) -> RunState:
    """Return the state of a run; an empty one if it has none yet."""
    path, runs_dir = run_dir / STATE_FILE, run_dir.resolve().parent
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return RunState.model_validate(_with_paths(stored, lambda uri: found_path(uri, runs_dir)))
    except FileNotFoundError:
        return RunState()
    except (ValueError, RecursionError) as error:
        wrong = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
        found = error if wrong is None else f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}".removeprefix(": ")
        raise InputError(
            f"{path}: not the state of a run; delete it, finished stages are found again: {found}"
        ) from error


def write_state(run_dir: Path, state: RunState) -> None:
    """Replace the state of a run."""
    runs_dir = run_dir.resolve().parent
    stored = _with_paths(state.model_dump(mode="json"), lambda uri: stored_path(uri, runs_dir))
    write_atomically(run_dir / STATE_FILE, json.dumps(stored, indent=1))


def check_evaluations(state: RunState) -> None:
    """Raise InputError for the first held-out evaluation that is damaged."""
    for evaluation in (*state.evaluations.values(), *state.greedy_evaluations.values()):
        if (damage := damage_of(evaluation.path)) is not None:
            raise InputError(f"{damage}; `kernelmill train` makes it again")


def _with_paths(stored: Any, change: Callable[[str], str]) -> Any:
    """Return the JSON of a state with `change` applied to the paths of its references and of all artifacts."""
    changed = with_paths(stored, change)
    if isinstance(changed, dict) and isinstance(artifacts := changed.get("artifacts"), dict):
        changed["artifacts"] = {label: change(uri) for label, uri in artifacts.items()}
    return changed


_LINKS = ("checkpoints", "trajectories", "evaluations", "replays", "comparisons")
"""Folders of a run with links into the store."""


def kept_artifacts(runs_dir: Path) -> set[Path]:
    """Return the folders of all artifacts that the runs in a folder refer to.

    A run of an earlier version did not record all of its artifacts: everything that is not newer than it is kept. What
    a run's folder links to is kept too: its state may have been lost.
    """
    kept: set[Path] = set()
    for link in (entry for folder in _LINKS for entry in runs_dir.glob(f"*/{folder}/*")):
        if link.is_symlink():
            kept.add(link.resolve())
    for file in sorted(runs_dir.glob(f"*/{STATE_FILE}")):
        if file.parent.is_symlink():
            continue
        state = read_state(file.parent)
        kept |= {Path(uri) for uri in state.artifacts.values()}
        ours = state.control
        control = () if ours is None else (ours.policy, ours.evaluation, ours.greedy_evaluation)
        other = state.rejection
        control += () if other is None else (other.policy, other.evaluation, other.greedy_evaluation)
        for reference in (
            state.problems, state.sft_data, *control,
            *state.policies.values(), *state.batches.values(), *state.evaluations.values(),
            *state.greedy_evaluations.values(),
        ):  # fmt: skip
            if reference is not None:
                kept.add(reference.path)
        if state.policies and not state.artifacts:
            until = file.stat().st_mtime
            kept |= {folder for folder in (runs_dir / "store").glob("*/*") if folder.stat().st_mtime <= until}
    return kept


_VERSION = re.compile(r"[0-9]{1,9}")


class PolicyChoice(FrozenModel):
    """A policy to compare, with its name in tables."""

    name: str
    """Name of the policy in the comparison, e.g. `SFT` or `multi-turn RL`."""
    checkpoint: str | None = None
    """A policy's folder, or the folder of a run (`runs/<run id>`). None: the run of this configuration."""
    version: int | None = None
    """Weight version of a run's policy: 0 is the SFT policy, 1 the one after the first iteration. None: the newest."""
    model: ChatModel | None = None
    """Instead of a policy: a model behind a server."""


def parse_choice(text: str) -> PolicyChoice:
    """Parse `NAME=FOLDER`, `NAME=FOLDER@VERSION`, `NAME=@VERSION` or a folder. Raises InputError for anything else."""
    name, equals, rest = text.partition("=")
    if not equals:
        name, rest = Path(text).name or text, text
    folder, at, version = rest.rpartition("@")
    if not at:
        folder, version = rest, ""
    if not name or (version and not _VERSION.fullmatch(version)):
        raise InputError(f"policy {text!r}: expected NAME=FOLDER or NAME=FOLDER@VERSION")
    return PolicyChoice(name=name, checkpoint=folder or None, version=int(version) if version else None)


def parse_model(text: str) -> PolicyChoice:
    """Parse `NAME=MODEL@URL` or `MODEL@URL`. Raises InputError for anything else."""
    whole, at, address = text.partition("@http")
    name, equals, model = whole.partition("=")
    if not at or not (model if equals else name):
        raise InputError(f"--model {text!r}: expected NAME=MODEL@URL, e.g. large=qwen3@http://127.0.0.1:8000/v1")
    model = model if equals else name
    return PolicyChoice(name=name, model=ChatModel(name=model, base_url=f"http{address}"))


def check_choices(choices: tuple[PolicyChoice, ...]) -> None:
    """Raise InputError unless there are two or more policies, each with a different name, in folders that exist."""
    if len(choices) < 2:
        raise InputError(f"policies: expected two or more to compare, found {len(choices)}")
    names = [choice.name for choice in choices]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"policies: expected a name of its own for each, found {twice[0]!r} twice")
    for choice in choices:
        if choice.checkpoint is not None and not Path(choice.checkpoint).is_dir():
            raise InputError(f"policies: {choice.name}: no such folder: {choice.checkpoint}")


def policy_of(choice: PolicyChoice, run_dir: Path, config: RunConfig) -> CheckpointRef:
    """Return the chosen policy; `run_dir`: this configuration's run. Raises InputError if there is no such policy."""
    folder = run_dir if choice.checkpoint is None else Path(choice.checkpoint).resolve()
    if choice.checkpoint is not None and not (folder / STATE_FILE).exists():
        if choice.version is not None:
            raise InputError(f"policies: {choice.name}: {folder} is one policy, not a run: it has no versions")
        return policy_in(folder, config, f"policies: {choice.name}")
    return _policy_of_run(folder, choice.version, f"policies: {choice.name}")


def _policy_of_run(folder: Path, version: int | None, where: str) -> CheckpointRef:
    policies = read_state(folder).policies
    version = max(policies, default=None) if version is None else version
    if version is None or version not in policies:
        known = ", ".join(str(number) for number in sorted(policies)) or "none"
        raise InputError(f"{where}: {folder} has no policy {version}; it has: {known}")
    if not has_weights(policies[version]):
        raise InputError(f"{where}: the weights of policy {version} were not kept (update.weights_interval)")
    return policies[version]


def policy_in(folder: Path, config: RunConfig, where: str = "--checkpoint") -> CheckpointRef:
    """Return the policy in a folder. Raises InputError, with `where`, if it is not of the configured architecture."""
    from flows.checks.preflight import check_checkpoint

    check_checkpoint(folder, config, where)
    return reference_of(folder, where)


def reference_of(folder: Path, where: str) -> CheckpointRef:
    """Return the reference of a policy's folder. Raises InputError, with `where`, if it is damaged."""
    for each in (folder, *parts_of(folder)):
        damaged = damage_of(each)
        if damaged is not None:
            raise InputError(f"{where}: {damaged}")
    if settings_in(folder) is not None:
        read_package(folder)
    manifest = read_manifest(folder)
    digest = content_digest(folder) if manifest is None else str(manifest["digest"])
    return CheckpointRef(uri=str(folder.resolve()), digest=digest)


def policy_at(text: str, where: str = "--policy") -> tuple[CheckpointRef, Path | None]:
    """Return the policy that `FOLDER` or `RUN[@VERSION]` names, of any architecture, and its run's configuration.

    FOLDER is a policy's or a package's, which has its run's configuration in it. Raises InputError, with `where`, if
    there is no such policy, or it is damaged.
    """
    try:
        choice = parse_choice(f"{where}={text}")
    except InputError:
        raise InputError(f"{where}: found {text}, expected FOLDER or RUN@VERSION, with a whole number") from None
    folder = Path(choice.checkpoint or "")
    if not text or not folder.is_dir():
        raise InputError(f"{where}: no such folder: {text}")
    if (folder / STATE_FILE).exists():
        policy = _policy_of_run(folder, choice.version, where)
        for each in (policy.path, *parts_of(policy.path)):
            if (damage := damage_of(each)) is not None:
                raise InputError(f"{where}: {damage}; remove {each}, and `kernelmill train` makes it again")
        return policy, _configuration_in(folder)
    packaged = settings_in(folder)
    is_policy = packaged or any((folder / name).exists() for name in ("config.json", TEAM_FILE))
    if choice.version is not None or not is_policy:
        raise InputError(f"{where}: {text}: expected a Hugging Face folder, or a run's folder with or without @VERSION")
    return reference_of(folder, where), packaged or _configuration_in(folder.absolute().parent.parent)


def policy_name(text: str, policy: CheckpointRef) -> str:
    """Return the name of a policy that `policy_at` found: `<run id>@<version>`, or its folder's name."""
    folder = Path(parse_choice(f"policy={text}").checkpoint or "").resolve()
    return f"{folder.name}@{policy.weight_version}" if (folder / STATE_FILE).exists() else folder.name


def _configuration_in(run_dir: Path) -> Path | None:
    file = run_dir / "config.yaml"
    return file if file.exists() and (run_dir / STATE_FILE).exists() else None
