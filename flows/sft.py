"""Supervised fine-tuning on judged and validated pairs of problem and kernel."""

from prefect import flow

from flows.problems import started_run
from flows.run.prefect_ui import name_of
from flows.run.run import Run
from flows.settings.configuration import RunConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef
from tasks.sft.task import adopt_policy, fine_tune, make_sft_data
from tasks.sft.untrained import start_servers_beside_sft
from tasks.validation.task import check_sft_data


def run_sft(run: Run, problems: ProblemSetRef, rolls_out_next: bool = False) -> CheckpointRef:
    """Return policy 0: the result of SFT on the judged pairs, or the pretrained model if SFT is left out.

    `rolls_out_next`: start what the next rollout needs beside SFT.
    """
    config = run.config
    if config.sft.is_left_out:
        return run.add_policy(adopt_policy(run.workspace, config.model))
    data = make_sft_data(
        run.workspace,
        problems,
        config.sft.data,
        config.problems,
        config.rollout.episode,
        run.judge,
        config.rollout.judging_place,
        config.seed,
    )
    data = check_sft_data(run.workspace, data, config.validation, config.rollout.episode.reward)
    run.record(sft_data=data)
    if rolls_out_next and run.state.newest_policy is None:
        start_servers_beside_sft(data, config.model, config.rollout, config.update.engine)
    return run.add_policy(fine_tune(run.workspace, data, config.model, config.sft, config.update.engine, config.seed))


def newest_policy(run: Run, problems: ProblemSetRef) -> CheckpointRef:
    """Return the newest policy that descends from this configuration's SFT; initially the SFT policy."""
    first = run_sft(run, problems)
    return run.state.newest_policy or first


@flow(name="sft", flow_run_name=name_of("problems"))
def sft_flow(config: RunConfig, overrides: tuple[str, ...] = ()) -> CheckpointRef:
    """Make the problem set and the SFT data, then run SFT."""
    with started_run(config, overrides) as (run, problems):
        return run_sft(run, problems)
