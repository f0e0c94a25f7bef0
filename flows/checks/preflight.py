"""Checks before anything expensive starts. Each raises an InputError that names the setting and the remedy.

torch and transformers are imported only for an explicit or pretrained checkpoint.
"""

import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

from flows.capacity.memory import shape_of
from flows.capacity.planner import gpus_of, needs_of
from flows.checks.named_files import architectures_of, check_model_folder, check_weights
from flows.checks.nodes import check_cluster
from flows.checks.output import try_to_write
from flows.checks.settings import check_settings
from flows.services.environment import check_temporary_folder
from flows.services.gpus import gpus_here
from flows.services.ray_cluster import Note, check_address, check_placement
from flows.settings.configuration import LATEST, RunConfig
from kernels_eval.errors import InputError
from tasks.agents.config import owners
from tasks.agents.team import is_team, members_of
from tasks.models.config import ModelConfig
from tasks.pipeline.references import CheckpointRef
from tasks.problems.config import FILE_LOADER, ProblemsConfig
from tasks.rollout.engines.kind import kind_of
from tasks.sft.corpus_check import check_corpus, check_left_out
from tasks.training.config import check_adapters

CPUS_A_CORE = 16
"""CPUs of a local Ray at most: it starts a process for each."""
DRAWN_LEVELS = (1, 2, 3)
"""Levels of problems that are drawn from a seed."""
KEEPING_ALL = {"token_tis", "sequence_tis", "none"}
"""Corrections of ours that leave out no token."""
FREE_BYTES = 2 * 2**30
"""Least free disk space: below it a run of the small model cannot finish (store, checkpoints, Prefect's database)."""


def check_before_start(config: RunConfig, note: Note = lambda _text: None, for_pairs: bool = False) -> None:
    """Raise InputError for the first problem that would stop the run later. `note` is told what is waited for.

    `for_pairs`: SFT's pairs are made and no more, which takes neither model nor engine, and a GPU only to judge them.
    """
    check_temporary_folder()
    check_disk(Path(config.runs_dir))
    if config.ray.nodes is None:  # else it may still be starting
        check_address(config.ray)
    check_settings(config)
    check_problems(config)
    if for_pairs:
        if config.sft.is_left_out:
            raise InputError("sft.steps: found 0, expected SFT, whose pairs are to be made")
        if not config.judges_pairs_on_cpus:
            check_gpus(config)
        if config.ray.address is None:
            check_cpus(config)
        return
    check_pretrained(config)
    check_engine(config)
    check_gpus(config)
    if config.ray.placement:
        check_placement(config.ray, needs_of(config))
    if config.ray.address is not None:
        check_cluster(config, note)
    elif not config.ray.placement:
        check_cpus(config)


def check_disk(runs_dir: Path) -> None:
    """Check that the folder of runs is on a disk with enough space, and writable. A full disk is neither."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"runs_dir: cannot make {runs_dir}: {error.strerror or error}") from error
    free = shutil.disk_usage(runs_dir).free
    if free < FREE_BYTES:
        raise InputError(
            f"runs_dir: {free / 2**30:.1f} GiB are free at {runs_dir}, expected at least {FREE_BYTES / 2**30:.0f} GiB"
        )
    try:
        try_to_write(runs_dir)
    except OSError as error:
        raise InputError(f"runs_dir: {runs_dir} is not writable: {error.strerror or error}") from error


def check_problems(config: RunConfig, splits: bool = False) -> str:
    """Check that problems and SFT pairs in files can be read; return how many there are.

    `splits`: also that some are held out. It takes milliseconds a problem, too long before each start of large sets.
    """
    from tasks.problems.loaders import load_entries
    from tasks.problems.modules.corpus import check_operators
    from tasks.problems.problem_set import deduplicate
    from tasks.problems.row import Split
    from tasks.problems.split import check_split, split_entries

    found = list[str]()
    check_operators(frozenset(config.problems.unseen), "problems.unseen")
    if config.problems.is_generated:
        check_drawn(config.problems)
    else:
        if config.problems.path is None:
            raise InputError(f"problems.path: expected a file or folder for problems.source = {config.problems.source}")
        entries = load_entries(config.problems)
        if splits and config.problems.heldout_source is None:
            rows = split_entries(deduplicate(entries), config.problems)
            check_split(rows, tuple(Split) if config.problems.train else (Split.HELDOUT,))
            counts = Counter(row.split for row in rows)
            found.append(f"{counts[Split.TRAIN]} to train on, {counts[Split.HELDOUT]} held out")
    heldout = config.problems.of_heldout_files()
    if heldout is not None:
        found.append(f"{len(load_entries(heldout))} held out")
    if not config.sft.is_left_out:
        check_corpus(config.sft.data, config.judge)
        check_left_out(config.sft.data, config.problems.unseen)
    data = config.sft.data
    if data.path is not None and not config.sft.is_left_out:
        from tasks.problems.pairs import load_pairs

        found.append(f"{len(load_pairs(Path(data.path), data.columns, data.bad_rows, data.reader))} pairs")
    return ", ".join(found)


def check_drawn(problems: ProblemsConfig) -> None:
    """Check that problems drawn from a seed are of levels that there are, and that no file is named beside them."""
    if problems.path is not None:
        raise InputError(
            f"problems.path: found {problems.path}, but problems.source = {problems.source} reads no file; "
            f"set problems.source to its format ({', '.join(FILE_LOADER.names)}), or problems.path=null"
        )
    unknown = sorted(set(problems.levels) - set(DRAWN_LEVELS))
    if unknown:
        raise InputError(
            f"problems.levels: found {unknown[0]}, expected some of {', '.join(map(str, DRAWN_LEVELS))} "
            f"for problems.source = {problems.source}"
        )


def check_pretrained(config: RunConfig) -> None:
    """Check the pretrained models that the configuration names."""
    check_not_latest(config.model, Path(config.runs_dir))
    check_policy(config.model)
    if config.rollout.episode.system_message is not None:
        check_system_messages(config)
    for name, agent in config.rollout.episode.agents.items():
        if agent.pretrained is not None:
            check_model_folder(f"rollout.episode.agents.{name}.pretrained", agent.pretrained)
    check_lora(config)
    check_routing(config)
    critic = config.update.critic.pretrained if config.update.estimator.critic else None
    if critic is not None and not Path(critic).exists():
        raise InputError(f"update.critic.pretrained: no such file or folder: {critic}")
    if critic is not None:
        architectures_of("update.critic.pretrained", Path(critic))
        check_weights("update.critic.pretrained", Path(critic))


def check_system_messages(config: RunConfig) -> None:
    """Check that the pretrained models' chat templates take a system message."""
    from tasks.models.chat import check_system_message
    from tasks.models.tokenizer import load_tokenizer

    agents = [agent.pretrained for agent in config.rollout.episode.agents.values()]
    for name in dict.fromkeys((config.model.pretrained, *agents)):
        if name is not None and Path(name).is_dir():
            try:
                check_system_message(load_tokenizer(Path(name)))
            except InputError as error:
                raise InputError(f"rollout.episode.system_message: {error}") from error


def check_routing(config: RunConfig) -> None:
    """Check that tokens are left out whose experts the update chooses otherwise than the rollout did.

    Choices are not replayed (docs/how-to/model.md has the measured mismatch).
    """
    correction = config.update.correction
    if config.iterations == 0 or correction.weights not in KEEPING_ALL or correction.rejection != "none":
        return
    for model in trained_models(config):
        experts = experts_of(model)
        if experts:
            raise InputError(
                f"update.correction.weights: found {correction.weights} for a model with {experts} experts: the update "
                "may choose others for a token than the rollout did; expected icepop, or an update.correction.rejection"
            )


def trained_models(config: RunConfig) -> list[ModelConfig]:
    """Return the models that a run starts from: the policy's, and those of agents that have their own."""
    agents = [agent.pretrained for agent in config.rollout.episode.agents.values() if agent.pretrained is not None]
    return [config.model, *(ModelConfig(pretrained=name) for name in agents)]


def experts_of(model: ModelConfig) -> int:
    """Return the number of a model's experts; 0 for a dense one, and where its sizes are not known."""
    with suppress(InputError):
        return shape_of(model).experts
    return 0


def check_lora(config: RunConfig) -> None:
    """Check that adapters are asked for where the models that are trained take some."""
    for model in trained_models(config):
        experts = experts_of(model)
        check_adapters(config.update.lora, experts)
        check_adapters(config.sft.lora, experts, "sft.lora")
        if config.sft.lora is not None and model.pretrained is None and not config.sft.is_left_out:
            raise InputError(
                "sft.lora: found adapters for a new model, which has no weights worth keeping; "
                "set model.pretrained, or sft.lora=null"
            )


def check_not_latest(model: ModelConfig, runs_dir: Path) -> None:
    """Check that a pretrained model is not named through `runs/latest`, which is this run as soon as it starts."""
    link = runs_dir / LATEST
    named = Path(model.pretrained or "").absolute()
    if link.is_symlink() and named.is_relative_to(link.absolute()):
        raise InputError(
            f"model.pretrained: {model.pretrained}: `{LATEST}` will be this run; name the run's own folder: "
            f"{runs_dir / link.readlink() / named.relative_to(link.absolute())}"
        )


def check_policy(model: ModelConfig) -> None:
    """Check that pretrained weights are a causal model with a tokenizer, or can be converted; hub names pass."""
    if model.pretrained is None:
        return
    if model.megatron is not None:
        from extras.convert.pretrained import checked_conversion

        check_template(checked_conversion(model).companions, model.template)
        return
    check_model_folder("model.pretrained", model.pretrained)
    folder = Path(model.pretrained)
    check_template(folder if folder.is_dir() else None, model.template)


def check_template(folder: Path | None, template: str | None) -> None:
    """Check that a folder's chat template is of the family `model.template`, or one whose loss mask is known.

    And that generation stops where the template ends an answer: otherwise each answer would go on to its limit.
    """
    if folder is None:
        return
    from tasks.models.chat import end_of_turn, template_family
    from tasks.models.tokenizer import load_tokenizer
    from tasks.rollout.engines import stop_token_ids

    tokenizer = load_tokenizer(folder)
    try:
        family = template_family(tokenizer, template)
    except InputError as error:
        raise InputError(f"model.template: {error}") from error
    if not (folder / "config.json").is_file():
        return
    end, stops = end_of_turn(tokenizer, family), stop_token_ids(folder, tokenizer)
    if end not in stops:
        named = ", ".join(f"{token} ({tokenizer.decode([token])!r})" for token in stops) or "none"
        raise InputError(
            f"{folder}: the chat template ends an answer with token {end} ({tokenizer.decode([end])!r}), expected it "
            f"among those at which generation stops, found {named}; add it to eos_token_id in generation_config.json"
        )


def check_engine(config: RunConfig) -> None:
    """Check that the engine has what it needs: servers that are named, programs that start some."""
    kind_of(config.rollout).check(config.rollout, config.has_team, is_here=config.ray.address is None)


def check_gpus(config: RunConfig) -> None:
    """Check that this machine has the GPUs of a local run; Ray would wait for them for ever."""
    wanted = gpus_of(config)
    if config.ray.address is not None or (wanted == 0 and config.judge.device != "cuda"):
        return
    found = gpus_here()
    if not found and config.judge.device == "cuda":
        raise InputError("judge.device: found cuda, expected auto or cpu: this machine has no NVIDIA GPU")
    if len(found) < wanted:
        raise InputError(
            f"the configuration asks for {wanted} GPUs (update.gpus_per_rank, rollout.sglang.gpus_per_server, "
            f"rollout.gpus, rollout.judge_actors.gpus), found {len(found)} on this machine; "
            "name a cluster in ray.address, or ask for fewer"
        )


def check_cpus(config: RunConfig) -> None:
    """Check that a local run has the CPUs that its judge actors reserve; Ray would wait for them for ever."""
    cores, judges, ranks = os.cpu_count() or 1, config.rollout.judge_actors, config.update.ranks
    if not config.update.gpus_per_rank and ranks > CPUS_A_CORE * cores:
        raise InputError(
            f"update.ranks: found {ranks}, expected at most {CPUS_A_CORE * cores} "
            f"({CPUS_A_CORE} for each of this machine's {cores} cores): each is a process"
        )
    if (config.ray.cpus or 0) > CPUS_A_CORE * cores:
        raise InputError(
            f"ray.cpus: found {config.ray.cpus}, expected at most {CPUS_A_CORE * cores} "
            f"({CPUS_A_CORE} for each of this machine's {cores} cores)"
        )
    wanted, there_are = judges.count * judges.cpus, config.ray.cpus or cores
    if wanted > there_are:
        raise InputError(
            f"rollout.judge_actors.cpus: {judges.count} actors reserve {wanted:g} CPUs, found {there_are} "
            "(ray.cpus, or all of this machine); "
            "ask for fewer, or 0 to reserve none"
        )


def check_checkpoint(checkpoint: Path, config: RunConfig, where: str = "--checkpoint") -> None:
    """Check that a folder, named by the option or setting `where`, has a policy of the configured architecture.

    A team's agents have to be those of the configuration.
    """
    if not checkpoint.is_dir():
        raise InputError(f"{where}: no such folder: {checkpoint}")
    from tasks.models.policy import check_architecture

    policy = CheckpointRef(uri=str(checkpoint), digest="")
    members, wanted = members_of(policy), owners(config.rollout.episode.agents)
    if is_team(policy) and set(members) != set(wanted):
        raise InputError(
            f"{where}: {checkpoint} is a team of {', '.join(members)}, expected {', '.join(wanted)} "
            "(rollout.episode.agents)"
        )
    for member in members.values():
        check_architecture(member.path, config.model)
        check_weights(where, member.path)
