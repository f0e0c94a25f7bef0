"""Replay: updates from stored trajectories, without sampling or judging."""

from pathlib import Path

from prefect import flow

from flows.iteration import run_update
from flows.run.prefect_ui import name_of
from flows.run.run import link_to, open_run
from flows.run.state import policy_in
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.store import read_manifest
from tasks.trajectories.reader import batch_reference, find_batches, read_trajectories


def sampling_policy(runs_dir: Path, batch: TrajectoryBatchRef) -> CheckpointRef:
    """Return the policy that sampled a batch, found in the store by its digest. Raises InputError if it is missing."""
    digest = str(read_trajectories(batch)["policy_digest"][0])
    for folder in sorted((runs_dir / "store").glob("*/*")):
        manifest = read_manifest(folder)
        if manifest is not None and manifest["digest"] == digest and (folder / "config.json").exists():
            return CheckpointRef(uri=str(folder.resolve()), digest=digest)
    raise InputError(
        f"{batch.path}: the policy that sampled it, {digest}, is not in {runs_dir / 'store'}; "
        "name a policy with --checkpoint"
    )


@flow(name="replay", flow_run_name=name_of("policy"))
def replay_flow(config: RunConfig, dataset: str, checkpoint: str | None = None) -> CheckpointRef:
    """Update once on each stored batch in order, from the policy that sampled the first one, or the one in a folder.

    That policy is also the reference of the KL term. The run's own policies stay, and so does `runs/latest`; the result
    is linked in `replays/` of the run that has these settings.
    """
    given = None if checkpoint is None else policy_in(Path(checkpoint), config)
    with open_run(config, is_newest=False) as run:
        batches = [batch_reference(folder) for folder in find_batches(Path(dataset))]
        first = given or sampling_policy(Path(config.runs_dir).resolve(), batches[0])
        policy = first = first.model_copy(update={"weight_version": batches[0].iteration})
        for batch in batches:
            policy = run_update(run, policy, first, batch, batch.iteration)
            link_to(run.run_dir / "replays" / f"{batch.run_id}-iteration={batch.iteration}", policy.path)
        return policy
