"""What a run has made so far: `runs/<run_id>/state.json`, written atomically after every stage that adds to it.

It names the newest policy, so that one more iteration can be run at any time, and everything that the report needs. It
holds references only. A run that is killed loses nothing by it: the stages' own cache finds finished work.
"""

from pathlib import Path

from pydantic import Field, ValidationError

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.store import write_atomically

STATE_FILE = "state.json"


class StageTiming(FrozenModel):
    """How long one stage took."""

    label: str
    stage: str
    seconds: float
    overhead_s: float


class ControlState(FrozenModel):
    """The control: SFT that goes on for as long as RL took."""

    steps: int
    """Further SFT steps."""
    rl_seconds: float
    """Wall seconds of all RL stages: what the steps have to fit into."""
    step_seconds: float
    """Wall seconds of one SFT step."""
    after: int
    """Weight version of the last policy whose time is counted: the policy that the control is compared with."""
    policy: CheckpointRef | None = None
    evaluation: EvaluationRef | None = None


class RunState(FrozenModel):
    """References to everything that one run has published."""

    problems: ProblemSetRef | None = None
    sft_data: SftDataRef | None = None
    policies: dict[int, CheckpointRef] = Field(default_factory=dict[int, CheckpointRef])
    """By weight version; 0 is what SFT made."""
    batches: dict[int, TrajectoryBatchRef] = Field(default_factory=dict[int, TrajectoryBatchRef])
    """Validated training trajectories, by the weight version that made them."""
    evaluations: dict[int, EvaluationRef] = Field(default_factory=dict[int, EvaluationRef])
    """Held-out evaluations, by weight version."""
    timings: dict[str, StageTiming] = Field(default_factory=dict[str, StageTiming])
    """By label; of a cached stage: how long it took when it was computed."""

    artifacts: dict[str, str] = Field(default_factory=dict[str, str])
    """Folder of what each stage made, by label: what `kernelmill data gc` keeps, so that the run stays a chain of cache hits."""
    control: ControlState | None = None
    wall_seconds: float = 0.0
    """Wall seconds of the drivers of this run, each up to the last stage that it computed."""
    concluded: str = ""
    """Digest of what the last summary and report were made of."""

    def with_policy(self, policy: CheckpointRef) -> "RunState":
        """Return the state with one more policy. Where it replaces another one, what descended from that is left out."""
        version = policy.weight_version
        known = self.policies.get(version)
        if known is None or known.digest == policy.digest:
            return self.model_copy(update={"policies": {**self.policies, version: policy}})
        return self.model_copy(
            update={
                "policies": {**{old: ref for old, ref in self.policies.items() if old < version}, version: policy},
                "batches": {old: ref for old, ref in self.batches.items() if old < version},
                "evaluations": {old: ref for old, ref in self.evaluations.items() if old < version},
                "control": None,
            }
        )

    @property
    def newest_policy(self) -> CheckpointRef | None:
        """The policy of the highest weight version."""
        return self.policies[max(self.policies)] if self.policies else None


def read_state(run_dir: Path) -> RunState:
    """Return the state of a run; an empty one where it has none yet."""
    path = run_dir / STATE_FILE
    try:
        return RunState.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return RunState()
    except ValidationError as error:
        raise InputError(
            f"{path}: not the state of a run; delete it, finished stages are found again: {error}"
        ) from error


def kept_artifacts(runs_dir: Path) -> set[Path]:
    """Return the folders of all artifacts that the runs in a folder refer to.

    A run of an earlier version did not note all of its artifacts: for its sake everything that was there with it is kept.
    """
    kept: set[Path] = set()
    for file in sorted(runs_dir.glob(f"*/{STATE_FILE}")):
        if file.parent.is_symlink():
            continue
        state = read_state(file.parent)
        kept |= {Path(uri) for uri in state.artifacts.values()}
        control = (state.control.policy, state.control.evaluation) if state.control is not None else ()
        for reference in (
            state.problems, state.sft_data, *control,
            *state.policies.values(), *state.batches.values(), *state.evaluations.values(),
        ):  # fmt: skip
            if reference is not None:
                kept.add(reference.path)
        if state.policies and not state.artifacts:
            until = file.stat().st_mtime
            kept |= {folder for folder in (runs_dir / "store").glob("*/*") if folder.stat().st_mtime <= until}
    return kept


def write_state(run_dir: Path, state: RunState) -> None:
    """Replace the state of a run."""
    write_atomically(run_dir / STATE_FILE, state.model_dump_json(indent=1))
