"""Supervised fine-tuning on judged and validated pairs of problem and kernel, of each agent on its own."""

from collections.abc import Callable, Collection

from prefect import flow

from flows.problems import started_run
from flows.run.prefect_ui import name_of
from flows.run.run import Run
from flows.settings.configuration import RunConfig
from tasks.agents.config import owners, trained_roles
from tasks.agents.task import form_team
from tasks.agents.team import members_of
from tasks.models.config import ModelConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, SftDataRef
from tasks.pipeline.stage import StageTask
from tasks.pipeline.store import read_metadata
from tasks.rollout.config import JudgingPlace
from tasks.rollout.task import answer_once, play_conversations
from tasks.sft.config import SftConfig
from tasks.sft.task import (
    adopt_policy,
    fine_tune,
    fine_tune_jointly,
    fine_tune_on_repairs,
    make_joint_pairs,
    make_repair_pairs,
    make_sft_data,
)
from tasks.sft.untrained import start_servers_beside_sft
from tasks.training.config import EngineConfig
from tasks.validation.task import check_sft_data

TrainFurther = Callable[[CheckpointRef, ModelConfig, tuple[str, ...], str], CheckpointRef]
"""Training of one policy: given it, its model's settings, its roles (none: all), and the end of the stage's label."""
_REPAIRS_SEED = 3_000_017
"""Added to the run's seed for the answers that repairs start from."""
_JOINT_SEED = 2_000_003
"""Added to the run's seed for the joint epoch, whose problems are drawn apart from the first iteration's."""


def run_sft(run: Run, problems: ProblemSetRef, rolls_out_next: bool = False) -> CheckpointRef:
    """Return policy 0: the result of SFT on the judged pairs, or the pretrained model if SFT is left out.

    Of agents with weights of their own, the team of their policies. `rolls_out_next`: start what the next rollout needs
    beside SFT.
    """
    config = run.config
    if config.sft.is_left_out:
        return run.add_policy(_for_each_agent(run, None))
    data = _judged_pairs(run, problems, config.rollout.judging_place, config.update.engine)
    has_servers_each = config.has_team and not config.rollout.sglang.adapter_rank
    agents = tuple(owners(config.rollout.episode.agents)) if has_servers_each else ()
    is_one_shape = all(model_of(config, agent) == config.model for agent in agents)
    if rolls_out_next and run.state.newest_policy is None and is_one_shape:
        start_servers_beside_sft(data, config.model, config.rollout, config.update.engine, agents)
    policy = _for_each_agent(run, data)
    if config.sft.repairs.problems:
        policy = _after_repairs(run, problems, data, policy)
    return run.add_policy(_after_joint_epoch(run, problems, policy) if config.sft.joint.problems else policy)


def _judged_pairs(
    run: Run, problems: ProblemSetRef, place: JudgingPlace, trained_on: EngineConfig | None
) -> SftDataRef:
    """Return the run's pairs, judged and checked. `trained_on`: ranks that start meanwhile, if SFT follows."""
    config = run.config
    data = make_sft_data(
        run.workspace,
        problems,
        config.sft.data,
        config.problems,
        config.rollout.episode,
        run.judge,
        place,
        config.sft.data.seed_in(config.seed),
        trained_on=trained_on,
    )
    data = check_sft_data(run.workspace, data, config.validation, config.rollout.episode.reward)
    run.record(sft_data=data)
    return data


def _after_repairs(run: Run, problems: ProblemSetRef, corpus: SftDataRef, policy: CheckpointRef) -> CheckpointRef:
    """Return the policy, or the team, after more SFT on repairs of its own failures."""
    config, repairs, place = run.config, run.config.sft.repairs, run.config.rollout.judging_place
    episode, seed = config.rollout.episode, config.seed + _REPAIRS_SEED
    rollout = config.rollout.apart_from_iterations(
        problems_per_iteration=repairs.problems,
        samples_per_problem=repairs.samples_per_problem,
        episode=episode.model_copy(update={"task": "kernelbench"}),  # a single turn
    )
    batch = answer_once(run.workspace, policy, problems, rollout, run.rollout_judge, seed=seed)
    data = make_repair_pairs(run.workspace, batch, problems, corpus, repairs, episode, run.rollout_judge, place, seed)
    run.record(repair_batch=batch, repair_pairs=data)
    if not data.pairs:
        message = "repairs: no answer could be improved upon; the policy stays as SFT left it"
        run.workspace.tell(lambda listener: listener.warned(message))
        return policy
    of = ", after repairs" if config.sft.joint.problems else ""
    return trained_on(run, policy, data, "pairs of repairs", fine_tune_on_repairs, config.sft.of_repairs(), of)


def _after_joint_epoch(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> CheckpointRef:
    """Return the policy, or the team, after more SFT on what it found out in conversations on training problems."""
    config, joint = run.config, run.config.sft.joint
    rollout = config.rollout.apart_from_iterations(
        problems_per_iteration=joint.problems, samples_per_problem=joint.samples_per_problem
    )
    seed = config.seed + _JOINT_SEED
    batch = play_conversations(run.workspace, policy, problems, rollout, run.rollout_judge, seed=seed)
    episode = config.rollout.episode
    data = make_joint_pairs(run.workspace, batch, problems, episode, config.judge.backend)
    run.record(joint_batch=batch, joint_pairs=data)
    if not data.pairs:
        message = (
            f"joint epoch: none of {batch.trajectories} conversations found a correct kernel; the policy stays as SFT "
            "left it (more of sft.steps would help, or sft.joint.problems = 0)"
        )
        run.workspace.tell(lambda listener: listener.warned(message))
        return policy
    return trained_on(run, policy, data, "pairs of the joint epoch", fine_tune_jointly, config.sft.of_joint_epoch())


def trained_on(
    run: Run,
    policy: CheckpointRef,
    pairs: SftDataRef,
    name: str,
    fine_tune: StageTask[..., CheckpointRef],
    settings: SftConfig,
    of: str = "",
) -> CheckpointRef:
    """Return a first policy, or a team, after more SFT on pairs, which are checked first.

    `name`: of the pairs, in the check's label. `fine_tune`: the stage that trains one policy. `of`: as below.
    """
    config = run.config
    taught = set(read_metadata(pairs.path)["roles"])
    checked = check_sft_data(run.workspace, pairs, config.validation, config.rollout.episode.reward, name=name)

    def train(initial: CheckpointRef, model: ModelConfig, roles: tuple[str, ...], of: str) -> CheckpointRef:
        engine, seed = config.update.engine, config.seed
        return fine_tune(run.workspace, checked, model, settings, engine, seed, initial, roles=roles, of=of)

    return trained_further(run, policy, train, taught, of=of)


def trained_further(
    run: Run, policy: CheckpointRef, train: TrainFurther, taught: Collection[str] | None = None, of: str = ""
) -> CheckpointRef:
    """Return a first policy after more SFT; of a team, after that of each agent that is trained.

    `taught`: roles that there are pairs of; None: all. `of`: end of the team's label.
    """
    config = run.config
    if not config.has_team:
        return train(policy, config.model, (), "")
    members, agents = members_of(policy), config.rollout.episode.agents
    if config.sft.shared:
        one = train(next(iter(members.values())), config.model, trained_roles(agents), " of all agents")
        return form_team(run.workspace, dict.fromkeys(members, one), weight_version=0, of=of)
    for owner, roles in owners(agents).items():
        if roles and (taught is None or not set(roles).isdisjoint(taught)):
            members[owner] = train(members[owner], model_of(config, owner), roles, f" of the {owner}")
    return form_team(run.workspace, members, weight_version=0, of=of)


def model_of(config: RunConfig, owner: str) -> ModelConfig:
    """Return the settings of an agent's own model: those of the run, or the pretrained model that the agent names."""
    pretrained = config.rollout.episode.agents[owner].pretrained
    return config.model if pretrained is None else config.model.model_copy(update={"pretrained": pretrained})


def _for_each_agent(run: Run, data: SftDataRef | None) -> CheckpointRef:
    """Return the first policy, or the team of the agents' first policies."""
    config = run.config
    if not config.has_team:
        return _first_policy(run, data, config.model)
    agents = config.rollout.episode.agents
    members: dict[str, CheckpointRef] = {}
    if config.sft.shared:
        one = _first_policy(run, data, config.model, trained_roles(agents), " of all agents")
        members = dict.fromkeys(owners(agents), one)
    else:
        for owner, roles in owners(agents).items():
            model = model_of(config, owner)
            members[owner] = _first_policy(run, data if roles else None, model, roles, f" of the {owner}")
    stages = (("repairs", config.sft.repairs.problems), ("the joint epoch", config.sft.joint.problems))
    later = next((stage for stage, problems in stages if problems), None)
    of = f", before {later}" if later and data is not None else ""
    return form_team(run.workspace, members, weight_version=0, of=of)


def _first_policy(
    run: Run, data: SftDataRef | None, model: ModelConfig, roles: tuple[str, ...] = (), of: str = ""
) -> CheckpointRef:
    """Return the result of SFT on the pairs of these roles; without data the pretrained model as it is."""
    config = run.config
    if data is None:
        return adopt_policy(run.workspace, model, of=of)
    settings = config.sft.of_first_policy()
    return fine_tune(run.workspace, data, model, settings, config.update.engine, config.seed, roles=roles, of=of)


def newest_policy(run: Run, problems: ProblemSetRef) -> CheckpointRef:
    """Return the newest policy that descends from this configuration's SFT; initially the SFT policy."""
    first = run_sft(run, problems)
    return run.state.newest_policy or first


@flow(name="sft", flow_run_name=name_of("problems"))
def sft_flow(config: RunConfig, overrides: tuple[str, ...] = ()) -> CheckpointRef:
    """Make the problem set and the SFT data, then run SFT."""
    with started_run(config, overrides) as (run, problems):
        return run_sft(run, problems)


@flow(name="sft pairs", flow_run_name=name_of("problems"))
def sft_pairs_flow(config: RunConfig, overrides: tuple[str, ...] = ()) -> SftDataRef:
    """Make the problem set and the SFT data alone: for a machine without the GPUs, model and engine of the run."""
    with started_run(config, overrides, for_pairs=True) as (run, problems):
        place = run.config.rollout.judging_place
        if run.config.judges_pairs_on_cpus:
            actors = place.judge_actors.model_copy(update={"gpus": 0.0})
            place = place.model_copy(update={"gpus": 0.0, "judge_actors": actors})
        return _judged_pairs(run, problems, place, trained_on=None)
