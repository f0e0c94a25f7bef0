"""Which policy is meant: one of a run, by version or the newest, or a folder."""

from pathlib import Path

from flows.run.run import Run
from flows.run.state import STATE_FILE, read_state
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.code_version import content_digest
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import read_manifest


class PolicyChoice(FrozenModel):
    """One policy, under the name that tables show."""

    name: str
    """What the policy is called in the comparison, e.g. `SFT` or `multi-turn RL`."""
    checkpoint: str | None = None
    """A policy's folder, or the folder of a run (`runs/<run id>`); none: the run of this configuration."""
    version: int | None = None
    """Which policy of a run: 0 is what SFT made, 1 the one after the first iteration; none: the newest."""


def chosen(text: str) -> PolicyChoice:
    """Return the choice that `NAME=FOLDER`, `NAME=FOLDER@VERSION`, `NAME=@VERSION` or a folder alone says. InputError: none of these."""
    name, equals, rest = text.partition("=")
    if not equals:
        name, rest = Path(text).name or text, text
    folder, at, version = rest.rpartition("@")
    if not at:
        folder, version = rest, ""
    if not name or (version and not version.isdigit()):
        raise InputError(f"policy {text!r}: expected NAME=FOLDER or NAME=FOLDER@VERSION")
    return PolicyChoice(name=name, checkpoint=folder or None, version=int(version) if version else None)


def check_choices(choices: tuple[PolicyChoice, ...]) -> None:
    """Raise InputError unless there are two or more policies, each with a name and a folder of its own."""
    if len(choices) < 2:
        raise InputError(f"policies: expected two or more to compare, found {len(choices)}")
    names = [choice.name for choice in choices]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"policies: expected a name of its own for each, found {twice[0]!r} twice")
    for choice in choices:
        if choice.checkpoint is not None and not Path(choice.checkpoint).is_dir():
            raise InputError(f"policies: {choice.name}: no such folder: {choice.checkpoint}")


def policy_of(choice: PolicyChoice, run: Run) -> CheckpointRef:
    """Return the policy that is meant; InputError where the run has none of that version, or the folder holds none."""
    folder = run.run_dir if choice.checkpoint is None else Path(choice.checkpoint).resolve()
    if choice.checkpoint is not None and not (folder / STATE_FILE).exists():
        return _in_folder(folder, choice, run.config)
    policies = read_state(folder).policies
    version = max(policies, default=None) if choice.version is None else choice.version
    if version is None or version not in policies:
        known = ", ".join(str(number) for number in sorted(policies)) or "none"
        raise InputError(f"policies: {choice.name}: {folder} has no policy {version}; it has: {known}")
    return policies[version]


def _in_folder(folder: Path, choice: PolicyChoice, config: RunConfig) -> CheckpointRef:
    from flows.checks.preflight import check_checkpoint

    if choice.version is not None:
        raise InputError(f"policies: {choice.name}: {folder} is one policy, not a run: it has no versions")
    check_checkpoint(folder, config, f"policies: {choice.name}")
    manifest = read_manifest(folder)
    return CheckpointRef(uri=str(folder), digest=manifest["digest"] if manifest else content_digest(folder))
