"""Supervised fine-tuning on judged and validated pairs of problem and kernel, of each agent on its own."""

from prefect import flow

from flows.problems import started_run
from flows.run.prefect_ui import name_of
from flows.run.run import Run
from flows.settings.configuration import RunConfig
from tasks.agents.config import owners
from tasks.agents.task import form_team
from tasks.models.config import ModelConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, SftDataRef
from tasks.sft.task import adopt_policy, fine_tune, make_sft_data
from tasks.sft.untrained import start_servers_beside_sft
from tasks.validation.task import check_sft_data


def run_sft(run: Run, problems: ProblemSetRef, rolls_out_next: bool = False) -> CheckpointRef:
    """Return policy 0: the result of SFT on the judged pairs, or the pretrained model if SFT is left out.

    Of agents with weights of their own, the team of their policies. `rolls_out_next`: start what the next rollout needs
    beside SFT.
    """
    config = run.config
    if config.sft.is_left_out:
        return run.add_policy(_for_each_agent(run, None))
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
    if rolls_out_next and run.state.newest_policy is None and not config.has_team:
        start_servers_beside_sft(data, config.model, config.rollout, config.update.engine)
    return run.add_policy(_for_each_agent(run, data))


def _for_each_agent(run: Run, data: SftDataRef | None) -> CheckpointRef:
    """Return the first policy, or the team of the agents' first policies."""
    config = run.config
    if not config.has_team:
        return _first_policy(run, data, config.model)
    agents = config.rollout.episode.agents
    members: dict[str, CheckpointRef] = {}
    for owner, roles in owners(agents).items():
        model, of = config.model, f" of the {owner}"
        if agents[owner].pretrained is not None:
            model = model.model_copy(update={"pretrained": agents[owner].pretrained})
        members[owner] = _first_policy(run, data if roles else None, model, roles, of)
    return form_team(run.workspace, members, weight_version=0)


def _first_policy(
    run: Run, data: SftDataRef | None, model: ModelConfig, roles: tuple[str, ...] = (), of: str = ""
) -> CheckpointRef:
    """Return the result of SFT on the pairs of these roles; without data the pretrained model as it is."""
    config = run.config
    if data is None:
        return adopt_policy(run.workspace, model, of=of)
    return fine_tune(run.workspace, data, model, config.sft, config.update.engine, config.seed, roles=roles, of=of)


def newest_policy(run: Run, problems: ProblemSetRef) -> CheckpointRef:
    """Return the newest policy that descends from this configuration's SFT; initially the SFT policy."""
    first = run_sft(run, problems)
    return run.state.newest_policy or first


@flow(name="sft", flow_run_name=name_of("problems"))
def sft_flow(config: RunConfig, overrides: tuple[str, ...] = ()) -> CheckpointRef:
    """Make the problem set and the SFT data, then run SFT."""
    with started_run(config, overrides) as (run, problems):
        return run_sft(run, problems)
